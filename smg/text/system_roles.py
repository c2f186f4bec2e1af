"""System and developer messages, wherever the client puts them (case CT-02)."""

from collections.abc import Mapping, Sequence

import msgspec

from smg.core.errors import bad_request
from smg.core.request import MediaPart, Message, Part, TextPart
from smg.text import probes
from smg.text.template import Template

_SEPARATOR = "\n\n"


class SystemRoles(msgspec.Struct, frozen=True):
    """``developer``: the template knows that role. ``late``: it shows system messages after the first turn."""

    developer: bool = False
    late: bool = True


def detect(template: Template, special: Mapping[str, str]) -> SystemRoles:
    """Find out what ``template`` takes; ``special`` are its special-token variables."""
    first = {"role": "system", "content": "qzfirst"}
    late = {"role": "system", "content": probes.WORD}
    prompt = probes.ask(template, special, [first, probes.USER, probes.ASSISTANT, late, probes.USER])
    return SystemRoles("developer" in template.source, prompt is not None and probes.WORD in prompt)


def rename_developer(messages: Sequence[Message]) -> list[Message]:
    """Call developer messages system messages."""
    return [
        msgspec.structs.replace(message, role="system") if message.role == "developer" else message
        for message in messages
    ]


def has_late(messages: Sequence[Message]) -> bool:
    """Whether a system message follows another message."""
    return any(message.role == "system" for message in messages[1:])


def merge_into_first(messages: Sequence[Message]) -> list[Message]:
    """Move all system messages' texts into one leading message, in their order; the other turns stay as they are.

    Raises:
        GatewayError: 400 for media in a message that would have to move: they must stay in their order.
    """
    system = [message for message in messages if message.role == "system"]
    if not system:
        return list(messages)
    for index, message in enumerate(messages[1:], 1):
        parts = message.content if message.role == "system" and isinstance(message.content, list) else []
        if any(isinstance(part, MediaPart) for part in parts):
            raise bad_request("this model takes media of system messages in the first one only", f"messages[{index}]")
    merged = msgspec.structs.replace(system[0], content=_join([message.content for message in system]))
    return [merged, *(message for message in messages if message.role != "system")]


def _join(contents: Sequence[str | list[Part] | None]) -> str | list[Part]:
    given = [content for content in contents if content]
    texts = [content for content in given if isinstance(content, str)]
    if len(texts) == len(given):
        return _SEPARATOR.join(texts)
    parts: list[Part] = []
    for content in given:
        parts += [TextPart(content)] if isinstance(content, str) else content
    return parts
