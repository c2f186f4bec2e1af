"""The rows of the tool test table (spec parsers 8) as data: format, text, and the message it is."""

import json
from typing import Any

import msgspec

from smg.core.request import Tool

OSLO = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
PING = '{"name": "ping", "arguments": {}}'
CITY = ("get_weather", {"city": "Oslo"})
NO_ARGS = ("ping", {})


class Row(msgspec.Struct, frozen=True):
    """``text`` may be given in chunks. ``calls`` are (name, arguments as an object); ``content`` None: the text itself.
    ``cut``: which calls end incomplete. ``tools`` None: those of the field cases."""

    number: int
    family: str
    text: str | list[str]
    calls: list[tuple[str, Any]] = []
    content: str | None = ""
    cut: tuple[int, ...] = ()
    tools: tuple[Tool, ...] | None = None

    @property
    def chunks(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text


def text_only(number: int, family: str, text: str | list[str]) -> Row:
    return Row(number, family, text, [], None)


def qwen_xml(*pairs: tuple[str, str]) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs)
    return f"<tool_call>\n<function=run>\n{inner}</function>\n</tool_call>"


def k3(arguments: str, name: str = "run", attributes: str = ' index="1"') -> str:
    call = f'<|open|>call tool="{name}"{attributes}<|sep|>{arguments}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def dsml(*invokes: str, block: str = "function_calls") -> str:
    return f"<｜DSML｜{block}>\n" + "\n".join(invokes) + f"\n</｜DSML｜{block}>"


def invoke(body: str, name: str = "run") -> str:
    return f'<｜DSML｜invoke name="{name}">{body}</｜DSML｜invoke>'


def deepseek(name: str, arguments: str, kind: str = "function") -> str:
    return f"<｜tool▁call▁begin｜>{kind}<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>"


def kimi(ident: str, arguments: str) -> str:
    call = f"<|tool_call_begin|>{ident}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
    return f"<|tool_calls_section_begin|>{call}<|tool_calls_section_end|>"


def minimax(*values: tuple[str, str], name: str = "run") -> str:
    inner = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in values)
    return f'<minimax:tool_call>\n<invoke name="{name}">\n{inner}</invoke>\n</minimax:tool_call>'


_NUMBERS = '{"i": 9007199254740991, "big": 123456789012345678901, "f": 1.5e-3, "n": null, "b": true, "z": "\\u0000\\n"}'
_DEEP = '{"a": ' * 12 + "1" + "}" * 12
_LONG = "x" * 10_000
_TYPES = (Tool("run", parameters={"properties": {"s": {"type": "string"}, "i": {"type": "integer"}}}),)

