"""How each family writes calls, for constraints: the mirror of ``smg.parsing.tools`` (spec parsers 6 and 7).

A row says what stands around the arguments; the arguments are a JSON object that the tool's schema describes, or
elements of their own (``elements.py``). What a row makes is read back by the family's own parser.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from smg.constraints import custom, formats
from smg.constraints.elements import Elements
from smg.constraints.formats import Piece
from smg.constraints.inline import Inline
from smg.constraints.walk import Schema
from smg.core.request import INPUT, ToolGrammar

# Names that need no escape in any format.
_PLAIN = re.compile(r"[A-Za-z0-9_.:/-]{1,256}")
_DIGITS = "[0-9]{1,3}"

# Whether a text is in the model's vocabulary as a token.
Has: TypeAlias = Callable[[str], bool]


class Shape(msgspec.Struct, frozen=True):
    """One family's calls. ``NAME`` in ``begin`` and ``head`` stands for the tool's name.

    ``begin`` and ``end`` stand around the arguments; ``id`` is the pattern of an id behind ``begin``, and ``head`` what
    stands between it and the arguments. ``open`` and ``close`` stand around all calls, ``separator`` between them.
    ``trigger`` is what free text must not contain without a call's following; empty: ``open``, or else what all
    ``begin`` have in common before the name. ``free`` False: calls can't be told from free text, so they come only
    where they must. ``prefilled``: the prompt may end with ``open``.
    """

    begin: str
    end: str
    id: str = ""
    head: str = ""
    open: str = ""
    close: str = ""
    separator: str = ""
    trigger: str = ""
    elements: Elements | Inline | None = None
    free: bool = True
    prefilled: bool = False

    def behind(self, prompt_tail: str) -> "Shape":
        """The shape of an output behind a prompt that ends with ``prompt_tail``."""
        if self.prefilled and prompt_tail.rstrip().endswith(self.open):
            return msgspec.structs.replace(self, open="")
        return self

    def fits(self, names: Sequence[str]) -> bool:
        """Whether calls of these tools can be written without escapes."""
        return all(_PLAIN.fullmatch(name) for name in names)

    def piece(
        self,
        tools: Mapping[str, Schema],
        *,
        forced: bool,
        once: bool,
        inputs: Mapping[str, ToolGrammar] = {},
    ) -> Piece:
        """An output with calls of ``tools`` (name to schema of the arguments, whatever ``inputs`` has no grammar for).

        ``forced``: it begins with a call; otherwise text may come, and no call need. ``once``: at most one call.
        """
        tags = [self._call(name, schema, inputs.get(name)) for name, schema in tools.items()]
        if self.prefilled:
            calls = formats.separated(tags, self.separator, once=once)
            return formats.sequence(formats.const(self.open), calls) if self.open else calls
        if self.open:
            whole = formats.tag(self.open, formats.separated(tags, self.separator, once=once), self.close)
            return formats.triggered([self.trigger or self.open], [whole], forced=forced, once=True)
        trigger = self.trigger or self.begin.partition("NAME")[0]
        return formats.triggered([trigger], tags, forced=forced, once=once)

    def _call(self, name: str, schema: Schema, grammar: ToolGrammar | None) -> Piece:
        arguments: Piece | None
        if self.elements is not None:
            arguments = self.elements.piece(schema) if grammar is None else self.elements.text(INPUT, grammar)
        else:
            arguments = formats.json_schema(schema) if grammar is None else custom.json_object(grammar)
        end = self.end
        if arguments is None:
            arguments, end = formats.const(end), ""
        if self.id:
            head = formats.const(self.head.replace("NAME", name))
            arguments = formats.sequence(formats.regex(self.id), head, arguments)
        return formats.tag(self.begin.replace("NAME", name), arguments, end)


def shape(family: str, has: Has) -> Shape | None:
    """The shape of the tool format ``family`` (its name in ``parsing.table``); None: constraints are plain JSON then.

    ``has`` tells the versions of a family apart.
    """
    if family == "mistral":
        return _MISTRAL_IDS if has("[CALL_ID]") else _MISTRAL_NAMED if has("[ARGS]") else _MISTRAL_LIST
    if family == "pangu" and has("<|tool_call_start|>"):
        return _PANGU_NAMED
    return _SHAPES.get(family)


def _objects(open_: str, close: str, arguments: str = "arguments") -> Shape:
    """Each call is an object between two markers."""
    return Shape(f'{open_}{{"name": "NAME", "{arguments}": ', f"}}{close}", trigger=open_.rstrip())


def _array(open_: str, close: str, arguments: str = "arguments") -> Shape:
    """All calls are in one array."""
    return Shape(f'{{"name": "NAME", "{arguments}": ', "}", open=open_, close=close, separator=", ")


def _function(begin: str, end: str, line: str = "\n") -> Shape:
    """``line`` stands around each value."""
    return Shape(
        f"{begin}\n<function=NAME>\n",
        f"</function>\n{end}",
        trigger=begin,
        elements=Elements(f"<parameter=KEY>{line}", f"{line}</parameter>\n"),
    )


def _dsml(prefix: str, block: str) -> Shape:
    parameter = f'<{prefix}parameter name="KEY" string="TEXT">'
    return Shape(
        f'<{prefix}invoke name="NAME">\n',
        f"</{prefix}invoke>\n",
        open=f"<{prefix}{block}>\n",
        close=f"</{prefix}{block}>",
        trigger=f"<{prefix}{block}>",
        elements=Elements(parameter, f"</{prefix}parameter>\n"),
    )


def _pairs(begin: str, end: str, line: str) -> Shape:
    elements = Elements(f"<arg_key>KEY</arg_key>{line}<arg_value>", f"</arg_value>{line}")
    return Shape(f"{begin}NAME{line}", end, trigger=begin, elements=elements)


_MISTRAL_LIST = _array("[TOOL_CALLS] [", "]")
_MISTRAL_NAMED = Shape("[TOOL_CALLS]NAME[ARGS]", "", trigger="[TOOL_CALLS]")
_MISTRAL_IDS = Shape("[TOOL_CALLS]NAME[CALL_ID]", "", id="[0-9A-Za-z]{9}", head="[ARGS]", trigger="[TOOL_CALLS]")
_PANGU_NAMED = _array("<|tool_call_start|>[", "]<|tool_call_end|>")
_DEEPSEEK = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")

_PLAMO = "<|plamo:{}_tool_{}:plamo|>"
_M3 = "]<]minimax[>["


def _python(open_: str, close: str, separator: str, *, free: bool = True) -> Shape:
    """Calls in Python's notation."""
    arguments = Inline("KEY=", ", ", words=True)
    return Shape("NAME(", ")", open=open_, close=close, separator=separator, elements=arguments, free=free)


