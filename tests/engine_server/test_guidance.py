"""What a constraint allows, and what is refused (spec engine-contract 2.4)."""

import json

import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.engine_server.llama import constraints
from smg.engine_server.llama.guidance import ConstraintError, Guide

EOS = 2


@pytest.fixture(scope="module")
def guide(model):
    return Guide(model)


@pytest.fixture
def allows(guide, model):
    """Whether a constraint takes a whole text."""

    def allows(text: str, **constraint) -> bool:
        matcher = constraints.compile(pb.SamplingParams(**constraint), guide)
        try:
            for token in model.tokenize(text):
                assert matcher.mask()[token] == _accepts(matcher.copy(), token)
                matcher.accept(token)
        except ConstraintError:
            return False
        return matcher.complete

    return allows


def _accepts(matcher, token) -> bool:
    try:
        matcher.accept(token)
    except ConstraintError:
        return False
    return True


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
CHAIN = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"],
            "additionalProperties": False,
        }
    },
}
ALL_OF = {
    "type": "object",
    "allOf": [{"properties": {"a": {"type": "null"}}, "required": ["a"]}, {"properties": {"b": {"const": "x"}}}],
}


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        (PERSON, {"name": "Zoë", "age": 3}, True),
        (PERSON, {"name": "日本語🙂"}, True),
        (PERSON, {"age": 3}, False),
        (PERSON, {"name": "x", "age": -1}, False),
        (PERSON, {"name": "x", "other": 1}, False),
        (PERSON, {"name": "much too long"}, False),
        (CHAIN, {"v": 1, "next": {"v": -2, "next": None}}, True),
        (CHAIN, {"v": 1, "next": {"v": 2}}, False),
        (ALL_OF, {"a": None, "b": "x"}, True),
        (ALL_OF, {"a": None, "b": "y"}, False),
        ({"enum": ["a", "ä", 1, None]}, "ä", True),
        ({"enum": ["a", "ä", 1, None]}, "b", False),
        ({"const": {"a": [1, 2]}}, {"a": [1, 2]}, True),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, 7, True),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, True, False),
        ({"type": ["string", "null"]}, None, True),
        ({"type": "string", "pattern": "^[a-c]+$"}, "abc", True),
        ({"type": "string", "pattern": "^[a-c]+$"}, "abd", False),
        ({"type": "string", "format": "date"}, "2026-11-29", True),
        ({"type": "string", "format": "date"}, "2026-13-29", False),
        ({"type": "number", "minimum": 0.5, "exclusiveMaximum": 2}, 1.75, True),
        ({"type": "number", "minimum": 0.5, "exclusiveMaximum": 2}, 2, False),
        # An exclusive bound and one that is near.
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001}, 0, False),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001}, 0.0005, True),
        ({"items": {"type": "number", "exclusiveMinimum": 3, "maximum": 3.5}}, [3], False),
        ({"items": {"type": "number", "exclusiveMinimum": 3, "maximum": 3.5}}, [3.5], True),
        ({"type": "number", "minimum": -2.25, "exclusiveMaximum": -2}, -2, False),
        ({"type": "number", "minimum": -2.25, "exclusiveMaximum": -2}, -2.25, True),
        ({"type": "integer", "multipleOf": 5}, 35, True),
        ({"type": "integer", "multipleOf": 5}, 36, False),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2}, [True, False], True),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2}, [], False),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, [1], True),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": 1, "y": 2}, True),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": "1"}, False),
        ({}, [{"any": "thing"}], True),
        (True, "anything", True),
    ],
)
def test_a_json_schema_means_what_it_says(allows, schema, value, valid):
    assert allows(json.dumps(value, ensure_ascii=False), json_schema=json.dumps(schema)) is valid


def test_json_objects(allows):
    assert allows('{"a": [1, {"b": null}], "c": "d"}', json_object=True)
    assert not allows("[1]", json_object=True)
    assert not constraints.wanted(pb.SamplingParams(json_object=False))


def test_json_is_written_on_one_line(allows):
    schema = json.dumps({"type": "array", "items": {"type": "integer"}})
    assert allows("[1, 2]", json_schema=schema)
    assert not allows("[1,\n2]", json_schema=schema)
    flexible = json.dumps({"type": "array", "items": {"type": "integer"}, "x-guidance": {"whitespace_flexible": True}})
    assert allows("[1,\n2]", json_schema=flexible)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("{nope", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("3", "object or a boolean"),
        ("false", "nsatisfiable"),
        ('{"x-guidance": 1}', "invalid type"),
        ('{"not": {"type": "string"}}', "not"),
        ('{"type": "array", "uniqueItems": true}', "uniqueItems"),
        ('{"type": "string", "format": "weird"}', "weird"),
        ('{"type": "string", "pattern": "(?=x)a"}', "look-around"),
        ('{"type": "wat"}', "wat"),
        ('{"$ref": "#/$defs/none"}', "none"),
        ('{"if": {}, "then": {}}', "if"),
        ('{"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}', "oneOf"),
    ],
)
def test_what_a_schema_says_is_never_ignored(allows, schema, words):
    with pytest.raises(ConstraintError, match=words):
        allows("1", json_schema=schema)


