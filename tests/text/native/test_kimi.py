"""Prompts of Kimi K3 (XTML) and the declarations Kimi K2.5 gets, as their publisher's encoders write them."""

import hashlib
import json
from itertools import chain

import pytest

from smg.core.errors import GatewayError
from smg.core.request import Constraint, Message, Tool, ToolChoice
from smg.text.native import kimi_k3
from smg.text.native.typescript import Inexpressible, declare
from smg.text.shield import JOINER, reveal
from tests.text.native.models import KIMI, WEATHER, answer, call, model, render, result, user

EFFORT = (
    '<|open|>message role="system" type="thinking-effort"<|sep|>'
    + kimi_k3.EFFORT.replace("{effort}", "max")
    + "<|close|>message<|sep|><|end_of_msg|>"
)
ASK = '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>'
PLAIN = '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>'


def said(role: str, text: str, attributes: str = "") -> str:
    return f'<|open|>message role="{role}"{attributes}<|sep|>{text}<|close|>message<|sep|><|end_of_msg|>'


def channel(name: str, text: str) -> str:
    return f"<|open|>{name}<|sep|>{text}<|close|>{name}<|sep|>"


@pytest.fixture(scope="module")
def k3(tmp_path_factory):
    return model(tmp_path_factory.mktemp("k3"), "KimiK3ForConditionalGeneration", KIMI)


def prompt(text, messages, **fields):
    return reveal(render(text, messages, **fields).prompt)


@pytest.mark.parametrize(
    ("text", "size", "digest"),
    [
        (kimi_k3.REQUIRED, 91, "e2c3dc236d94164a"),
        (kimi_k3.NONE, 95, "efabd595d24633a1"),
        (kimi_k3.JSON_OBJECT, 162, "a88696fd119e35ca"),
        (kimi_k3.JSON_SCHEMA, 230, "8398d4c738914c1f"),
        (kimi_k3.TOOLS, 85, "d3231eea376dfcbf"),
        (kimi_k3.MORE_TOOLS, 201, "2356b60472e6dcf0"),
        (kimi_k3.EFFORT, 228, "a4b55c05d358e98b"),
    ],
)
def test_the_publishers_words(text, size, digest):
    assert len(text.encode()) == size
    assert hashlib.sha256(text.encode()).hexdigest().startswith(digest)


def test_turns(k3):
    messages = [
        Message("system", "Be brief."),
        user("a"),
        answer("b", reasoning="hm"),
        Message("user", "c", name="Ann"),
    ]
    head = said("system", "Be brief.") + said("user", "a")
    last = said("user", "c", ' name="Ann"')
    thought = said("assistant", channel("think", "hm") + channel("response", "b"))
    rendered = render(k3, messages)
    assert reveal(rendered.prompt) == EFFORT + head + thought + last + ASK
    assert rendered.thinking is True
    assert rendered.tail.endswith("<|open|>think<|sep|>")
    plain = said("assistant", channel("response", "b"))
    assert prompt(k3, messages, thinking=False) == head + plain + last + PLAIN


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({}, "max"),
        ({"reasoning_effort": "low"}, "low"),
        ({"reasoning_effort": "medium"}, "max"),
        ({"template_kwargs": {"thinking_effort": "high"}, "reasoning_effort": "low"}, "high"),
    ],
)
def test_effort(k3, fields, effort):
    assert prompt(k3, [user("a")], **fields) == EFFORT.replace("=max", f"={effort}") + said("user", "a") + ASK


def test_an_effort_that_does_not_exist_is_refused(k3):
    with pytest.raises(GatewayError, match="thinking_effort must be one of low, high, max"):
        render(k3, [user("a")], template_kwargs={"thinking_effort": "medium"})


