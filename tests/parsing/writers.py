"""How the models of each tool format write calls: from names and arguments to text. Written from the formats'
descriptions, so that the parsers have something to be held against that is not themselves."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Calls: TypeAlias = Sequence[tuple[str, dict[str, Any]]]
Writer: TypeAlias = Callable[[Calls], str]


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def bare(value: Any) -> str:
    """A value where the format has no quotes: strings as they are."""
    return value if isinstance(value, str) else dumps(value)


def python(value: Any) -> str:
    return repr(value)


def objects(name: str = "name", arguments: str = "arguments") -> Callable[[str, dict[str, Any]], str]:
    return lambda function, values: dumps({name: function, arguments: values})


def each(template: str, body: Callable[[str, dict[str, Any]], str] | None = None, join: str = "\n") -> Writer:
    """Every call in ``template``, whose ``@`` is the call's object (or ``body`` of it)."""
    write = body or objects()
    return lambda calls: join.join(template.replace("@", write(*call)) for call in calls)


def array(template: str, body: Callable[[str, dict[str, Any]], str] | None = None, join: str = ", ") -> Writer:
    """All calls as one JSON array in ``template``."""
    write = body or objects()
    return lambda calls: template.replace("@", "[" + join.join(write(*call) for call in calls) + "]")


def block(begin: str, end: str, one: Callable[[str, dict[str, Any]], str], join: str = "\n") -> Writer:
    """All calls between ``begin`` and ``end``."""
    return lambda calls: begin + join.join(one(*call) for call in calls) + end


def params(head: str, param: str, tail: str) -> Callable[[str, dict[str, Any]], str]:
    """``head`` with NAME, for each argument ``param`` with KEY, VALUE and FLAG, and ``tail``."""

    def write(name: str, values: dict[str, Any]) -> str:
        parts = []
        for key, value in values.items():
            flag = "true" if isinstance(value, str) else "false"
            parts.append(param.replace("KEY", key).replace("FLAG", flag).replace("VALUE", bare(value)))
        return head.replace("NAME", name) + "".join(parts) + tail

    return write


def header(template: str) -> Callable[[str, dict[str, Any]], str]:
    """``template`` with NAME and ARGS."""
    return lambda name, values: template.replace("NAME", name).replace("ARGS", dumps(values))


def function(name: str, values: dict[str, Any]) -> str:
    return f"{name}(" + ", ".join(f"{key}={python(value)}" for key, value in values.items()) + ")"


def gemma(quote: str) -> Callable[[str, dict[str, Any]], str]:
    def value(item: Any) -> str:
        match item:
            case str():
                return f"{quote}{item}{quote}"
            case list():
                return "[" + ",".join(map(value, item)) + "]"
            case dict():
                return "{" + ",".join(f"{key}:{value(inner)}" for key, inner in item.items()) + "}"
        return dumps(item)

    return lambda name, values: f"call:{name}{value(values)}"


def _k3(name: str, values: dict[str, Any]) -> str:
    kinds = {str: "string", int: "number", float: "number", bool: "boolean", list: "array", dict: "object"}
    parts = [
        f'<|open|>argument key="{key}" type="{kinds.get(type(value), "null")}"<|sep|>{bare(value)}'
        "<|close|>argument<|sep|>"
        for key, value in values.items()
    ]
    return f'<|open|>call tool="{name}" index="1"<|sep|>' + "".join(parts) + "<|close|>call<|sep|>"


def _xml_escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _minimax(name: str, values: dict[str, Any]) -> str:
    parts = [f'<parameter name="{key}">{_xml_escaped(bare(value))}</parameter>\n' for key, value in values.items()]
    return f'<invoke name="{name}">\n' + "".join(parts) + "</invoke>"


def _m3(name: str, values: dict[str, Any]) -> str:
    space = "]<]minimax[>["

    def element(key: str, value: Any) -> str:
        match value:
            case dict():
                inner = "".join(element(*pair) for pair in value.items())
            case list():
                inner = "".join(element("item", item) for item in value)
            case _:
                inner = bare(value)
        return f"{space}<{key}>{inner}{space}</{key}>"

    return f'{space}<invoke name="{name}">' + "".join(element(*pair) for pair in values.items()) + f"{space}</invoke>"


