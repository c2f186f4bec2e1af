"""Holds an answer against what it was bound to: engines cut answers off, and some never heard of the constraint."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from smg.core.events import Event, Finish, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

_ANY_OBJECT = '{"type":"object"}'


class Rules(msgspec.Struct, frozen=True):
    """``text`` is the schema of the answer's text, empty for none; ``tools`` those of the arguments of some tools.

    ``forced`` names the tools of which one must be called and no other may be; empty where no call is forced.
    ``enforced`` tells that the engine was given the constraint.
    """

    text: str = ""
    tools: Mapping[str, str] = {}
    enforced: bool = True
    forced: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.tools or self.forced)


class Verifier:
    """Reads one choice's events, and says at the end whether they keep the rules."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._text: list[str] = []
        self._names: list[str] = []
        self._arguments: list[list[str]] = []
        self._cut = False

    def take(self, events: Iterable[Event]) -> None:
        """More of the choice."""
        for event in events:
            match event:
                case TextDelta(text=text):
                    self._text.append(text)
                case ToolCallStart(name=name):
                    self._names.append(name)
                    self._arguments.append([])
                case ToolCallDelta(index=index, arguments=text):
                    self._arguments[index].append(text)
                case ToolCallEnd(complete=False):
                    self._cut = True

    def broken(self, finish: Finish, text: str | None = None) -> str:
        """Why the choice breaks the rules: ``length``, ``stop`` (cut by a stop), ``engine`` or ``unconstrained``.

        Empty: it keeps them. ``text`` is the answer's text where no events have told it.
        """
        if not self._breaks("".join(self._text) if text is None else text):
            return ""
        if finish.reason == "length":
            return "length"
        if finish.matched_stop is not None:
            return "stop"
        return "engine" if self._rules.enforced else "unconstrained"

    def _breaks(self, text: str) -> bool:
        if self._cut:
            return True
        forced = self._rules.forced
        if forced and (not self._names or not set(forced).issuperset(self._names)):
            return True
        calls = zip(self._names, ("".join(parts) for parts in self._arguments), strict=True)
        schemas = self._rules.tools
        if any(not _fits(schemas[name], arguments) for name, arguments in calls if name in schemas):
            return True
        # Beside calls there need be no answer.
        return bool(self._rules.text) and not self._names and not _fits(self._rules.text, text)


def rules(kind: str, value: str) -> str:
    """The schema of a text under a constraint; empty where it is not JSON that is asked for."""
    return value if kind == "json_schema" else _ANY_OBJECT if kind == "json_object" else ""


def _fits(schema: str, text: str) -> bool:
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    validator = _validator(schema)
    return validator is None or bool(validator.is_valid(value))


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    """The compiled schema; None where it has patterns that can't be matched in linear time."""
    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), pattern_options=jsonschema_rs.RegexOptions())
    except ValueError:
        return None
