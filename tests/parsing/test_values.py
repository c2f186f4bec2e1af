"""Types of values that a format writes as bare text, and Python literals."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.core.request import Tool
from smg.parsing.engine import python_text
from smg.parsing.engine.cursor import Malformed
from smg.parsing.engine.values import coerce, kinds_of


def value(text, schema, **root):
    tool = Tool("f", parameters={"type": "object", "properties": {"k": schema}, **root})
    return coerce(text, kinds_of(tool, "k"))


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ({"type": "string"}, "3", '"3"'),
        ({"type": "string"}, '"abc"', '"\\"abc\\""'),
        ({"type": "string", "enum": ["abc"]}, '"abc"', '"abc"'),
        ({"enum": ["a", 1]}, "1", "1"),
        ({"type": "varchar"}, "1", '"1"'),
        ({"type": "integer"}, " 9007199254740993 ", "9007199254740993"),
        ({"type": "integer"}, "three", '"three"'),
        ({"type": "integer"}, "01", '"01"'),
        ({"type": "int32"}, "5", "5"),
        ({"type": "number"}, "1.50", "1.50"),
        ({"type": "number"}, "1e5", "1e5"),
        ({"type": "float"}, "NaN", '"NaN"'),
        ({"type": "boolean"}, "True", "true"),
        ({"type": "bool"}, "0", "false"),
        ({"type": "boolean"}, "yes", '"yes"'),
        ({"type": "object"}, '{"a": 1.0}', '{"a": 1.0}'),
        ({"type": "object"}, "{'a': None}", '{"a": null}'),
        ({"type": "dict"}, "{oops", '"{oops"'),
        ({"type": "array"}, "['x', 2]", '["x", 2]'),
        ({"type": "array"}, '{"a": 1}', '"{\\"a\\": 1}"'),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": ["string", "null"]}, "x", '"x"'),
        ({"type": "string", "nullable": True}, "None", "null"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "7", "7"),
        ({"oneOf": [{"type": "array"}, {"$ref": "#/$defs/n"}]}, "7.5", "7.5"),
        ({"$ref": "#/$defs/self"}, "7", "7"),
        ({"$ref": "#/$defs/a%20b~1c"}, "7", '"7"'),
        ({}, "3", "3"),
        ({}, "true", "true"),
        ({}, "None", "null"),
        ({}, '{"a": 1}', '{"a": 1}'),
        ({}, '"quoted"', '"\\"quoted\\""'),
        ({}, "Infinity", '"Infinity"'),
        ({}, "0x10", '"0x10"'),
        ({}, " text ", '" text "'),
    ],
)
def test_a_value_has_the_declared_type(schema, text, expected):
    defs = {"n": {"type": "number"}, "a b/c": {"type": "string"}, "self": {"$ref": "#/$defs/self"}}
    assert value(text, schema, **{"$defs": defs}) == expected


def test_what_additional_properties_declare_counts_for_other_keys():
    tool = Tool("f", parameters={"properties": {}, "additionalProperties": {"type": "string"}})
    assert coerce("3", kinds_of(tool, "other")) == '"3"'


@pytest.mark.parametrize("schema", [None, 5, [], {"type": 7}, {"anyOf": 3}, {"$ref": "x"}, {"$ref": "#/a/b"}])
def test_a_strange_schema_declares_nothing(schema):
    assert value("3", schema) == "3"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'it\\'s'", '"it\'s"'),
        ("\"a\" 'b'", '"ab"'),
        ("'''a\n'b' '''", "\"a\\n'b' \""),
        ("'\\x41\\u00e9\\101\\n\\q'", '"AéA\\n\\\\q"'),
        ("'\\ud83d\\ude00\\ud83d'", '"😀\ufffd"'),
        ("(1, 2)", "[1, 2]"),
        ("(1)", "1"),
        ("()", "[]"),
        ("{'a': 1, 2: 'b'}", '{"a": 1, "2": "b"}'),
        ("[True, False, None, true, false, null]", "[true, false, null, true, false, null]"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("-1.5e3", "-1.5e3"),
        ("+5", "5"),
        (".5", "0.5"),
        ("1_000", "1000"),
        ("Oslo", '"Oslo"'),
    ],
)
def test_literals(text, expected):
    assert python_text.to_json(text) == expected
    json.loads(expected)


@pytest.mark.parametrize("text", ["", "{1, 2}", "f'x'", "b'x'", "f(x)", "1 + 2", "[1", "'a", "{'a'}", "007", "[" * 500])
def test_what_is_no_literal(text):
    with pytest.raises(Malformed):
        python_text.to_json(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_whatever_python_prints_is_read(original):
    assert json.loads(python_text.to_json(repr(original))) == original