JSON_ROWS = [
    *(text_only(2, "json", OSLO[:at]) for at in range(1, OSLO.index('{"city') + 1)),
    # Arguments are passed on while they arrive, so from there on a cut call is an incomplete call.
    Row(2, "json", OSLO[:-5], [("get_weather", '{"city": "Os')], "", (0,)),
    text_only(3, "json", '{"arguments": {"city": "Oslo"}}'),
    text_only(3, "json", '{"name": 5, "arguments": {}}'),
    Row(4, "json", f"before {OSLO} after", [CITY], "before  after"),
    Row(5, "json", f"a {OSLO} b {PING} c", [CITY, NO_ARGS], "a  b  c"),
    Row(6, "json", f"Two: [{OSLO}, {PING}]", [CITY, NO_ARGS], "Two: "),
    Row(7, "json", '{"name": "ping", "arguments": {"a": 1, "a": 2}}', [("ping", {"a": 2})]),
    Row(
        8,
        "json",
        f'{{"name": "ping", "arguments": {_NUMBERS}}}',
        [("ping", {"i": 2**53 - 1, "big": 123456789012345678901, "f": 0.0015, "n": None, "b": True, "z": "\0\n"})],
    ),
    Row(9, "json", f'{{"name": "run", "arguments": {{"cmd": "{_LONG}"}}}}', [("run", {"cmd": _LONG})]),
    Row(9, "json", f'{{"name": "run", "arguments": {_DEEP}}}', [("run", json.loads(_DEEP))]),
    text_only(10, "json", "{'name': 'ping', 'arguments': {}}"),
    # A comma too many is mended: by the time it shows, the call has been announced.
    Row(10, "json", '{"name": "run", "arguments": {"cmd": "a",},}', [("run", {"cmd": "a"})]),
    text_only(10, "json", '{"name": "run",, "arguments": {}}'),
    Row(11, "json", f"<tool_call>[TOOL_CALLS]{PING}</tool_call>", [NO_ARGS], "<tool_call>[TOOL_CALLS]</tool_call>"),
    Row(
        12,
        "json",
        ["{", '"', "name", '"', ': "', "pi", 'ng"', ', "arguments": {', '"', 'a": 1}}'],
        [("ping", {"a": 1})],
    ),
    Row(13, "json", [f"[{PING}", "]", " and [x]"], [NO_ARGS], " and [x]"),
    Row(
        14,
        "json",
        '{"name": "run", "arguments": {"cmd": "http://h/p?q=1&r=[2]#{3}"}}',
        [("run", {"cmd": "http://h/p?q=1&r=[2]#{3}"})],
    ),
    Row(14, "json", '{"name": "run", "arguments": {"cmd": "北京 😀 👨‍👩‍👧"}}', [("run", {"cmd": "北京 😀 👨‍👩‍👧"})]),
]

MISTRAL_ROWS = [
    *(text_only(15, "mistral", "[TOOL_CALLS] " + tail) for tail in ("", "{", "[", "[{]", "[5]", '[{"name": 1}]')),
    Row(
        16,
        "mistral",
        '[TOOL_CALLS] [{"name": "run", "arguments": {"cmd": "a[0] ]} {"}}]',
        [("run", {"cmd": "a[0] ]} {"})],
    ),
    Row(16, "mistral", '[TOOL_CALLS] [\n  {\n    "name": "ping",\n    "arguments": {}\n  }\n]', [NO_ARGS]),
    text_only(17, "mistral", f"[{PING}]"),
    Row(18, "mistral", [f"[TOOL_CALLS] [{PING}", "]", " done [1]"], [NO_ARGS], " done [1]"),
]

QWEN_ROWS = [
    Row(
        19,
        "qwen",
        f"a <tool_call>\n{OSLO}\n</tool_call> b <tool_call>\n{PING}\n</tool_call> c",
        [CITY, NO_ARGS],
        "a  b  c",
    ),
    Row(20, "qwen", f"<tool_call>\n{PING}\n", [NO_ARGS]),
    text_only(20, "qwen", f"{PING}\n</tool_call>"),
    Row(
        21,
        "qwen",
        f"<tool_call>\n{{bad}}\n</tool_call>\n<tool_call>\n{PING}\n</tool_call>",
        [NO_ARGS],
        "<tool_call>\n{bad}\n</tool_call>\n",
    ),
    Row(23, "qwen", f"<tool_call>\n{PING}\n</tool_call><tool_call>\n{OSLO}\n</tool_call>", [NO_ARGS, CITY]),
    Row(23, "qwen", f"<tool_call>{PING}</tool_call>\n" * 3, [NO_ARGS] * 3),
    Row(
        24,
        "qwen",
        '<tool_call>\n{"name": "run", "arguments": {"cmd": "[f()] <![CDATA[x]]>"}}\n</tool_call>',
        [("run", {"cmd": "[f()] <![CDATA[x]]>"})],
    ),
    Row(
        24,
        "qwen",
        '<tool_call>{"name": "run", "arguments": "{\\"cmd\\": \\"a\\\\n\\"}"}</tool_call>',
        [("run", {"cmd": "a\n"})],
    ),
    text_only(19, "qwen", "<scratch_pad>\nthink\n</scratch_pad>"),
]

