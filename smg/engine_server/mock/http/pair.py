"""What the body of a request for one of an SGLang pair says of the other (spec engine-contract 5.1, routing 5)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from smg.engine_server.mock.transfer import Meeting


def meetings(body: Mapping[str, Any]) -> list[Meeting]:
    """Where each generation of a request is handed over; none for a request without a pair."""
    rooms = body.get("bootstrap_room")
    if rooms is None:
        return []
    if not isinstance(rooms, list):
        return [Meeting(body["bootstrap_host"], body["bootstrap_port"], str(rooms))]
    places = zip(body["bootstrap_host"], body["bootstrap_port"], rooms, strict=True)
    return [Meeting(host, port, str(room)) for host, port, room in places]


def prompt_of(body: Mapping[str, Any]) -> bytes:
    """What both engines must have been sent alike."""
    return msgspec.json.encode([body.get(name) for name in ("messages", "prompt", "text", "input_ids")])