def _kimi(calls: Calls) -> str:
    parts = [
        f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>{dumps(values)}<|tool_call_end|>"
        for number, (name, values) in enumerate(calls)
    ]
    return "<|tool_calls_section_begin|>" + "".join(parts) + "<|tool_calls_section_end|>"


_FUNCTION = params("<function=NAME>\n", "<parameter=KEY>\nVALUE\n</parameter>\n", "</function>")
_VERBATIM = params("<function=NAME>\n", "<parameter=KEY>VALUE</parameter>\n", "</function>")
_DSML = params(
    '<｜DSML｜invoke name="NAME">\n',
    '<｜DSML｜parameter name="KEY" string="FLAG">VALUE</｜DSML｜parameter>\n',
    "</｜DSML｜invoke>",
)
_PAIR = "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n"
_TIGHT = _PAIR.replace("\n", "")
_GEMMA = gemma('<|"|>')
_FUNCTIONGEMMA = gemma("<escape>")
_TAGGED = header("<function=NAME>ARGS</function>")

WRITERS: dict[str, Writer] = {
    "json": array("@"),
    "mistral": array("[TOOL_CALLS] @"),
    "qwen": each("<tool_call>\n@\n</tool_call>"),
    "qwen_xml": lambda calls: "\n".join(f"<tool_call>\n{_FUNCTION(*call)}\n</tool_call>" for call in calls),
    "mimo": lambda calls: "\n".join(f"<tool_call>\n{_VERBATIM(*call)}\n</tool_call>" for call in calls),
    "seed_oss": lambda calls: "\n".join(f"<seed:tool_call>\n{_FUNCTION(*call)}\n</seed:tool_call>" for call in calls),
    "pythonic": block("[", "]", function, ", "),
    "olmo3": block("<function_calls>", "</function_calls>", function),
    "lfm2": block("<|tool_call_start|>[", "]<|tool_call_end|>", function, ", "),
    "llama": each("@", objects(arguments="parameters"), "; "),
    "deepseek": block(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        header("<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGS\n```<｜tool▁call▁end｜>"),
    ),
    "deepseek31": block(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        header("<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGS<｜tool▁call▁end｜>"),
        "",
    ),
    "deepseek32": block("<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>", _DSML),
    "deepseek_v4": block("<｜DSML｜tool_calls>\n", "\n</｜DSML｜tool_calls>", _DSML),
    "gigachat35": block(
        "<｜GCML｜tool_calls>\n",
        "\n</｜GCML｜tool_calls>",
        lambda name, values: _DSML(name, values).replace("DSML", "GCML"),
    ),
    "gigachat3": each("<|function_call|>@", join=""),
    "glm45_moe": block("", "", params("<tool_call>NAME\n", _PAIR, "</tool_call>")),
    "glm47_moe": block("", "", params("<tool_call>NAME", _TIGHT, "</tool_call>")),
    "iquest": block("", "", params("<iquest_tool_call>NAME", _TIGHT, "</iquest_tool_call>")),
    "iquest_coder": block("", "", params("<iquestcoder_tool_call>NAME", _TIGHT, "</iquestcoder_tool_call>")),
    "telechat4": block("", "", params("<tool_call>NAME", _TIGHT.replace("arg_", "param_"), "</tool_call>")),
    "hy_v3": block("<tool_calls>", "</tool_calls>", params("<tool_call>NAME<tool_sep>", _TIGHT, "</tool_call>")),
    "step3": block(
        "<｜tool_calls_begin｜>\n",
        "\n<｜tool_calls_end｜>",
        params(
            '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="NAME">',
            '<steptml:parameter name="KEY">VALUE</steptml:parameter>',
            "</steptml:invoke><｜tool_call_end｜>",
        ),
    ),
    "sarashina": lambda calls: (
        "<|tool_calls|>" + python([{"name": name, "arguments": values} for name, values in calls])
    ),
    "kimik2": _kimi,
    "kimi_k3": block("<|open|>tools<|sep|>", "<|close|>tools<|sep|>", _k3, ""),
    "inkling": lambda calls: "".join(
        f"<|message_model|>{name}<|content_invoke_tool_json|>{dumps({'name': name, 'args': values})}<|end_message|>"
        for name, values in calls
    ),
    "minimax_m2": block("<minimax:tool_call>\n", "\n</minimax:tool_call>", _minimax),
    "minimax_m3": block("]<]minimax[>[<tool_call>\n", "\n]<]minimax[>[</tool_call>", _m3),
    "minimax_m1": lambda calls: "<tool_calls>\n" + each("@")(calls) + "\n</tool_calls>",
    "cohere": array("<|START_ACTION|>@<|END_ACTION|>", objects("tool_name", "parameters")),
    "longcat": each("<longcat_tool_call>\n@\n</longcat_tool_call>"),
    "pangu": array("[unused11]@[unused12]"),
    "rwkv": each("**Tool Call:**\n```json\n@\n```"),
    "qwen2_5_coder": each("<tools>\n@\n</tools>"),
    "jamba": array("<tool_calls>@</tool_calls>"),
    "hunyuan_a13b": array("<tool_calls>@</tool_calls>"),
    "apriel": array("<tool_calls>@</tool_calls>"),
    "nemotron_json": array("<TOOLCALL>@</TOOLCALL>"),
    "granite": array("<|tool_call|>@"),
    "granite_20b_fc": each("<function_call> @"),
    "internlm": each("<|action_start|><|plugin|>\n@<|action_end|>", objects(arguments="parameters")),
    "phi4mini": array("functools@"),
    "xlam": array("@"),
    "ernie45": each("<tool_call>\n@\n</tool_call>"),
    "functionary31": lambda calls: "".join(_TAGGED(*call) for call in calls),
    "functionary32": lambda calls: "".join(header(">>>NAME\nARGS")(*call) for call in calls),
    "gemma4": lambda calls: "".join("<|tool_call>" + _GEMMA(*call) + "<tool_call|>" for call in calls),
    "functiongemma": lambda calls: "".join(
        "<start_function_call>" + _FUNCTIONGEMMA(*call) + "<end_function_call>" for call in calls
    ),
    "apertus": array("<|tools_prefix|>@<|tools_suffix|>", lambda name, values: dumps({name: values})),
    "minicpm5": block("", "", params('<function name="NAME">', '<param name="KEY">VALUE</param>', "</function>")),
    "dots": block(
        "<dots_function_call>",
        "</dots_function_call>",
        params('<invoke name="NAME">', '<parameter name="KEY">VALUE</parameter>', "</invoke>"),
    ),
    "plamo3": block(
        "<|plamo:begin_tool_requests:plamo|>",
        "<|plamo:end_tool_requests:plamo|>",
        header(
            "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>NAME<|plamo:end_tool_name:plamo|>"
            "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>ARGS"
            "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
        ),
        "",
    ),
    "k2_horizon": block(
        "<ifm|tool_calls>\n",
        "\n</ifm|tool_calls>",
        params(
            "<ifm|tool_call>NAME\n",
            "<ifm|arg_key>KEY</ifm|arg_key>\n<ifm|arg_value>VALUE</ifm|arg_value>\n",
            "</ifm|tool_call>",
        ),
    ),
    "muse_glimmer": block(
        "<atem:function_calls>\n",
        "\n</atem:function_calls>",
        params(
            '<atem:invoke name="NAME">\n',
            '<atem:parameter name="KEY">VALUE</atem:parameter>\n',
            "</atem:invoke>",
        ),
    ),
    "solar_open2": block(
        "",
        "",
        params(
            "<|tool_call:start|>NAME\n",
            "<|tool_arg:start|>KEY<|tool_arg:value|>VALUE<|tool_arg:end|>\n",
            "<|tool_call:end|>",
        ),
    ),
    "step_audio_2": lambda calls: "\n".join(
        header("<tool_call>function\nNAME\nARGS\n</tool_call>")(*call) for call in calls
    ),
    "solar_open": lambda calls: "".join(
        f"<|tool_call:begin|>c{number}<|tool_call:name|>{name}<|tool_call:args|>{dumps(values)}<|tool_call:end|>"
        for number, (name, values) in enumerate(calls)
    ),
}