QWEN_XML_ROWS = [
    Row(
        25,
        "qwen_xml",
        "<tool_call><function=run><parameter=cmd></parameter></function></tool_call>",
        [("run", {"cmd": ""})],
    ),
    Row(25, "qwen_xml", qwen_xml(("cmd", " \n ")), [("run", {"cmd": ""})]),
    Row(26, "qwen_xml", qwen_xml(("cmd", "&amp; &#60;")), [("run", {"cmd": "&amp; &#60;"})]),
    Row(
        27,
        "qwen_xml",
        qwen_xml(("a", "True"), ("b", "False"), ("c", "None"), ("d", "true"), ("e", "null")),
        [("run", {"a": True, "b": False, "c": None, "d": True, "e": None})],
    ),
    Row(
        28,
        "qwen_xml",
        qwen_xml(("x", '{"k": [1, 2]}'), ("cmd", "a\n\n  b"), ("h", "<b>x</b>")),
        [("run", {"x": {"k": [1, 2]}, "cmd": "a\n\n  b", "h": "<b>x</b>"})],
    ),
    Row(28, "qwen_xml", qwen_xml(("cmd", "y" * 100_000)), [("run", {"cmd": "y" * 100_000})]),
    Row(
        28,
        "qwen_xml",
        qwen_xml(*((f"参数{n}", f"v{n}") for n in range(20))),
        [("run", {f"参数{n}": f"v{n}" for n in range(20)})],
    ),
    Row(
        29,
        "qwen_xml",
        "<tool_call><function=run><parameter=cmd>a<parameter=b>c</function></tool_call>",
        [("run", {"cmd": "a", "b": "c"})],
    ),
    Row(30, "qwen_xml", "<tool_call><function=run><parameter=cmd>a</parameter></tool_call>", [("run", {"cmd": "a"})]),
    Row(30, "qwen_xml", "<function=run><parameter=cmd>a</parameter>\n", [("run", {"cmd": "a"})]),
    Row(31, "qwen_xml", "<tool_call><tool_call><function=ping></function></tool_call>", [NO_ARGS]),
    text_only(31, "qwen_xml", "<tool_call><function></function></tool_call>"),
]

PYTHON_ROWS = [
    Row(
        34,
        "pythonic",
        "[search(query=\"a\", filters={'k': [1, {'x': (2, 3)}]}, tags=['[', ')'])]",
        [("search", {"query": "a", "filters": {"k": [1, {"x": [2, 3]}]}, "tags": ["[", ")"]})],
    ),
    Row(
        34,
        "pythonic",
        "[run(cmd='it\\'s \"x\"'), run(cmd=\"it's\" ' two')]",
        [("run", {"cmd": 'it\'s "x"'}), ("run", {"cmd": "it's two"})],
    ),
    Row(
        34,
        "pythonic",
        "[ping(a=True, b=None, c=false, d=-1.5, e=123456789012345678901, f=Oslo)]",
        [("ping", {"a": True, "b": None, "c": False, "d": -1.5, "e": 123456789012345678901, "f": "Oslo"})],
    ),
    Row(34, "pythonic", "[run(cmd='''a\n'b' \"\"\" ''')]", [("run", {"cmd": 'a\n\'b\' """ '})]),
    *(
        text_only(35, "pythonic", text)
        for text in (
            "[ping(arg=value",
            "[ping(=value)]",
            "[ping(1)]",
            "[ping(a={1, 2})]",
            "[ping(a=f'x')]",
            "[ping(a=g())]",
        )
    ),
    *(text_only(36, "pythonic", text) for text in ("[ping]", "[a, b](c)", PING, "[1, 2, 3]", "x[i](y)")),
    Row(37, "pythonic", "Let me see [get_weather(city='Oslo')]", [CITY], "Let me see "),
    Row(37, "pythonic", ["[get_weather(city=", "'Oslo')]"], [CITY]),
    Row(37, "pythonic", "<|python_start|>[ping()]<|python_end|>", [NO_ARGS]),
]

