"""How a chat template takes earlier tool calls (case CT-01): arguments parsed or as text, content null or empty."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from smg.text import probes
from smg.text.template import Template

# A null as a template prints it; as a value of an object, where a whole message is dumped, it is in its place.
_PRINTED = re.compile(r"None|(?<!: )(?<!:)null")
_TEXT = f'{{"{probes.KEY}": "{probes.VALUE}"}}'


class CallFormat(msgspec.Struct, frozen=True):
    """``objects``, ``texts``: arguments may be an object, JSON text, or either. ``null``: a calling turn without text
    has content null, else ``""``."""

    objects: bool = True
    texts: bool = False
    null: bool = True


def detect(template: Template, special: Mapping[str, str]) -> CallFormat:
    """Find out what ``template`` takes; ``special`` are its special-token variables.

    An object is right when its keys appear and Python's notation of it does not; text is right when it appears as it
    is and not encoded a second time. Null is right when it leaves neither ``None`` nor ``null`` behind.
    """
    for null in (True, False):
        objects = _shows(_ask(template, special, {probes.KEY: probes.VALUE}, null))
        texts = _shows(_ask(template, special, _TEXT, null))
        if objects or texts:
            return CallFormat(objects, texts, null)
    # The template does not show calls; what remains to be known is whether null breaks it.
    return CallFormat(null=_ask(template, special, {}, True) is not None)


def _ask(template: Template, special: Mapping[str, str], arguments: Any, null: bool) -> str | None:
    """The prompt of a conversation with a call; None when the template fails or prints the null."""
    call = probes.call_message(arguments, None if null else "")
    prompt = probes.ask(template, special, [probes.USER, call, probes.result_message()], tools=probes.TOOLS)
    if prompt is None or not null:
        return prompt
    # What templates say by themselves, in an example or a type, they say with an empty text as well.
    usual = _ask(template, special, arguments, False) or template.source
    return None if len(_PRINTED.findall(prompt)) > len(_PRINTED.findall(usual)) else prompt


def _shows(prompt: str | None) -> bool:
    """Whether the arguments are there, neither in Python's notation of a dict nor as JSON text encoded twice."""
    if prompt is None or probes.VALUE not in prompt:
        return False
    return f"'{probes.KEY}'" not in prompt and f'\\"{probes.KEY}' not in prompt