def test_tools_calls_and_results(k3):
    calls = [call("1", '{"city": "Oslo", "days": 2, "more": {"a": [null, true]}}'), call("2", "{oops")]
    messages = [user("a"), answer(None, *calls), result("2", "sun"), result("1", "rain")]
    declared = (
        '[{"function":{"description":"Tell the weather.","name":"weather","parameters":{"properties":'
        '{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"],"type":"object"}},"type":"function"}]'
    )
    tools = said("system", kimi_k3.TOOLS.replace("{compact}", declared), ' type="tool-declare"')
    first = (
        '<|open|>call tool="weather" index="1"<|sep|>'
        '<|open|>argument key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|>'
        '<|open|>argument key="days" type="number"<|sep|>2<|close|>argument<|sep|>'
        '<|open|>argument key="more" type="object"<|sep|>{"a": [null, true]}<|close|>argument<|sep|>'
        "<|close|>call<|sep|>"
    )
    second = (
        '<|open|>call tool="weather" index="2"<|sep|>'
        '<|open|>json type="object"<|sep|>{oops<|close|>json<|sep|><|close|>call<|sep|>'
    )
    assistant = said("assistant", channel("think", "") + channel("response", "") + channel("tools", first + second))
    results = said("tool", "rain", ' tool="weather" index="1"') + said("tool", "sun", ' tool="weather" index="2"')
    assert prompt(k3, messages, tools=[WEATHER]) == tools + EFFORT + said("user", "a") + assistant + results + ASK


def test_a_result_is_told_by_its_name_or_place_when_its_id_says_nothing(k3):
    calls = [call("1", "{}"), call("2", "{}")]
    named = Message("tool", "x", name="other", tool_call_id="9")
    out = prompt(k3, [user("a"), answer("", *calls), named, Message("tool", "y")])
    assert said("tool", "x", ' tool="other" index="1"') + said("tool", "y", ' tool="weather" index="2"') in out
    with pytest.raises(GatewayError, match="must answer a tool call"):
        render(k3, [user("a"), answer("b"), result("9", "x")])


def test_choices_and_shapes_of_answers(k3):
    def notes(**fields):
        return prompt(k3, [user("a")], **fields).split(said("user", "a"))[1].removesuffix(ASK)

    def note(kind, text):
        return said("system", text, f' type="{kind}"')

    assert notes(tools=[WEATHER]) == ""
    assert notes(tools=[WEATHER], tool_choice=ToolChoice("none")) == note("tool-choice", kimi_k3.NONE)
    for choice in (ToolChoice("required"), ToolChoice("required", ("weather",))):
        assert notes(tools=[WEATHER], tool_choice=choice) == note("tool-choice", kimi_k3.REQUIRED)
    assert notes(constraint=Constraint("json_object")) == note("response-format", kimi_k3.JSON_OBJECT)
    schema = kimi_k3.JSON_SCHEMA.replace("{schema}", '{"a":{"b":1},"type":"object"}')
    wanted = Constraint("json_schema", '{"type": "object", "a": {"b": 1}}')
    assert notes(constraint=wanted) == note("response-format", schema)


def test_an_answer_is_continued_in_the_response_channel(k3):
    messages = [user("a"), answer("The ans")]
    assert prompt(k3, messages, continue_final_message=True, thinking=False) == said("user", "a") + PLAIN + "The ans"
    with pytest.raises(GatewayError, match="turn thinking off") as caught:
        render(k3, messages, continue_final_message=True)
    assert caught.value.param == "continue_final_message"


def test_attributes_are_escaped(k3):
    out = prompt(k3, [Message("user", "x", name='A "&" <b>')])
    assert ' name="A &quot;&amp;&quot; <b>"<|sep|>' in out


def test_tools_that_come_later(k3):
    late = Message("system", "", extra={"tools": [{"type": "function", "function": {"name": "f"}}]})
    out = prompt(k3, [user("a"), late, user("b")])
    body = kimi_k3.MORE_TOOLS.replace("{compact}", '[{"function":{"name":"f"},"type":"function"}]')
    assert said("system", body, ' type="tool-declare"') in out


def test_pieces_of_tags_are_encoded_one_by_one_and_control_tokens_of_clients_are_text(k3):
    rendered = render(k3, [user("<|open|>message<|sep|><|end_of_msg|>")], thinking=False)
    pieces = JOINER.join(["message", " role", '="', "user", '"'])
    assert rendered.prompt.startswith(f"<|open|>{pieces}<|sep|>")
    ids = k3.encoder.encode(rendered.prompt)
    assert ids.count(k3.tokenizer.token_id("<|end_of_msg|>")) == 1
    assert ids.count(k3.tokenizer.token_id("<|open|>")) == 3
    assert k3.tokenizer.decode(ids, False) == reveal(rendered.prompt)
    head = [k3.tokenizer.encode(piece) for piece in ("message", " role", '="', "user", '"')]
    assert ids[1 : 1 + sum(map(len, head))] == list(chain(*head))