LLAMA_ROWS = [
    Row(38, "llama", f"<|python_tag|>{OSLO}", [CITY]),
    Row(38, "llama", f"Sure. <|python_tag|>{OSLO}", [CITY], "Sure. "),
    Row(
        38,
        "llama",
        f'<|python_tag|>{{"name": "run", "parameters": {{"cmd": "a;b"}}}};{PING}',
        [("run", {"cmd": "a;b"}), NO_ARGS],
    ),
    Row(39, "llama", OSLO, [CITY]),
    # Told from an answer by its name and its form, not by what follows: that would hold it all.
    Row(39, "llama", f"{OSLO} and prose", [CITY], " and prose"),
    text_only(39, "llama", f"prose and {OSLO}"),
    text_only(40, "llama", "<|python_tag|>{bad"),
    Row(
        41, "llama", ["<|py", "thon", "_tag", "|>" + OSLO + '; {"na', 'me": "ping", "parameters": {}}'], [CITY, NO_ARGS]
    ),
    Row(41, "llama", f"<|python_tag|>{OSLO}<|python_tag|>{PING}", [CITY, NO_ARGS]),
    Row(41, "llama", '<|python_tag|>brave_search.call(query="x y")', [("brave_search", {"query": "x y"})]),
    Row(41, "llama", '<function=run>{"cmd": "a"}</function>', [("run", {"cmd": "a"})]),
]

DEEPSEEK_ROWS = [
    Row(
        42,
        "deepseek",
        f"<｜tool▁calls▁begin｜>{deepseek('run', '{bad}')}\n{deepseek('ping', '{}')}<｜tool▁calls▁end｜>",
        [NO_ARGS],
        deepseek("run", "{bad}"),
    ),
    text_only(43, "deepseek", f"<｜tool▁calls▁begin｜>{deepseek('ping', '{}', 'notfunction')}<｜tool▁calls▁end｜>"),
    Row(44, "deepseek31", ["text", "<｜tool▁calls▁end｜>", "<｜end▁of▁sentence｜>"], [], "text"),
    Row(
        45,
        "deepseek31",
        [
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>run<｜tool▁sep｜>",
            '{"cmd": "a"}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>',
        ],
        [("run", {"cmd": "a"})],
    ),
    Row(46, "deepseek32", dsml(invoke('{"cmd": "a"}')), [("run", {"cmd": "a"})]),
    Row(
        46,
        "deepseek32",
        dsml(
            invoke(
                '<｜DSML｜parameter name="cmd" string="true">5</｜DSML｜parameter>\n'
                '<｜DSML｜parameter name="n" string="false">5</｜DSML｜parameter>\n'
                '<｜DSML｜parameter name="o" string="false">{"k": [1]}</｜DSML｜parameter>\n'
            )
        ),
        [("run", {"cmd": "5", "n": 5, "o": {"k": [1]}})],
    ),
    Row(47, "deepseek32", dsml(invoke("junk"), invoke("\n", "ping")), [NO_ARGS], invoke("junk")),
    Row(48, "deepseek32", dsml(invoke("", ""), invoke("", "ping")), [NO_ARGS], invoke("", "")),
    text_only(49, "deepseek_v4", dsml(invoke("", "ping"))),
    text_only(49, "deepseek32", dsml(invoke("", "ping"), block="tool_calls")),
    Row(49, "deepseek_v4", dsml(invoke("", "ping"), block="toolcalls"), [NO_ARGS]),
    Row(
        49,
        "deepseek_v4",
        '<｜DSML｜ calls><｜DSML｜ invoke name="run"><｜DSML｜ parameter name="cmd" string="true">a'
        "</｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>",
        [("run", {"cmd": "a"})],
    ),
    Row(
        50,
        "deepseek32",
        '<｜DSML｜function_calls><｜DSML｜invoke name="run">'
        '<｜DSML｜parameter name="cmd" string="true">ab<｜end▁of▁sentence｜>',
        [("run", '{"cmd": "ab')],
        "",
        (0,),
    ),
]