@pytest.mark.parametrize(
    ("regex", "text", "valid"),
    [
        ("a+b?", "aab", True),
        ("a+b?", "b", False),
        ("^a+$", "aaa", True),
        (r"\d{3}-\d{4}", "555-1234", True),
        (r"\d{3}-\d{4}", "555-123", False),
        ("[äöü]+", "äü", True),
        ("(?i)abc", "aBC", True),
        ("", "", True),
    ],
)
def test_a_regular_expression_is_for_the_whole_answer(allows, regex, text, valid):
    assert allows(text, regex=regex) is valid


@pytest.mark.parametrize("regex", ["(", "(?=a)b", r"(a)\1", r"a\bc", "a\0b"])
def test_other_regular_expressions_are_refused(allows, regex):
    with pytest.raises(ConstraintError):
        allows("a", regex=regex)


def test_choices_are_literal(allows):
    choices = pb.ChoiceConstraint(choices=["yes", "yes, sir", "a.b", "(x) | [y]\n", "né"])
    for text in choices.choices:
        assert allows(text, choice=choices)
    for text in ("ye", "aXb", "yes,", "y"):
        assert not allows(text, choice=choices)
    with pytest.raises(ConstraintError, match="nothing to choose"):
        allows("a", choice=pb.ChoiceConstraint())


LIST = r"""
# a list of words
root  ::= "[" (item (", " item)*)? "]"
item  ::= word | number
word  ::= [a-zA-Zé_]+
number ::= "-"? [0-9]{1,3} ("." [0-9]+)?
"""


@pytest.mark.parametrize(
    ("grammar", "text", "valid"),
    [
        (LIST, "[one, -12.5, été]", True),
        (LIST, "[]", True),
        (LIST, "[1234]", False),
        (LIST, "[one,two]", False),
        ('root ::= "ab" "c" | "a" "bd"', "abd", True),
        ('root ::= root "x" | "y"', "yxx", True),
        ('root ::= "\\x41\\u00e9\\n\\"\\\\" .', 'Aé\n"\\z', True),
        ("root ::= [^a-c\\]\\-]+", "xyz", True),
        ("root ::= [^a-c\\]\\-]+", "x-", False),
        ("root ::= [a\\-c]{2,}", "a-c", True),
        ("root ::= [a\\-c]{2,}", "b", False),
        ('root ::= "" | my-rule\nmy-rule ::= "🙂"{2}', "🙂🙂", True),
        ('start: "a" | "b" start', "bba", True),
        ('start: "a" | "b" start', "bb", False),
    ],
)
def test_a_grammar_is_gbnf_or_lark(allows, grammar, text, valid):
    assert allows(text, grammar=grammar) is valid


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ('x ::= "a"', "no rule 'root'"),
        ("root ::= other", "no rule 'other'"),
        ('root ::= "a"\nroot ::= "b"', "line 2.*twice"),
        ('root ::= ("a"', r"'\)' is missing"),
        ("root ::= [z-a]", "z-a is empty"),
        ("root ::= []", "character set is empty"),
        ('root ::= "\\U00110000"', "no character"),
        ('root ::= "a" ; "b"', "unexpected ';'"),
        ('root ::= "a"\n::= "b"', "the name of a rule"),
        ("root ::= " + "(" * 1000 + '"a"' + ")" * 1000, "nested"),
        ("start: " + "(" * 5000 + '"a"' + ")" * 5000, "nested"),
        ("start: unknown", "unknown"),
    ],
)
def test_a_wrong_grammar_is_told_what_is_wrong(allows, grammar, words):
    with pytest.raises(ConstraintError, match=words):
        allows("a", grammar=grammar)


def test_the_end_comes_when_it_may_and_when_it_must(guide):
    matcher = guide.compile("regex", "ab?")
    assert not matcher.mask()[EOS]
    matcher.accept(_id(guide, matcher, "a"))
    assert matcher.complete
    assert matcher.mask()[EOS]
    assert not matcher.stopped
    matcher.accept(_id(guide, matcher, "b"))
    assert matcher.stopped
    assert matcher.mask().nonzero()[0].tolist() == [EOS]


def test_a_copy_goes_its_own_way(guide):
    first = guide.compile("regex", "ab")
    second = first.copy()
    first.accept(_id(guide, first, "a"))
    assert not (first.mask() & second.mask()).any()


def _id(guide, matcher, text) -> int:
    from smg.engine_server.llama import default_model, gguf_metadata

    tokens = gguf_metadata.read(default_model())["tokenizer.ggml.tokens"]
    token = tokens.index(text)
    assert matcher.mask()[token]
    return token