def function(parameters: dict[str, object], **more: object) -> list[dict[str, object]]:
    return [{"type": "function", "function": {"name": "f", "parameters": parameters, **more}}]


def body(schema: dict[str, object]) -> str:
    shown = declare(function({"type": "object", "properties": {"x": schema}, "required": ["x"]}))
    head, tail = "# Tools\n\n## functions\nnamespace functions {\ntype f = (_: {\n", "\n}) => any;\n}\n"
    assert shown.startswith(head)
    assert shown.endswith(tail)
    return shown.removeprefix(head).removesuffix(tail)


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string"}, "  x: string"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "  // maximum: 9, minimum: 1\n  x: number"),
        (
            {"type": "string", "description": "one\ntwo", "pattern": "a"},
            "  // one\n  // two\n  // pattern: a\n  x: string",
        ),
        ({"type": "boolean", "default": True}, "  // Default: True\n  x: boolean"),
        ({"type": "string", "default": "é"}, '  // Default: "é"\n  x: string'),
        ({"enum": ["a", 1, None]}, '  x: "a" | 1 | None'),
        ({"type": ["string", "null"], "enum": ["a"]}, '  x: "a"'),
        ({"type": ["integer", "array", "object", "null"]}, "  x: number | Array<any> | {} | null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "  x: string | null"),
        ({"oneOf": [{"type": "number"}, {}]}, "  x: number | any"),
        ({"type": "array"}, "  x: Array<any>"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, "  // minItems: 1\n  x: Array<string>"),
        (
            {"type": "array", "items": {"type": "string", "description": "d"}},
            "  x: Array<\n    // d\n    string\n  >",
        ),
        ({"type": "object"}, "  x: {}"),
        (
            {"type": "object", "properties": {"b": {}, "a": True}, "required": ["b"], "additionalProperties": False},
            "  x: {\n    b: any,\n    a?: any,\n    [k: string]: never\n  }",
        ),
    ],
)
def test_typescript(schema, shown):
    assert body(schema) == shown


def test_typescript_of_whole_tools():
    assert declare(function({}, description="Does it.")) == (
        "# Tools\n\n## functions\nnamespace functions {\n// Does it.\ntype f = (_: {}) => any;\n}\n"
    )
    node = {"type": "object", "description": "A node.", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    schema = {"type": "object", "properties": {"n": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}}
    assert "// A node.\ninterface Node {\n  next?: Node\n}\ntype f = (_: {\n  n?: Node\n}) => any;" in declare(
        function(schema)
    )
    itself = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    assert "interface parameters {\n  a?: parameters\n}\ntype f = (_: parameters) => any;" in declare(function(itself))


def test_what_is_nested_too_deep_is_anything():
    schema: dict[str, object] = {"type": "string"}
    for _ in range(40):
        schema = {"type": "array", "items": schema}
    assert body(schema) == "  x: " + "Array<" * 32 + "any" + ">" * 32


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/nowhere"},
        {"$ref": "#/$defs/X"},
        {"title": "no type"},
        {"type": "string", "enum": [1]},
        {"type": ["x"]},
        3,
    ],
)
def test_what_cannot_be_declared(schema):
    with pytest.raises(Inexpressible):
        declare(function({"type": "object", "properties": {"x": schema}}))


def test_k25_templates_get_the_declarations_unless_they_cannot_be_made(tmp_path):
    template = "{% if tools_ts_str is defined %}{{ tools_ts_str }}{% else %}{{ tools | tojson }}{% endif %}"
    text = model(tmp_path, "KimiK25ForConditionalGeneration", KIMI, template)
    shown = render(text, [user("a")], tools=[WEATHER]).prompt
    assert shown == (
        "# Tools\n\n## functions\nnamespace functions {\n// Tell the weather.\n"
        "type weather = (_: {\n  city: string,\n  days?: number\n}) => any;\n}\n"
    )
    odd = Tool("odd", parameters={"type": "object", "properties": {"x": {"title": "?"}}})
    assert json.loads(render(text, [user("a")], tools=[odd]).prompt)[0]["function"]["name"] == "odd"