GLM_ROWS = [
    Row(
        51,
        family,
        f"<tool_call>run{line}<arg_key>a</arg_key>{line}<arg_value>None</arg_value>{line}"
        f"<arg_key>b</arg_key>{line}<arg_value>True</arg_value>{line}<arg_key>cmd</arg_key>{line}"
        f'<arg_value>None</arg_value>{line}<arg_key>o</arg_key>{line}<arg_value>{{"k": [1]}}</arg_value>{line}'
        f"</tool_call>\n<tool_call>ping{line}</tool_call>",
        [("run", {"a": None, "b": True, "cmd": "None", "o": {"k": [1]}}), NO_ARGS],
    )
    for family, line in (("glm45_moe", "\n"), ("glm47_moe", ""), ("glm45_moe", "\\n"))
]

KIMI_ROWS = [
    Row(53, "kimik2", kimi(" functions.run:0 ", ' {\n  "cmd": "a"\n} '), [("run", {"cmd": "a"})]),
    Row(
        53,
        "kimik2",
        "".join(kimi(f"functions.run:{n}", f'{{"cmd": "{n}"}}') for n in range(3)),
        [("run", {"cmd": str(n)}) for n in range(3)],
    ),
    Row(54, "kimik2", kimi("api.tools.search:0", "{}"), [("api.tools.search", {})]),
    Row(54, "kimik2", kimi("functions.get-the-weather:0", "{}"), [("get-the-weather", {})]),
    Row(54, "kimik2", "<|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{}<|tool_call_end|>", [NO_ARGS]),
    Row(54, "kimik2", kimi("functions.ping:0", "{}").replace("tool_calls_section", "tool_call_section"), [NO_ARGS]),
    Row(
        55,
        "kimi_k3",
        k3('<|open|>argument key="a&quot;&amp;lt;" type="string"<|sep|>v<|close|>argument<|sep|>', "f<&quot;"),
        [('f<"', {'a"&lt;': "v"})],
    ),
    Row(55, "kimi_k3", k3("", "ping", ""), [NO_ARGS]),
    Row(55, "kimi_k3", k3("", "ping", ' index="3"') * 2, [NO_ARGS] * 2),
    Row(
        56,
        "kimi_k3",
        k3('<|open|>argument key="n" type="number"<|sep|>1,5<|close|>argument<|sep|>'),
        [("run", {"n": "1,5"})],
    ),
    Row(57, "kimi_k3", "answer<|close|>response<|sep|>", [], "answer"),
    Row(57, "kimi_k3", k3("", "ping").replace("tools<|sep|>", " tools <|sep|>"), [NO_ARGS]),
]

INKLING_ROWS = [
    Row(
        58,
        "inkling",
        '<|content_invoke_tool_json|>{"name": "run", "args": {"cmd": "{}}"}}<|end_message|>',
        [("run", {"cmd": "{}}"})],
    ),
    Row(58, "inkling", 'a<|content_invoke_tool_json|>{"name": "nope", "args": {}}<|end_message|>b', [], "ab"),
    Row(
        58,
        "inkling",
        '<|content_invoke_tool_json|>{"name": "ping"}<|end_message|>'
        "<|content_invoke_tool_json|>{bad}<|end_message|>"
        '<|content_invoke_tool_json|>{"name": "run", "args": {"cmd": "a"}}<|end_message|>',
        [NO_ARGS, ("run", {"cmd": "a"})],
        "<|content_invoke_tool_json|>{bad}",
    ),
]

