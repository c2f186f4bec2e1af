"""Families that write calls in Python's notation (spec parsers 6.5, 9)."""

from smg.parsing.engine.grammar import Call, Grammar
from smg.parsing.engine.json_calls import JsonCalls
from smg.parsing.engine.python_calls import LIST, PythonCalls

PYTHONIC = Grammar(
    (Call(PythonCalls(marked=False), pattern=LIST),),
    drop=("<|python_start|>", "<|python_end|>", "<|python_tag|>"),
)
OLMO3 = Grammar((Call(PythonCalls(brackets=False), open=("<function_calls>",), close=("</function_calls>",)),))
LFM2 = Grammar(
    (
        Call(
            PythonCalls(otherwise=JsonCalls()),
            open=("<|tool_call_start|>",),
            close=("<|tool_call_end|>",),
        ),
    )
)
