"""What decoding a client's body costs before anything is done with it."""

import json
from typing import Any

import msgspec
import pytest

from smg.core import wire


class Body(msgspec.Struct):
    """The shape of a chat body, with messages left as they are."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool = False
    max_tokens: int | None = None
    temperature: float | None = None


def body(turns: int, max_tokens: float) -> bytes:
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": "What is the capital of France? " * 8} for i in range(turns)
    ]
    return json.dumps({"model": "m", "messages": messages, "stream": True, "max_tokens": max_tokens}).encode()


@pytest.mark.parametrize("turns", [1, 40])
def test_decode(benchmark, turns):
    assert benchmark(wire.decode, body(turns, 100), Body).stream


def test_decode_leniently(benchmark):
    """``max_tokens: 100.0`` takes the second pass."""
    assert benchmark(wire.decode, body(40, 100.0), Body).max_tokens == 100
