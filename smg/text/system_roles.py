"""System and developer messages, wherever the client puts them (case CT-02)."""

from collections.abc import Mapping, Sequence
from itertools import product

import msgspec

from smg.core.errors import bad_request
from smg.core.request import MediaPart, Message, Part, TextPart
from smg.text import probes
from smg.text.template import Template

ROLES = frozenset({"system", "developer"})

_SEPARATOR = "\n\n"
_FIRST, _LATE = "qzfirst", "qzlate"


class SystemRoles(msgspec.Struct, frozen=True):
    """``developer``: the template knows that role. ``late``: it shows such messages after the first turn too."""

    developer: bool = False
    late: bool = True


def detect(template: Template, special: Mapping[str, str]) -> SystemRoles:
    """Find out what ``template`` takes; ``special`` are its special-token variables."""

    def shows(*messages: Mapping[str, str]) -> bool:
        prompt = probes.ask(template, special, [dict(message) for message in messages])
        texts = (message["content"] for message in messages if message["role"] in ROLES)
        return prompt is not None and all(text in prompt for text in texts)

    def shows_late(first: str, late: str) -> bool:
        begin = ({"role": first, "content": _FIRST}, probes.USER, probes.ASSISTANT)
        return shows(*begin, {"role": late, "content": _LATE}, probes.USER)

    # A template may speak of developers without knowing the role, and one that writes any role's name knows none.
    named = "developer" in template.source
    developer = named and shows({"role": "developer", "content": _FIRST}, probes.USER)
    pairs = product(ROLES, ROLES) if developer else [("system", "system")]
    return SystemRoles(developer, all(shows_late(first, late) for first, late in pairs))


def rename_developer(messages: Sequence[Message]) -> Sequence[Message]:
    """Call developer messages system messages."""
    if "developer" not in [message.role for message in messages]:
        return messages
    return [
        msgspec.structs.replace(message, role="system") if message.role == "developer" else message
        for message in messages
    ]


def has_late(messages: Sequence[Message]) -> bool:
    """Whether a system or developer message follows another message."""
    return len(messages) > 1 and any(message.role in ROLES for message in messages[1:])


def merge_into_first(messages: Sequence[Message]) -> list[Message]:
    """Move all texts of system and developer messages into one leading message, of the first one's role.

    They keep their order, and so do the other turns.

    Raises:
        GatewayError: 400 for media in a message that would have to move: they must stay in their order.
    """
    system = [message for message in messages if message.role in ROLES]
    if not system:
        return list(messages)
    for index, message in enumerate(messages[1:], 1):
        parts = message.content if message.role in ROLES and isinstance(message.content, list) else []
        if any(isinstance(part, MediaPart) for part in parts):
            raise bad_request("this model takes media of system messages in the first one only", f"messages[{index}]")
    merged = msgspec.structs.replace(system[0], content=_join([message.content for message in system]))
    return [merged, *(message for message in messages if message.role not in ROLES)]


def _join(contents: Sequence[str | list[Part] | None]) -> str | list[Part]:
    given = [content for content in contents if content]
    texts = [content for content in given if isinstance(content, str)]
    if len(texts) == len(given):
        return _SEPARATOR.join(texts)
    parts: list[Part] = []
    for content in given:
        parts += [TextPart(content)] if isinstance(content, str) else content
    return parts
