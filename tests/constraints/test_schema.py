"""What is refused of a schema, and where the error says it is (field case SO-01)."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg.constraints import schema as schemas
from smg.constraints.schema import MAX_DEPTH, MAX_NODES, check, strict
from smg.constraints.verify import Rules, Verifier
from smg.core.errors import GatewayError
from smg.core.events import Finish

P = "response_format.json_schema.schema"
LIST = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/list"}},
    "$defs": {
        "list": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}}]}
    },
}
TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["v", "kids"],
}


def refused(schema) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        check(schema, P)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        LIST,
        TREE,
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "string"}}},
        {"$ref": "#/definitions/a%20b", "definitions": {"a b": {"type": "string"}}},
        {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}], "$defs": {"n": {"type": "array", "items": {"$ref": "#"}}}},
        {"type": ["object", "null"], "properties": {"x": {"$ref": "#"}}, "required": ["x"]},
        {"properties": {"$ref": {"type": "string"}}},
        {"enum": [{"$ref": "nowhere"}]},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"$ref": "#"}, "minItems": 1},
    ],
)
def test_SO_01_what_ends_is_accepted(schema):
    check(schema, P)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}},
        {"allOf": [{"$ref": "#"}]},
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"oneOf": [{"$ref": "#/$defs/a"}]}},
        },
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"not": {"$ref": "#/$defs/n"}}}},
    ],
)
def test_SO_01_a_schema_that_is_only_itself(schema):
    error = refused(schema)
    assert "refers to itself" in error.message
    assert error.param == P


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
        {"type": "object", "properties": {"x": False}, "required": ["x"]},
        {
            "anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
            "$defs": {
                "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
                "b": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]},
            },
        },
    ],
)
def test_SO_01_a_schema_that_can_never_end(schema):
    assert "can never end" in refused(schema).message


@pytest.mark.parametrize(
    ("schema", "param"),
    [
        ({"type": "not-a-type"}, f"{P}.type"),
        ({"type": "object", "properties": {"a": 3}}, f"{P}.properties.a"),
        ({"required": "a"}, f"{P}.required"),
        ({"anyOf": []}, f"{P}.anyOf"),
        ({"type": "string", "minLength": -1}, f"{P}.minLength"),
        ({"properties": {"a": {"$ref": "https://example.org/a.json"}}}, f"{P}.properties.a.$ref"),
        ({"$ref": "#/$defs/none"}, f"{P}.$ref"),
        ({"$ref": "#anchor"}, f"{P}.$ref"),
        ({"items": {"$dynamicRef": "#x"}}, f"{P}.items.$dynamicRef"),
    ],
)
def test_SO_01_nonsense_names_its_place(schema, param):
    assert refused(schema).param == param


def test_bounds_on_depth_and_size():
    deep = {}
    for _ in range(MAX_DEPTH):
        deep = {"not": deep}
    assert "levels deep" in refused(deep).message
    assert "parts" in refused({"anyOf": [{} for _ in range(MAX_NODES)]}).message
    assert "bytes" in refused({"description": "x" * schemas.MAX_BYTES}).message
    with pytest.raises(GatewayError):
        schemas.parse("x" * (schemas.MAX_BYTES + 1), P)


def test_a_long_chain_of_references_is_no_trouble():
    names = [f"d{number}" for number in range(1500)]
    chain = {
        name: {"type": "object", "properties": {"n": {"$ref": f"#/$defs/{following}"}}, "required": ["n"]}
        for name, following in itertools.pairwise(names)
    }
    check({"$ref": "#/$defs/d0", "$defs": {**chain, "d1499": {"type": "null"}}}, P)
    check({"$ref": "#/$defs/d0", "$defs": {"d1499": {"type": "null"}, **dict(reversed(chain.items()))}}, P)


KEYWORDS = (
    *("type", "properties", "required", "items", "anyOf", "allOf", "not", "$ref", "$defs", "enum", "pattern"),
    *("minItems", "prefixItems", "a", "additionalProperties", "if", "const"),
)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["object", "array", "string", "#", "#/a", "x", "("]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYWORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["type", "properties", "items", "allOf", "$ref", "a"]), _values, max_size=4))
def test_whatever_comes_is_a_schema_or_a_400(schema):
    """No other error, and what passes has a validator."""
    try:
        check(schema, P)
    except GatewayError as error:
        assert error.status == 400
        return
    strict(schema)
    Verifier(Rules(json.dumps(schema))).broken(Finish(0, "stop"), "{}")


def test_strict_mode_closes_objects_that_name_their_properties():
    given = {
        "type": "object",
        "properties": {
            "a": {"properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
            "c": {"type": "object"},
            "d": {"items": {"type": ["object", "null"], "properties": {}}},
        },
    }
    closed = strict(given)
    assert closed["additionalProperties"] is False
    assert closed["properties"]["a"]["additionalProperties"] == {"type": "integer"}
    assert "additionalProperties" not in closed["properties"]["c"]
    assert closed["properties"]["d"]["items"]["additionalProperties"] is False
    assert "additionalProperties" not in given


@pytest.mark.parametrize("value", ["{", '"text"', "[]", 3, None, "\ud800"])
def test_a_schema_is_an_object_or_its_text(value):
    with pytest.raises(GatewayError) as caught:
        schemas.parse(value, P)
    assert caught.value.param == P
