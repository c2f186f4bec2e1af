"""Media parts on their way through a chat template (spec multimodal 2, text-pipeline 2.4).

A template that takes parts writes the model's placeholder itself. One that takes strings is given a mark where the
placeholder belongs, which is replaced when the template is done: before, the shield would take it for a special token
that a client has typed. Marks are random, so that no client can write one.
"""

import secrets
from collections.abc import Mapping

from smg.core.errors import bad_request
from smg.core.request import MediaPart

_SECRET = "".join(str(secrets.randbelow(10)) for _ in range(32))


def mark(part: MediaPart, placeholders: Mapping[str, str], path: str) -> str:
    """What stands for ``part`` in a string. Raises GatewayError (400) for a kind that has no placeholder."""
    _check(part, placeholders, path)
    return f"=~{part.kind}{_SECRET}~="


def entry(part: MediaPart, placeholders: Mapping[str, str], path: str) -> dict[str, str]:
    """What stands for ``part`` in a list of parts. Raises GatewayError as ``mark``."""
    _check(part, placeholders, path)
    return {"type": part.kind}


def unmark(prompt: str, placeholders: Mapping[str, str]) -> str:
    """Replace all marks of a rendered prompt by the placeholders of their kinds."""
    for kind, placeholder in placeholders.items():
        prompt = prompt.replace(f"=~{kind}{_SECRET}~=", placeholder)
    return prompt


def _check(part: MediaPart, placeholders: Mapping[str, str], path: str) -> None:
    if part.kind not in placeholders:
        raise bad_request(f"this model does not take {part.kind} input", part.path or path)
