"""An idle client may ping: gateways do, every 30 s, and must not lose their connection for it."""

import asyncio
import struct

import pytest

from smg.engine_server.llama import LlamaEngine
from smg.engine_server.mock import MockEngine

_SETTINGS, _PING, _GOAWAY = 4, 6, 7
_ACK = 1


def frame(kind: int, flags: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, 0) + payload


async def read_frame(reader) -> tuple[int, int, bytes]:
    head = await reader.readexactly(9)
    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
    return head[3], head[4], payload


@pytest.mark.parametrize("make", [MockEngine, lambda: LlamaEngine(slots=1, context_length=128)], ids=["mock", "llama"])
async def test_pings_without_calls_are_answered_however_many(make):
    async with make() as engine:
        host, port = engine.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0))
        for number in range(12):
            wanted = struct.pack(">Q", number)
            writer.write(frame(_PING, 0, wanted))
            while True:
                kind, flags, payload = await asyncio.wait_for(read_frame(reader), 10)
                assert kind != _GOAWAY, payload
                if kind == _PING and flags & _ACK:
                    assert payload == wanted
                    break
                if kind == _PING:
                    writer.write(frame(_PING, _ACK, payload))
        writer.close()
        await writer.wait_closed()
