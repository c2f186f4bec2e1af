"""What bounds the output, in every field that says it (spec api-and-ops 1.5; field case SO-01)."""

import json

import msgspec
import pytest

from smg.api.anthropic_messages.decode import decode as messages
from smg.api.generate.decode import decode as generate
from smg.api.openai_chat.decode import decode
from smg.api.openai_completions.decode import decode as completions
from smg.api.openai_responses.decode import decode as responses
from smg.api.output_format import MAX_CHOICES, MAX_REGEX, constraint
from smg.core.errors import GatewayError
from smg.core.request import Constraint
from tests.constraints.oracle import allows

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TEXT = msgspec.json.encode(SCHEMA).decode()
TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "x"}}
OLD_TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f>"],
}


def chat(**fields):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    return decode(msgspec.json.encode(body), {}).constraint


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"response_format": None}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Constraint("json_object")),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
            Constraint("json_schema", TEXT),
        ),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "s"}}}, Constraint("json_schema", "{}")),
        ({"regex": "a+"}, Constraint("regex", "a+")),
        ({"ebnf": 'root ::= "a"'}, Constraint("grammar", 'root ::= "a"')),
        ({"json_schema": SCHEMA}, Constraint("json_schema", TEXT)),
        ({"guided_json": SCHEMA}, Constraint("json_schema", TEXT)),
        ({"guided_json": json.dumps(SCHEMA)}, Constraint("json_schema", TEXT)),
        ({"guided_regex": "a+"}, Constraint("regex", "a+")),
        ({"guided_grammar": 'root ::= "a"'}, Constraint("grammar", 'root ::= "a"')),
        ({"guided_choice": ["a", "b"]}, Constraint("choice", choices=("a", "b"))),
        ({"structured_outputs": {"json": SCHEMA}}, Constraint("json_schema", TEXT)),
        ({"structured_outputs": {"json_object": True}}, Constraint("json_object")),
        ({"structured_outputs": {"json_object": False, "regex": "a"}}, Constraint("regex", "a")),
        ({"structured_outputs": {"grammar": "x"}}, Constraint("grammar", "x")),
        ({"structured_outputs": {"choice": ["a"]}}, Constraint("choice", choices=("a",))),
        ({"structured_outputs": {"disable_any_whitespace": True}}, None),
    ],
)
def test_each_field(fields, expected):
    assert chat(**fields) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": TAG},
        {"structural_tag": TAG},
        {"structural_tag": json.dumps(TAG)},
        {"structured_outputs": {"structural_tag": TAG}},
        {"response_format": OLD_TAG},
    ],
)
def test_structural_tags_go_on_as_they_are(fields):
    found = chat(**fields)
    assert found is not None
    assert found.kind == "structural_tag"
    assert json.loads(found.value) in (TAG, OLD_TAG)


def test_strict_schemas_are_closed():
    strict = {"name": "s", "strict": True, "schema": SCHEMA}
    found = chat(response_format={"type": "json_schema", "json_schema": strict})
    assert found is not None
    assert json.loads(found.value) == {**SCHEMA, "additionalProperties": False}


NEVER = {"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": NEVER}}},
            "response_format.json_schema.schema",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": {"type": "not-a-type"}},
                }
            },
            "response_format.json_schema.schema.type",
        ),
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        (
            {
                "response_format": {
                    "type": "structural_tag",
                    "format": {"type": "tag", "content": {"json_schema": NEVER}},
                }
            },
            "response_format.format.content.json_schema",
        ),
        (
            {"structural_tag": {"structures": [{"begin": "", "schema": {"type": 1}}], "triggers": []}},
            "structural_tag.structures[0].schema.type",
        ),
        ({"guided_json": NEVER}, "guided_json"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"regex": " "}, "regex"),
        ({"regex": "a" * (MAX_REGEX + 1)}, "regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a", ""]}, "guided_choice[1]"),
        ({"guided_choice": ["a"] * (MAX_CHOICES + 1)}, "guided_choice"),
        ({"guided_choice": [1]}, "guided_choice[0]"),
        ({"structured_outputs": {"json": {"$ref": "http://x/y"}}}, "structured_outputs.json.$ref"),
        ({"structured_outputs": {"regex": 3}}, "structured_outputs.regex"),
        ({"structured_outputs": 3}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "grammar": "b"}}, "structured_outputs.grammar"),
        ({"regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_SO_01_what_is_wrong_names_the_field(fields, param):
    with pytest.raises(GatewayError) as caught:
        chat(**fields)
    assert (caught.value.param, caught.value.status) == (param, 400)


def test_the_path_of_fields_inside_another():
    with pytest.raises(GatewayError) as caught:
        constraint(json_schema=NEVER, path="sampling_params")
    assert caught.value.param == "sampling_params.json_schema"


LARK = 'start: "a" INT\n%import common.INT'


@pytest.mark.parametrize("field", ["ebnf", "guided_grammar"])
def test_a_grammar_in_larks_notation_becomes_what_engines_read(field):
    found = constraint(**{field: LARK})
    assert (found.kind, found.value.startswith("root ::= ")) == ("grammar", True)
    assert allows(found, "a12")
    assert not allows(found, "a")


def test_what_cannot_be_turned_is_left_to_engines_that_know_better():
    for text in ("start: /a(?=b)/", "not a grammar"):
        assert constraint(ebnf=text) == Constraint("grammar", text)


HI = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
FORMAT = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize(
    ("decoded", "body", "path"),
    [
        (decode, HI, ""),
        (decode, HI | {"response_format": {"type": "text"}}, ""),
        (decode, HI | {"response_format": {"type": "json_object"}}, "response_format"),
        (decode, HI | {"response_format": {"type": "text"}, "guided_choice": ["a"]}, "guided_choice"),
        (completions, {"prompt": "x", "regex": "a"}, "regex"),
        (generate, {"text": "x", "sampling_params": {"ebnf": 'root ::= "a"'}}, "sampling_params.ebnf"),
        (responses, {"model": "m", "input": "hi", "text": {"format": FORMAT | {"name": "s"}}}, "text.format"),
        (responses, {"model": "m", "input": "hi", "regex": "a"}, "regex"),
        (messages, HI | {"output_config": {"format": FORMAT}}, "output_config.format"),
        (messages, HI | {"output_format": FORMAT}, "output_format"),
    ],
)
def test_where_the_body_has_it_is_known_to_who_cannot_keep_to_it(decoded, body, path):
    request = decoded(msgspec.json.encode(body), {})
    assert (request.constraint is None) == (path == "")
    if path:
        assert request.constraint_path == path
