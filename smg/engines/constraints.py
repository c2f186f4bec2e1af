"""Output constraints in the words of the contracts (spec engine-contract 2.4).

Not every contract has a field for every kind, but any JSON object is a schema, and a list of choices is a regular
expression.
"""

from smg.core.errors import GatewayError, bad_request
from smg.core.request import Constraint

_ANY_OBJECT = '{"type":"object"}'
_TEXTS = frozenset({"json_schema", "regex", "grammar", "structural_tag"})
_META = frozenset("\\^$.|?*+()[]{}")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def checked(constraint: Constraint) -> Constraint:
    """``constraint``, or GatewayError (400) when it says nothing."""
    if constraint.kind == "choice":
        if not constraint.choices:
            raise bad_request("the list of choices is empty", "choice")
    elif constraint.kind in _TEXTS and not constraint.value:
        raise bad_request("the constraint is empty", param_of(constraint.kind))
    return constraint


def narrowed(constraint: Constraint) -> Constraint:
    """``constraint`` as one of json_schema, regex, grammar and structural_tag.

    Raises:
        GatewayError: ``invalid_value`` for an empty one, ``unsupported_parameter`` for a kind nobody knows, and for a
            grammar in another notation than EBNF (400).
    """
    match checked(constraint):
        case Constraint(kind="json_object"):
            return Constraint("json_schema", _ANY_OBJECT)
        case Constraint(kind="choice", choices=texts):
            return Constraint("regex", "(" + "|".join(map(escape, texts)) + ")")
        case Constraint(kind="grammar", value=text) if "::=" not in text:
            message = "the engine reads grammars in EBNF (root ::= ...), and this one cannot be turned into such"
            raise GatewayError("unsupported_parameter", message, param=param_of("grammar"))
        case Constraint(kind=kind) if kind in _TEXTS:
            return constraint
        case _:
            raise unknown(constraint)


def unknown(constraint: Constraint) -> GatewayError:
    """The error for a kind of constraint that no contract has."""
    return GatewayError("unsupported_parameter", f"the engine has no output constraint '{constraint.kind}'")


def param_of(kind: str) -> str:
    """The field of a request that a constraint of this kind comes from."""
    return {"regex": "regex", "grammar": "ebnf", "choice": "choice"}.get(kind, "response_format")


def escape(text: str) -> str:
    """A regular expression that matches ``text`` alone, in what all engines' dialects have in common."""
    return "".join(_NAMED.get(char, "\\" + char if char in _META else char) for char in text)
