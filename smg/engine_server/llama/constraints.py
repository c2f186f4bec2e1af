"""Structured output: the constraint of a request into what llguidance compiles (spec engine-contract 2.4).

A JSON answer is written on one line with ``", "`` and ``": "``: free white space lets small models write blanks until
their tokens run out.
"""

import json
import re
from typing import Any

from smg.engine_server.llama import gbnf, structural
from smg.engine_server.llama.bounds import narrowed
from smg.engine_server.llama.guidance import ConstraintError, Guide, Matcher

_SEPARATORS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# What a schema may be as a whole: anything, or nothing.
_SCHEMA_TYPES = (dict, bool)
_SPECIAL = re.compile(r"[^0-9A-Za-z\u0080-\U0010ffff]")


def wanted(sampling: Any) -> bool:
    """Whether ``sampling`` (SamplingParams) has a constraint."""
    kind = sampling.WhichOneof("constraint")
    return kind is not None and not (kind == "json_object" and not sampling.json_object)


def compile(sampling: Any, guide: Guide) -> Matcher:
    """Compile the constraint of ``sampling``, which may take some milliseconds.

    Raises:
        ConstraintError: it can't be compiled; nothing of a schema is ignored.
    """
    match sampling.WhichOneof("constraint"):
        case "json_schema":
            return guide.compile("json_schema", schema(sampling.json_schema))
        case "json_object":
            return guide.compile("json_schema", schema('{"type": "object"}'))
        case "regex":
            return guide.compile("regex", sampling.regex)
        case "choice":
            return guide.compile("regex", choice(sampling.choice.choices))
        case "grammar":
            return guide.compile("lark", grammar(sampling.grammar))
        case "structural_tag":
            return guide.compile("lark", structural_tag(sampling.structural_tag))
        case other:
            raise ConstraintError(f"this engine has no constraints of kind {other}")


def schema(text: str) -> str:
    """The JSON schema ``text`` with our white space, unless it names its own (x-guidance).

    Raises:
        ConstraintError: ``text`` is no schema.
    """
    try:
        value = narrowed(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConstraintError(f"the JSON schema is not valid JSON: {error}") from None
    if not isinstance(value, _SCHEMA_TYPES):
        raise ConstraintError("a JSON schema is an object or a boolean")
    if value is True:
        value = {}
    if isinstance(value, dict):
        value.setdefault("x-guidance", _SEPARATORS)
    return json.dumps(value)


def choice(choices: Any) -> str:
    """A regular expression for exactly these texts. Raises ConstraintError when there are none."""
    if not choices:
        raise ConstraintError("there is nothing to choose from")
    return "|".join(_SPECIAL.sub(lambda match: f"\\x{{{ord(match.group()):X}}}", text) for text in choices)


def structural_tag(text: str) -> str:
    """A Lark grammar from a structural tag. Raises ConstraintError."""
    try:
        return structural.to_lark(text, _SEPARATORS)
    except structural.TagError as error:
        raise ConstraintError(str(error)) from None


def grammar(text: str) -> str:
    """A Lark grammar from ``text``, which is one or in GBNF. Raises ConstraintError."""
    if not gbnf.looks_like(text):
        return text
    try:
        return gbnf.to_lark(text)
    except gbnf.GrammarError as error:
        raise ConstraintError(str(error)) from None
