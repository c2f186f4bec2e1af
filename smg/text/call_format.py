"""How a chat template takes earlier tool calls (case CT-01): arguments parsed or as text, content null or empty."""

from collections.abc import Mapping
from typing import Any

import msgspec

from smg.text import probes
from smg.text.template import ChatTemplate

_TEXT = f'{{"{probes.KEY}": "{probes.VALUE}"}}'


class CallFormat(msgspec.Struct, frozen=True):
    """``objects``, ``texts``: arguments may be an object, JSON text, or either. ``null``: a calling turn without text
    has content null, else ``""``."""

    objects: bool = True
    texts: bool = False
    null: bool = True


def detect(template: ChatTemplate, special: Mapping[str, str]) -> CallFormat:
    """Find out what ``template`` takes; ``special`` are its special-token variables.

    An object is right when its keys appear and Python's notation of it does not; text is right when it appears as it
    is and not encoded a second time. Null is right when it leaves no ``None`` behind.
    """
    for null in (True, False):
        content = None if null else ""
        objects = _renders(template, special, {probes.KEY: probes.VALUE}, content)
        texts = _renders(template, special, _TEXT, content)
        if objects or texts:
            return CallFormat(objects, texts, null)
    return CallFormat()


def _renders(template: ChatTemplate, special: Mapping[str, str], arguments: Any, content: str | None) -> bool:
    messages = [probes.USER, probes.call_message(arguments, content), probes.result_message()]
    prompt = probes.ask(template, special, messages, tools=probes.TOOLS)
    if prompt is None or probes.VALUE not in prompt:
        return False
    if "None" in prompt and "None" not in template.source:
        return False
    # Python's notation of a dict, and JSON text encoded a second time.
    return f"'{probes.KEY}'" not in prompt and f'\\"{probes.KEY}' not in prompt
