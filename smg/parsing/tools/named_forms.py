"""Families that write the name in a header and the arguments as one JSON object (spec parsers 6.2, 6.6 to 6.8, 6.13,
9)."""

import re

from smg.parsing.engine.gemma import GemmaArguments
from smg.parsing.engine.grammar import Call, Grammar
from smg.parsing.engine.json_calls import JsonCalls
from smg.parsing.engine.named import Bare, Json, Named
from smg.parsing.engine.python_calls import PythonCalls
from smg.parsing.markers import GAP
from smg.parsing.tools.json_forms import OBJECT

END_OF_SENTENCE = "<｜end▁of▁sentence｜>"

_ARGS = Named(Bare(ends=("[ARGS]",), kept=("{",), ids=("[CALL_ID]",)), Json())
MISTRAL = Grammar(
    (
        Call(JsonCalls(separators=","), open=("[TOOL_CALLS]",), first="[{"),
        Call(_ARGS, open=("[TOOL_CALLS]",)),
    )
)

_TAGGED = Call(Named(Bare(ends=(">",)), Json()), open=("<function=",), close=("</function>",))
LLAMA = Grammar(
    (
        Call(JsonCalls(separators=";,"), open=("<|python_tag|>",), first="[{"),
        Call(PythonCalls(brackets=False, suffix=".call"), open=("<|python_tag|>",)),
        _TAGGED,
        Call(JsonCalls(separators=";,", marked=False), pattern=OBJECT, leading=True),
    )
)
FUNCTIONARY31 = Grammar((_TAGGED,))
FUNCTIONARY32 = Grammar((Call(Named(Bare(ends=("\n",)), Json()), open=(">>>",)),), drop=(">>>all\n",), prefill=">>>")

_DEEPSEEK_END = ("<｜tool▁calls▁end｜>",)
_DEEPSEEK_DROP = (*_DEEPSEEK_END, END_OF_SENTENCE)
_FENCE = ("```json\n", "```json")
DEEPSEEK = Grammar(
    (
        Call(
            Named(Bare(ends=("\n",), kept=(*_FENCE, "{")), Json(before=_FENCE, after=("```",))),
            open=("<｜tool▁call▁begin｜>function<｜tool▁sep｜>",),
            close=("<｜tool▁call▁end｜>",),
        ),
    ),
    begin=("<｜tool▁calls▁begin｜>",),
    end=_DEEPSEEK_END,
    drop=_DEEPSEEK_DROP,
)
DEEPSEEK31 = Grammar(
    (
        Call(
            Named(Bare(ends=("<｜tool▁sep｜>",)), Json()),
            open=("<｜tool▁call▁begin｜>",),
            close=("<｜tool▁call▁end｜>",),
        ),
    ),
    begin=("<｜tool▁calls▁begin｜>",),
    end=_DEEPSEEK_END,
    drop=_DEEPSEEK_DROP,
)

_KIMI_ID = re.compile(r"(?:functions\.)?([^:<\s]+(?::[^:<\s]+)*):\d+")


def kimi_id(text: str, tools: tuple[str, ...]) -> tuple[str, str | None]:
    """Name and id from Kimi's ``functions.NAME:N``. When dot and colon got lost, the tools of the request tell the name
    and the id is issued anew (case TP-07)."""
    found = _KIMI_ID.fullmatch(text)
    if found is not None:
        return found[1], text
    bare = text.removeprefix("functions").lstrip(".").rstrip("0123456789").rstrip(":")
    for name in (bare, text.removeprefix("functions.")):
        if name in tools:
            return name, None
    return ("", None) if any(char.isspace() for char in bare) else (bare, None)


_KIMI_END = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
KIMI_K2 = Grammar(
    (
        Call(
            Named(Bare(ends=("<|tool_call_argument_begin|>",), identify=kimi_id), Json()),
            open=("<|tool_call_begin|>",),
            close=("<|tool_call_end|>",),
        ),
    ),
    begin=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
    end=_KIMI_END,
    drop=_KIMI_END,
)

SOLAR_OPEN = Grammar(
    (
        Call(
            Named(Bare(ends=("<|tool_call:args|>",), names=("<|tool_call:name|>",)), Json()),
            open=("<|tool_call:begin|>",),
            close=("<|tool_call:end|>",),
        ),
    ),
    drop=("<|tool_calls|>",),
)

STEP_AUDIO2 = Grammar(
    (
        Call(
            Named(Bare(ends=("\n",), kept=("{",)), Json()),
            open=(f"<tool_call>{GAP}function\n",),
            close=("</tool_call>",),
        ),
    )
)


def _plamo(kind: str, name: str) -> str:
    return f"<|plamo:{kind}_{name}:plamo|>"


# Their markers take several tokens; of these the vocabulary may count some as special.
PLAMO_TOKENS = ("<|plamo:begin_", "<|plamo:end_", ":plamo|>")
PLAMO3 = Grammar(
    (
        Call(
            Named(
                Bare(ends=(_plamo("end", "tool_name"),)),
                Json(
                    before=(f"{_plamo('begin', 'tool_arguments')}{GAP}<|plamo:constrain|>json<|plamo:msg|>",),
                    after=(_plamo("end", "tool_arguments"),),
                ),
            ),
            open=(f"{_plamo('begin', 'tool_request')}{GAP}{_plamo('begin', 'tool_name')}",),
            close=(_plamo("end", "tool_request"),),
        ),
    ),
    begin=(_plamo("begin", "tool_requests"),),
    end=(_plamo("end", "tool_requests"),),
    drop=("<|plamo:tag|>",),
    tokens=PLAMO_TOKENS,
)


def _gemma(open_: str, close: str, quote: str) -> Grammar:
    body = Named(Bare(ends=(), kept=("{",)), GemmaArguments(quote))
    return Grammar((Call(body, open=(f"{open_}call:",), close=(close,)),))


GEMMA4 = _gemma("<|tool_call>", "<tool_call|>", '<|"|>')
FUNCTIONGEMMA = _gemma("<start_function_call>", "<end_function_call>", "<escape>")
