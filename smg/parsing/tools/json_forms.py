"""Families whose calls are JSON objects with name and arguments (spec parsers 6.1, 6.3, 6.15, 6.17, 9)."""

from smg.parsing.engine.grammar import Call, Grammar
from smg.parsing.engine.json_calls import JsonCalls
from smg.parsing.engine.python_calls import PythonObjects
from smg.parsing.markers import GAP, JSON_NEXT, WORD, Pattern

# How an object with a key begins, alone or first in an array: what may be a call when there is no marker.
_KEY = (r'\{(?=[\s"]|\Z)', r"\s{0,64}", '"', r'[^"\\]{0,128}', '"', r"\s{0,64}", ":")
OBJECT: Pattern = ("{", _KEY)
ARRAY: Pattern = ("[{", (r"\[(?=[\s{]|\Z)", r"\s{0,64}", *_KEY))
_LITERALS: Pattern = ("[{", (r"\[(?=[\s{]|\Z)", r"\s{0,64}", r"\{", r"\s{0,64}", "[\"']"))

UNMARKED = JsonCalls(marked=False)
BARE = (Call(UNMARKED, pattern=OBJECT), Call(UNMARKED, pattern=ARRAY))


def wrapped(open_: str, close: str, *more: str) -> Grammar:
    """Objects or arrays of them between two markers; ``more`` are further closers."""
    return Grammar((Call(JsonCalls(separators=","), open=(open_,), close=(close, *more)),))


JSON = Grammar(BARE)
HERMES = Grammar((Call(JsonCalls(separators=","), open=("<tool_call>",), close=("</tool_call>",)),))
QWEN25_CODER = Grammar((Call(JsonCalls(separators=",\n"), open=("<tools>",), close=("</tools>",), first="[{"),))
RWKV = Grammar(
    (
        Call(JsonCalls(), open=(f"**Tool Call:**{GAP}```json",), close=("```",), first="{"),
        Call(JsonCalls(), open=("<tool_call>",), close=("</tool_call>",), first="{"),
    )
)
LONGCAT = wrapped("<longcat_tool_call>", "</longcat_tool_call>")
TOOL_CALLS = wrapped("<tool_calls>", "</tool_calls>")
APRIEL = Grammar(TOOL_CALLS.calls, drop=("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"))
HUNYUAN_A13B = Grammar(TOOL_CALLS.calls, drop=("<answer>", "</answer>"))
MINIMAX_M1 = Grammar((Call(JsonCalls(separators=",\n"), open=("<tool_calls>",), close=("</tool_calls>",)),))
NEMOTRON_JSON = wrapped("<TOOLCALL>", "</TOOLCALL>")
APERTUS = Grammar((Call(JsonCalls(single_key=True), open=("<|tools_prefix|>",), close=("<|tools_suffix|>",)),))
GRANITE = Grammar((Call(JsonCalls(), open=("<|tool_call|>", "<tool_call>"), first="[{"),))
GRANITE_20B_FC = Grammar((Call(JsonCalls(), open=("<function_call>",), first="{"),))
# Of two vocabularies, one has no names for its tokens.
PANGU = Grammar(
    (Call(JsonCalls(), open=("[unused11]", "<|tool_call_start|>"), close=("[unused12]", "<|tool_call_end|>")),),
    tokens=("[unused11]", "[unused12]"),
)
INTERNLM = Grammar(
    (Call(JsonCalls(), open=(f"<|action_start|>{GAP}<|plugin|>",), close=("<|action_end|>",), first="{"),)
)
FUNCTOOLS = Grammar((Call(JsonCalls(), open=("functools",), first="["),))
ERNIE45 = Grammar(HERMES.calls, drop=("<response>\n", "<response>", "\n</response>", "</response>"))
GIGACHAT3 = Grammar(
    (Call(JsonCalls(), open=(f"function call<|role_sep|>{GAP}", "<|function_call|>"), first="{"),),
    drop=("<|message_sep|>",),
)
XLAM = Grammar(
    (
        Call(JsonCalls(), open=("[TOOL_CALLS]",), first="[{"),
        Call(JsonCalls(), open=("<tool_call>",), close=("</tool_call>",), first="[{"),
        Call(UNMARKED, open=(f"```json{GAP}{JSON_NEXT}", f"```{GAP}{JSON_NEXT}"), close=("```",)),
        *BARE,
    )
)

# One marker opens all calls; without it a list counts when its elements are calls.
SARASHINA = Grammar((Call(PythonObjects(UNMARKED), pattern=_LITERALS),), drop=("<|tool_calls|>",))

_INKLING_END = ("<|end_message|>", "<|content_model_end_sampling|>")
INKLING = Grammar(
    (
        Call(
            JsonCalls(),
            open=("<|content_invoke_tool_json|>", f"<|message_model|>{WORD}<|content_invoke_tool_json|>"),
            close=_INKLING_END,
        ),
    ),
    drop=("<|message_model|>", "<|content_text|>", *_INKLING_END),
    undeclared="drop",
)

_GROUNDING: Pattern = ("</co", ("<", "/", "c", "o", r":[\d\s:,;\[\]]{0,256}", ">"))
COHERE = Grammar(
    (Call(JsonCalls(ids=("tool_call_id",)), open=("<|START_ACTION|>",), close=("<|END_ACTION|>",)),),
    drop=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>", "<co>"),
    drop_patterns=(_GROUNDING,),
)
