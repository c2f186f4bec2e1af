"""Forced calls in each family's own form: an engine takes what the model would write, and nothing with wrong arguments;
what is written is read back by the family's parser (spec parsers 7)."""

import json

import pytest

from smg.constraints import formats
from smg.constraints.calls import _SHAPES, shape
from smg.constraints.elements import Elements
from smg.core.request import Tool
from smg.parsing.base import Start
from tests.constraints.oracle import allows
from tests.parsing.runs import Message, fold, whole_chain
from tests.parsing.runs import feed as feed_chain
from tests.parsing.writers import WRITERS

CLOSED = {"additionalProperties": False}
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    **CLOSED,
}
PUT = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "opts": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], **CLOSED},
    },
    "required": ["text"],
    **CLOSED,
}
PING = {"type": "object", "properties": {}, **CLOSED}
SCHEMAS = {"get_weather": WEATHER, "put": PUT, "ping": PING}
TOOLS = tuple(Tool(name, parameters=schema) for name, schema in SCHEMAS.items())
CALLS = [
    [("get_weather", {"city": 'Oslo, "N"', "days": 3})],
    [("put", {"text": "a < b"}), ("get_weather", {"city": "東京", "days": -1})],
    [("put", {"text": "two\nlines", "opts": {"a": True}})],
    [("ping", {})],
]


def has(*tokens):
    return lambda text: text in tokens


# A family, the tokens its vocabulary is told apart by, and how its models write calls.
ROWS = [(name, has(), WRITERS[name]) for name in (*_SHAPES, "mistral") if name != "inkling"]
ROWS += [
    (
        "mistral",
        has("[ARGS]"),
        lambda calls: "".join(f"[TOOL_CALLS]{name}[ARGS]{_json(values)}" for name, values in calls),
    ),
    (
        "mistral",
        has("[ARGS]", "[CALL_ID]"),
        lambda calls: "".join(
            f"[TOOL_CALLS]{name}[CALL_ID]abcdefg{n:02}[ARGS]{_json(values)}" for n, (name, values) in enumerate(calls)
        ),
    ),
    (
        "inkling",
        has(),
        lambda calls: "".join(
            f'<|content_invoke_tool_json|>{{"name":"{name}","args":{_json(values)}}}<|end_message|>'
            for name, values in calls
        ),
    ),
]


def _json(value):
    return json.dumps(value, ensure_ascii=False)


def output(family, tokens, *, forced=True, once=False):
    found = shape(family, tokens)
    assert found is not None
    return formats.constraint(found.piece(SCHEMAS, forced=forced, once=once))


def read(family, text):
    chain = whole_chain(family, Start(tools=TOOLS))
    events = [*feed_chain(chain, [text]), *chain.finish("stop")]
    reasoning, content, calls, finish = fold(events)
    return Message(reasoning, content, tuple(calls), finish)


@pytest.mark.parametrize(("family", "tokens", "write"), ROWS, ids=[row[0] for row in ROWS])
class TestEachFamily:
    def test_calls_are_taken_and_read_back(self, family, tokens, write):
        constraint = output(family, tokens)
        for calls in CALLS:
            text = write(calls)
            assert allows(constraint, text), text
            message = read(family, text)
            assert message.read() == calls
            assert (message.content, message.finish) == ("", "tool_calls")

    def test_what_is_no_call_of_these_tools_is_not_taken(self, family, tokens, write):
        constraint = output(family, tokens)
        for wrong in (
            "just text",
            write([("unknown", {"city": "x"})]),
            write([("get_weather", {"city": "Oslo"})]),
            write([("get_weather", {"city": "Oslo", "days": "soon"})]),
            write(CALLS[0])[:-1],
        ):
            assert not allows(constraint, wrong), wrong

    def test_one_call_only(self, family, tokens, write):
        constraint = output(family, tokens, once=True)
        assert allows(constraint, write(CALLS[0]))
        assert not allows(constraint, write(CALLS[1]))
        assert not allows(constraint, write(CALLS[0]) + " And more.")

    def test_calls_that_need_not_come(self, family, tokens, write):
        constraint = output(family, tokens, forced=False)
        assert allows(constraint, "I can do without.")
        assert allows(constraint, "Let me see. " + write(CALLS[0]))
        assert not allows(constraint, "Let me see. " + write([("get_weather", {"days": 1})]))


def test_no_shape_for_families_without_one():
    assert shape("json", has()) is None
    assert shape("passthrough", has()) is None


def test_names_that_need_escapes_have_no_shape():
    found = shape("qwen", has())
    assert found is not None
    assert found.fits(["get_weather", "a.b-c:d/e"])
    assert not found.fits(['say "hi"'])
    assert not found.fits([""])


class TestElements:
    elements = Elements("<p=KEY t=TYPE s=TEXT>", "</p>")

    def test_every_value_by_its_own_schema(self):
        schema = {
            "properties": {
                "a": {"enum": ["x", "y"]},
                "b": {"$ref": "#/$defs/n"},
                "c": {"type": "boolean"},
                "d": {"const": "k"},
                "e": {"type": ["string", "null"]},
            },
            "required": ["b", "a", "c", "d", "e"],
            "$defs": {"n": {"type": "number"}},
        }
        piece = self.elements.piece(schema)
        kinds = [(each["begin"], each["content"]["type"]) for each in piece["elements"]]
        assert kinds == [
            ("<p=a t=string s=true>", "or"),
            ("<p=b t=number s=false>", "regex"),
            ("<p=c t=boolean s=false>", "regex"),
            ("<p=d t=string s=true>", "const_string"),
            ("<p=e t=string s=true>", "any_text"),
        ]

    def test_definitions_go_with_the_values_that_need_them(self):
        schema = {
            "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/n"}}, "b": {"type": "object"}},
            "required": ["a", "b"],
            "$defs": {"n": {"type": "integer"}},
        }
        first, second = self.elements.piece(schema)["elements"]
        assert first["content"]["json_schema"]["$defs"] == schema["$defs"]
        assert second["content"]["json_schema"] == {"type": "object"}

    def test_a_value_that_is_the_whole_again_is_any_value_of_its_type(self):
        schema = {"properties": {"a": {"type": "array", "items": {"$ref": "#"}}}, "required": ["a"]}
        assert self.elements.piece(schema)["content"]["json_schema"] == {"type": "array"}

    @pytest.mark.parametrize("schema", [{}, {"properties": {}}, {"properties": {"a b": {}}}])
    def test_any_text_where_nothing_is_known(self, schema):
        assert self.elements.piece(schema) == formats.ANY_TEXT

    def test_nothing_where_there_is_nothing(self):
        assert self.elements.piece({"properties": {}, "additionalProperties": False}) is None