MINIMAX_ROWS = [
    Row(
        59,
        "minimax_m2",
        minimax(("s", "3"), ("i", "3"), ("u", "3")),
        [("run", {"s": "3", "i": 3, "u": 3})],
        tools=_TYPES,
    ),
    Row(
        60,
        "minimax_m2",
        "<minimax:tool_call><invoke name=\"ping\"></invoke>\n<invoke name='run'><parameter name=cmd>a"
        "</parameter></invoke></minimax:tool_call>",
        [NO_ARGS, ("run", {"cmd": "a"})],
    ),
    Row(60, "minimax_m2", minimax(name="unknown_tool"), [("unknown_tool", {})]),
    Row(
        61,
        "minimax_m2",
        minimax(("o", "{not json}"), ("cmd", "&amp;quot; &lt;")),
        [("run", {"o": "{not json}", "cmd": "&quot; <"})],
    ),
    text_only(61, "minimax_m2", "<minimax:tool_call><invoke></invoke></minimax:tool_call>"),
    text_only(61, "minimax_m2", '<invoke name="ping"></invoke>'),
]


def step3(inner: str, name: str = "run") -> str:
    call = f'function<｜tool_sep｜><steptml:invoke name="{name}">{inner}</steptml:invoke>'
    return f"<｜tool_calls_begin｜>\n<｜tool_call_begin｜>{call}<｜tool_call_end｜>\n<｜tool_calls_end｜>"


OTHER_ROWS = [
    Row(
        62,
        "step3",
        step3('<steptml:parameter name="cmd">a < b && b > c</steptml:parameter>') + " and on",
        [("run", {"cmd": "a < b && b > c"})],
        " and on",
    ),
    Row(62, "step3", step3("", ""), [], step3("", "")),
    Row(62, "step3", step3('<steptml:parameter name="o">{"a": [1]}</steptml:parameter>'), [("run", {"o": {"a": [1]}})]),
    Row(
        63,
        "sarashina",
        "<|tool_calls|>[{'name': 'run', 'arguments': {'cmd': 'it\\'s ]'}}]",
        [("run", {"cmd": "it's ]"})],
    ),
    Row(63, "sarashina", ["[", "{'name': 'ping', 'arguments': {}}]"], [NO_ARGS]),
    text_only(63, "sarashina", "[1, 2, 3]"),
    Row(63, "sarashina", "<|tool_calls|>oops", [], "oops"),
    Row(64, "cohere", '<|START_ACTION|>{"tool_name": "ping"}<|END_ACTION|>', [NO_ARGS]),
    Row(64, "cohere", f"<|START_ACTION|>[{PING}, {OSLO}]<|END_ACTION|>", [NO_ARGS, CITY]),
    Row(64, "cohere", f"<|START_ACTION|>[{PING}]<|END_ACTION|><|START_ACTION|>[{OSLO}]<|END_ACTION|>", [NO_ARGS, CITY]),
    Row(
        64,
        "cohere",
        '<|START_ACTION|>[{"tool_name": "run", "parameters": {"cmd": "<|END_ACTION|>"}}]<|END_ACTION|>',
        [("run", {"cmd": "<|END_ACTION|>"})],
    ),
    text_only(64, "cohere", '<|START_ACTION|>[{"tool_name": "run<|END_ACTION|>'),
    Row(64, "cohere", "<|START_RESPONSE|>The <co>sky</co: 0:[1,2]> is blue.<|END_RESPONSE|>", [], "The sky is blue."),
]

ROWS = [
    *JSON_ROWS, *MISTRAL_ROWS, *QWEN_ROWS, *QWEN_XML_ROWS, *PYTHON_ROWS, *LLAMA_ROWS, *DEEPSEEK_ROWS, *GLM_ROWS,
    *KIMI_ROWS, *INKLING_ROWS, *MINIMAX_ROWS, *OTHER_ROWS,
]  # fmt: skip
