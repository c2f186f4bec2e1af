"""Whatever a constraint lets through fits its schema: answers of random tokens instead of a model's, which would hardly
ever come to the odd ones."""

import json
import random
import re

import jsonschema_rs
import numpy as np
import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.engine_server.llama import constraints
from smg.engine_server.llama.guidance import Guide


def an_object(properties, **more):
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False} | more


def number(**bounds):
    return {"type": "number", **bounds}


def text(**more):
    return {"type": "string", **more}


INTEGER = {"type": "integer", "minimum": 0, "maximum": 9}
SCHEMAS = {
    "a list of itself": {
        "$ref": "#/$defs/list",
        "$defs": {
            "list": {"anyOf": [{"type": "null"}, an_object({"v": INTEGER, "next": {"$ref": "#/$defs/list"}})]},
        },
    },
    "a tree": an_object(
        {"name": {"enum": ["a", "b"]}, "below": {"type": "array", "maxItems": 2, "items": {"$ref": "#"}}},
        required=["name"],
    ),
    "texts beyond ASCII": an_object(
        {"c": {"enum": ["grün", "日本", "😀", 'a"b\\c', "\u0007\t"]}, "k日": {"const": "é"}}
    ),
    "one of several": an_object({"x": {"oneOf": [INTEGER, text(enum=["p"]), an_object({"kind": {"const": "z"}})]}}),
    "patterns": an_object(
        {
            "whole": text(pattern=r"^[A-Z]{2}-\d{3,5}$"),
            "repeated": text(pattern="^(foo|bar)+$", maxLength=9),
            "inside": text(pattern="[0-9]{3}", maxLength=8),
        }
    ),
    "arrays in arrays": {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "array", "items": False}},
    },
    "further properties": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": INTEGER,
        "maxProperties": 3,
    },
    "properties by pattern": {
        "type": "object",
        "patternProperties": {"^x_[a-z]$": INTEGER},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "references into the schema": an_object(
        {"a": {"$ref": "#/$defs/x~1y%20z"}, "b": {"$ref": "#/$defs/x~1y%20z/properties/n"}},
        **{"$defs": {"x/y z": an_object({"n": INTEGER})}},
    ),
    "formats": an_object({name: text(format=name) for name in ("date", "date-time", "time", "uuid", "ipv4", "ipv6")}),
    "bounds": an_object(
        {
            "i": {"type": "integer", "exclusiveMinimum": 10, "exclusiveMaximum": 13},
            "j": {"type": "integer", "minimum": -120, "maximum": -7},
            "m": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 20},
            "n": number(minimum=-1.5, maximum=-0.25),
            "o": number(exclusiveMinimum=0, exclusiveMaximum=0.001),
            "p": number(minimum=-2.25, exclusiveMaximum=-2),
            "q": number(exclusiveMinimum=-1, exclusiveMaximum=1),
        }
    ),
    "tuples": {"type": "array", "prefixItems": [{"const": 1}, {"enum": ["a"]}], "items": INTEGER, "minItems": 2},
    "several at once": {"allOf": [an_object({"a": INTEGER}), {"properties": {"a": {"minimum": 5}}}]},
    "several types": an_object({"v": {"type": ["integer", "null", "boolean"], "minimum": 0, "maximum": 9}}),
    "values": {"enum": [{"a": [1, {"b": None}]}, [1, 2], "x", None, 3.5, True]},
    "draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **an_object(
            {
                "a": {"$ref": "#/definitions/x"},
                "l": {"type": "array", "items": [{"const": 1}, {"const": 2}], "additionalItems": False, "minItems": 2},
            }
        ),
        "definitions": {"x": INTEGER},
    },
}
MAX_TOKENS = 300


@pytest.fixture(scope="module")
def walk(model):
    """Takes random allowed tokens, brackets and quotes more often than others; None when it takes too many."""
    guide = Guide(model)
    pieces = [piece for piece, _ in model.pieces()]
    marks = np.array([re.fullmatch(rb'["}\][{,: ]{1,3}', piece) is not None for piece in pieces])
    ends = set(model.end_ids)

    def walk(schema, generator: random.Random) -> str | None:
        matcher = constraints.compile(pb.SamplingParams(json_schema=json.dumps(schema)), guide)
        out = b""
        for _ in range(MAX_TOKENS):
            allowed = [int(token) for token in np.flatnonzero(matcher.mask())]
            inner = [token for token in allowed if token not in ends]
            if not inner or (len(inner) < len(allowed) and generator.random() < 0.4):
                return out.decode()
            some = [token for token in inner if marks[token]]
            token = generator.choice(some if some and generator.random() < 0.5 else inner)
            matcher.accept(token)
            out += pieces[token]
        return None

    return walk


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_a_schema_allows_fits_it(walk, name):
    found = [walk(SCHEMAS[name], random.Random(seed)) for seed in range(4)]
    whole = [text for text in found if text is not None]
    assert whole
    for answer in whole:
        jsonschema_rs.validate(SCHEMAS[name], json.loads(answer))