def _gemma(begin: str, end: str, quote: str) -> Shape:
    return Shape(f"{begin}call:NAME{{", f"}}{end}", trigger=begin, elements=Inline("KEY:", ",", quote))


_SHAPES: Mapping[str, Shape] = {
    "qwen": _objects("<tool_call>\n", "\n</tool_call>"),
    "longcat": _objects("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
    "qwen2_5_coder": _objects("<tools>\n", "\n</tools>"),
    "rwkv": _objects("**Tool Call:**\n```json\n", "\n```"),
    "pangu": _array("[unused11][", "][unused12]"),
    "ernie45": _objects("<tool_call>\n", "\n</tool_call>"),
    "granite_20b_fc": _objects("<function_call> ", ""),
    "internlm": _objects("<|action_start|><|plugin|>\n", "<|action_end|>", "parameters"),
    "gigachat3": _objects("<|function_call|>", ""),
    "jamba": _array("<tool_calls>[", "]</tool_calls>"),
    "hunyuan_a13b": _array("<tool_calls>[", "]</tool_calls>"),
    "apriel": _array("<tool_calls>[", "]</tool_calls>"),
    "nemotron_json": _array("<TOOLCALL>[", "]</TOOLCALL>"),
    "granite": _array("<|tool_call|>[", "]"),
    "phi4mini": _array("functools[", "]"),
    "minimax_m1": Shape(
        '{"name": "NAME", "arguments": ', "}", open="<tool_calls>\n", close="\n</tool_calls>", separator="\n"
    ),
    "apertus": Shape('{"NAME": ', "}", open="<|tools_prefix|>[", close="]<|tools_suffix|>", separator=", "),
    "inkling": Shape(
        '<|content_invoke_tool_json|>{"name":"NAME","args":', "}<|end_message|>", trigger="<|content_invoke_tool_json|>"
    ),
    "cohere": Shape(
        '{"tool_name": "NAME", "parameters": ',
        "}",
        open="<|START_ACTION|>[",
        close="]<|END_ACTION|>",
        separator=", ",
    ),
    "functionary31": Shape("<function=NAME>", "</function>", trigger="<function="),
    "llama": Shape('{"name": "NAME", "parameters": ', "}", trigger='{"name": "'),
    "deepseek": Shape(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        open=_DEEPSEEK[0],
        close=_DEEPSEEK[1],
        separator="\n",
    ),
    "deepseek31": Shape(
        "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>", "<｜tool▁call▁end｜>", open=_DEEPSEEK[0], close=_DEEPSEEK[1]
    ),
    "kimik2": Shape(
        "<|tool_call_begin|>functions.NAME:",
        "<|tool_call_end|>",
        id=_DIGITS,
        head="<|tool_call_argument_begin|>",
        open="<|tool_calls_section_begin|>",
        close="<|tool_calls_section_end|>",
    ),
    "kimi_k3": Shape(
        '<|open|>call tool="NAME" index="',
        "<|close|>call<|sep|>",
        id=_DIGITS,
        head='"<|sep|>',
        open="<|open|>tools<|sep|>",
        close="<|close|>tools<|sep|>",
        elements=Elements(
            '<|open|>argument key="KEY" type="TYPE"<|sep|>',
            "<|close|>argument<|sep|>",
        ),
    ),
    "solar_open": Shape(
        "<|tool_call:begin|>",
        "<|tool_call:end|>",
        id="[0-9A-Za-z]{1,24}",
        head="<|tool_call:name|>NAME<|tool_call:args|>",
    ),
    "step_audio_2": Shape("<tool_call>function\nNAME\n", "\n</tool_call>", trigger="<tool_call>function\n"),
    "solar_open2": Shape(
        "<|tool_call:start|>NAME\n",
        "<|tool_call:end|>",
        trigger="<|tool_call:start|>",
        elements=Elements("<|tool_arg:start|>KEY<|tool_arg:value|>", "<|tool_arg:end|>\n"),
    ),
    "qwen_xml": _function("<tool_call>", "</tool_call>"),
    "mimo": _function("<tool_call>", "</tool_call>", ""),
    "seed_oss": _function("<seed:tool_call>", "</seed:tool_call>"),
    "deepseek32": _dsml("｜DSML｜", "function_calls"),
    "deepseek_v4": _dsml("｜DSML｜", "tool_calls"),
    "gigachat35": _dsml("｜GCML｜", "tool_calls"),
    "minimax_m2": Shape(
        '<invoke name="NAME">\n',
        "</invoke>\n",
        open="<minimax:tool_call>\n",
        close="</minimax:tool_call>",
        trigger="<minimax:tool_call>",
        elements=Elements('<parameter name="KEY">', "</parameter>\n"),
    ),
    "dots": Shape(
        '<invoke name="NAME">',
        "</invoke>",
        open="<dots_function_call>",
        close="</dots_function_call>",
        separator="\n",
        elements=Elements('<parameter name="KEY">', "</parameter>"),
    ),
    "glm45_moe": _pairs("<tool_call>", "</tool_call>", "\n"),
    "glm47_moe": _pairs("<tool_call>", "</tool_call>", ""),
    "iquest": _pairs("<iquest_tool_call>", "</iquest_tool_call>", ""),
    "iquest_coder": _pairs("<iquestcoder_tool_call>", "</iquestcoder_tool_call>", ""),
    "telechat4": Shape(
        "<tool_call>NAME",
        "</tool_call>",
        trigger="<tool_call>",
        elements=Elements("<param_key>KEY</param_key><param_value>", "</param_value>"),
    ),
    "hy_v3": Shape(
        "<tool_call>NAME<tool_sep>",
        "</tool_call>",
        open="<tool_calls>",
        close="</tool_calls>",
        separator="\n",
        elements=Elements("<arg_key>KEY</arg_key><arg_value>", "</arg_value>"),
    ),
    "minimax_m3": Shape(
        f'{_M3}<invoke name="NAME">',
        f"{_M3}</invoke>",
        open=f"{_M3}<tool_call>\n",
        close=f"\n{_M3}</tool_call>",
        separator="\n",
        trigger=f"{_M3}<tool_call>",
        elements=Elements(f"{_M3}<KEY>", f"{_M3}</KEY>", "item"),
    ),
    "k2_horizon": Shape(
        "<ifm|tool_call>NAME\n",
        "</ifm|tool_call>",
        open="<ifm|tool_calls>\n",
        close="\n</ifm|tool_calls>",
        separator="\n",
        trigger="<ifm|tool_calls>",
        elements=Elements("<ifm|arg_key>KEY</ifm|arg_key>\n<ifm|arg_value>", "</ifm|arg_value>\n"),
    ),
    "plamo3": Shape(
        f"{_PLAMO.format('begin', 'request')}{_PLAMO.format('begin', 'name')}NAME{_PLAMO.format('end', 'name')}"
        f"{_PLAMO.format('begin', 'arguments')}<|plamo:constrain|>json<|plamo:msg|>",
        _PLAMO.format("end", "arguments") + _PLAMO.format("end", "request"),
        open=_PLAMO.format("begin", "requests"),
        close=_PLAMO.format("end", "requests"),
    ),
    "pythonic": _python("[", "]", ", ", free=False),
    "lfm2": _python("<|tool_call_start|>[", "]<|tool_call_end|>", ", "),
    "olmo3": _python("<function_calls>", "</function_calls>", "\n"),
    "gemma4": _gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
    "functiongemma": _gemma("<start_function_call>", "<end_function_call>", "<escape>"),
    "sarashina": _array("<|tool_calls|>[", "]"),
    "xlam": msgspec.structs.replace(_array("[", "]"), free=False),
    "functionary32": Shape("NAME\n", "", open=">>>", separator=">>>", free=False, prefilled=True),
    # Behind ``<|start|>assistant``, with which a prompt ends and another message begins.
    "gpt_oss": Shape(
        "<|channel|>commentary to=functions.NAME<|constrain|>json<|message|>",
        "<|call|>",
        trigger="<|channel|>commentary to=",
    ),
    "muse_glimmer": Shape(
        ' to=NAME<|message|><atem:function_calls>\n<atem:invoke name="NAME">\n',
        "</atem:invoke>\n</atem:function_calls><|eot|>",
        trigger=" to=",
        elements=Elements('<atem:parameter name="KEY">', "</atem:parameter>\n"),
        free=False,
    ),
    "step3": Shape(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="NAME">',
        "</steptml:invoke><｜tool_call_end｜>",
        open="<｜tool_calls_begin｜>\n",
        close="\n<｜tool_calls_end｜>",
        separator="\n",
        trigger="<｜tool_calls_begin｜>",
        elements=Elements('<steptml:parameter name="KEY">', "</steptml:parameter>"),
    ),
    "minicpm5": Shape(
        '<function name="NAME">',
        "</function>",
        trigger="<function ",
        elements=Elements('<param name="KEY">', "</param>"),
    ),
}
