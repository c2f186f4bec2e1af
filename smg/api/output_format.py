"""Decodes what bounds the output, whatever field it comes in: at most one of them (spec api-and-ops 1.5; case SO-01).

``response_format`` is OpenAI's; ``regex``, ``ebnf``, ``json_schema`` and ``structural_tag`` are SGLang's; ``guided_*``
and ``structured_outputs`` are vLLM's, old and new.
"""

from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from smg.api.sampling import OpenAIBody
from smg.constraints import custom
from smg.constraints import schema as schemas
from smg.constraints.tags import check_tag
from smg.core.errors import bad_request
from smg.core.request import Constraint
from smg.core.wire import Union, Unknown, convert, join

MAX_REGEX = 64 << 10  # characters
MAX_GRAMMAR = 256 << 10  # characters
MAX_CHOICES = 10_000

Found: TypeAlias = list[tuple[str, Constraint]]


class TextFormat(msgspec.Struct):
    pass


class JsonObjectFormat(msgspec.Struct):
    pass


class JsonSchema(msgspec.Struct):
    name: str
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class JsonSchemaFormat(msgspec.Struct):
    json_schema: JsonSchema


class TagFormat(msgspec.Struct):
    """The tag is the object itself, in its new form (``format``) or its old one (``structures``, ``triggers``)."""


class StructuredOutputs(msgspec.Struct):
    """vLLM's object of constraints; what is not named here (white space, backends) is its engines' own business."""

    json: Any = None
    json_object: bool | None = None
    regex: str | None = None
    grammar: str | None = None
    choice: list[str] | None = None
    structural_tag: Any = None


_FORMATS: Union[Any] = Union(
    {
        "text": TextFormat,
        "json_object": JsonObjectFormat,
        "json_schema": JsonSchemaFormat,
        "structural_tag": TagFormat,
    }
)


_FIELDS = (
    *("regex", "ebnf", "json_schema", "structural_tag", "response_format"),
    *("guided_json", "guided_regex", "guided_grammar", "guided_choice", "structured_outputs"),
)
_BINDING = attrgetter(*_FIELDS)
_NOTHING = (None,) * len(_FIELDS)


def of_openai(body: OpenAIBody) -> Constraint | None:
    """The constraint of a chat or completions body. Raises GatewayError, as ``constraint``."""
    if _BINDING(body) == _NOTHING:
        return None
    return constraint(
        regex=body.regex,
        ebnf=body.ebnf,
        json_schema=body.json_schema,
        structural_tag=body.structural_tag,
        response_format=body.response_format,
        guided_json=body.guided_json,
        guided_regex=body.guided_regex,
        guided_grammar=body.guided_grammar,
        guided_choice=body.guided_choice,
        structured_outputs=body.structured_outputs,
    )


def path_of(body: msgspec.Struct, path: str = "", form: str = "response_format") -> str:
    """Where a body that has a constraint (at ``path``) has it; ``form`` is where response formats are."""
    for name in _FIELDS:
        # Beside a response format that binds nothing there may be another field.
        if name != "response_format" and getattr(body, name, None) is not None:
            return join(path, name)
    return form


def constraint(
    *,
    regex: str | None = None,
    ebnf: str | None = None,
    json_schema: Any = None,
    structural_tag: Any = None,
    response_format: Any = None,
    guided_json: Any = None,
    guided_regex: str | None = None,
    guided_grammar: str | None = None,
    guided_choice: list[str] | None = None,
    structured_outputs: Any = None,
    path: str = "",
) -> Constraint | None:
    """The constraint of a request whose body has these fields at ``path``.

    A schema or a structural tag is an object, or its JSON text.

    Raises:
        GatewayError: more than one, or a bad one.
    """
    texts = {"regex": regex, "ebnf": ebnf, "guided_regex": guided_regex, "guided_grammar": guided_grammar}
    found: Found = []
    for name, text in texts.items():
        if text is not None:
            found.append((name, _text("regex" if "regex" in name else "grammar", text, join(path, name))))
    for name, schema in (("json_schema", json_schema), ("guided_json", guided_json)):
        if schema is not None:
            found.append((name, _schema(schema, join(path, name))))
    if structural_tag is not None:
        found.append(("structural_tag", check_tag(structural_tag, join(path, "structural_tag"))))
    if guided_choice is not None:
        found.append(("guided_choice", _choice(guided_choice, join(path, "guided_choice"))))
    if structured_outputs is not None:
        found += _structured_outputs(structured_outputs, join(path, "structured_outputs"))
    formatted = _response_format(response_format, join(path, "response_format"))
    if formatted is not None:
        found.append(("response_format", formatted))
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise bad_request(f"only one constraint on the output is allowed, not {names}", join(path, found[1][0]))
    return found[0][1] if found else None


def _text(kind: str, text: str, path: str) -> Constraint:
    most = MAX_REGEX if kind == "regex" else MAX_GRAMMAR
    if not text.strip():
        raise bad_request(f"the {kind} is empty", path)
    if len(text) > most:
        raise bad_request(f"the {kind} is longer than {most} characters", path)
    return Constraint(kind, custom.as_ebnf(text) if kind == "grammar" else text)


def _choice(texts: list[str], path: str) -> Constraint:
    if not 0 < len(texts) <= MAX_CHOICES:
        raise bad_request(f"1 to {MAX_CHOICES} texts can be chosen from, not {len(texts)}", path)
    for index, text in enumerate(texts):
        if not text:
            raise bad_request("a text to choose must not be empty", f"{path}[{index}]")
    return Constraint("choice", choices=tuple(texts))


def _schema(value: Any, path: str, *, strict: bool = False) -> Constraint:
    found = schemas.parse(value, path)
    schemas.check(found, path)
    return Constraint("json_schema", msgspec.json.encode(schemas.strict(found) if strict else found).decode())


def _structured_outputs(value: Any, path: str) -> Found:
    wire = convert(value, StructuredOutputs, path)
    found: Found = []
    if wire.json is not None:
        found.append(("structured_outputs.json", _schema(wire.json, f"{path}.json")))
    if wire.json_object:
        found.append(("structured_outputs.json_object", Constraint("json_object")))
    if wire.regex is not None:
        found.append(("structured_outputs.regex", _text("regex", wire.regex, f"{path}.regex")))
    if wire.grammar is not None:
        found.append(("structured_outputs.grammar", _text("grammar", wire.grammar, f"{path}.grammar")))
    if wire.choice is not None:
        found.append(("structured_outputs.choice", _choice(wire.choice, f"{path}.choice")))
    if wire.structural_tag is not None:
        tag = check_tag(wire.structural_tag, f"{path}.structural_tag")
        found.append(("structured_outputs.structural_tag", tag))
    return found


def _response_format(value: Any, path: str) -> Constraint | None:
    if value is None:
        return None
    match _FORMATS.one(value, path):
        case JsonObjectFormat():
            return Constraint("json_object")
        case JsonSchemaFormat(json_schema=wire):
            if not wire.name:
                raise bad_request("a JSON schema needs a name", f"{path}.json_schema.name")
            return _schema(wire.schema or {}, f"{path}.json_schema.schema", strict=wire.strict is True)
        case TagFormat():
            return check_tag(value, path)
        case Unknown(type=name):
            known = "text, json_object, json_schema or structural_tag"
            raise bad_request(f"unknown response format '{name}', expected {known}", f"{path}.type")
    return None
