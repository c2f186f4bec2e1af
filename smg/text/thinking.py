"""The thinking toggle of a chat template (spec text-pipeline 2.5).

A variable is a working toggle when setting it changes the rendered prompt; its default is the setting that renders
like leaving it out. Only variables that the template mentions are tried.
"""

import re
from collections.abc import Mapping

import msgspec

from smg.core.request import GenerationRequest
from smg.text import probes
from smg.text.template import Template

KEYS = ("enable_thinking", "thinking")

OPENER = "<think>"
CLOSER = "</think>"

# Reasoning efforts that mean "do not think"; the others express no opinion on the toggle.
OFF_EFFORTS = frozenset({"none", "minimal"})


class Toggle(msgspec.Struct, frozen=True):
    """The template variable that switches thinking, and what it is when nobody sets it."""

    key: str
    default: bool


def detect(template: Template, special: Mapping[str, str]) -> Toggle | None:
    """Find the toggle of ``template``; None when it has none. ``special`` are its special-token variables."""
    for key in KEYS:
        if re.search(rf"\b{key}\b", template.source) is None:
            continue
        unset, on, off = (
            probes.ask(template, special, [probes.USER], **context) for context in ({}, {key: True}, {key: False})
        )
        if on is not None and off is not None and on != off:
            return Toggle(key, unset != off)
    return None


def wish(toggle: Toggle, request: GenerationRequest) -> bool | None:
    """What the client said about ``toggle``: its own kwarg, else its general wish, else its effort; None: nothing."""
    given = request.template_kwargs.get(toggle.key)
    if isinstance(given, bool):
        return given
    if request.thinking is not None:
        return request.thinking
    return False if request.reasoning_effort in OFF_EFFORTS else None


def resolve(toggle: Toggle | None, request: GenerationRequest) -> bool | None:
    """What ``toggle`` is for ``request``, its default included; None when the template has none."""
    if toggle is None:
        return None
    wanted = wish(toggle, request)
    return toggle.default if wanted is None else wanted


def reopen(prompt: str, reasoning: str, text: str) -> str:
    """The text that goes on from ``prompt`` for an assistant turn to be continued (spec text-pipeline 8, point 4).

    ``prompt`` may end with an opened block, with a closed one (thinking is off, so old reasoning has no place), or
    with neither.
    """
    tail = prompt.rstrip()
    if tail.endswith(CLOSER):
        return text
    opened = tail.endswith(OPENER)
    if not reasoning:
        return f"\n{CLOSER}\n\n{text}" if opened and text else text
    head = reasoning if opened else f"{OPENER}\n{reasoning}"
    return f"{head}\n{CLOSER}\n\n{text}" if text else head
