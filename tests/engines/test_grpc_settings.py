"""What the gateway asks of the gRPC library by its environment (smg/engines/transport/__init__.py)."""

import asyncio
import subprocess
import sys

import pytest

from smg.engines.transport import grpcio
from smg.engines.transport.grpcio import GrpcioTransport
from tests.h2_peer import ACK, PING, answer, frame, serve_raw

PROGRAM = """
import os
import smg.engines.transport
import grpc

channel = grpc.insecure_channel("127.0.0.1:1")
channel.close()
print(os.environ["GRPC_EXPERIMENTS"])
"""


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment)


def test_the_library_knows_the_experiment_that_is_switched_off():
    found = run(GRPC_VERBOSITY="ERROR")
    assert found.stdout == "-event_engine_client\n"
    assert "experiment" not in found.stderr.lower()


def test_such_a_complaint_would_be_seen():
    assert "Unknown experiment: no_such_thing" in run(GRPC_EXPERIMENTS="no_such_thing").stderr


@pytest.mark.parametrize("own", ["event_engine_client", ""])
def test_an_operators_own_choice_wins(own):
    assert run(GRPC_EXPERIMENTS=own).stdout == f"{own}\n"


async def test_an_idle_connection_is_asked_for_a_sign_of_life(monkeypatch):
    """With a tenth of a second for the thirty: three pings, though no call runs and nothing is sent between them."""
    assert dict(grpcio._OPTIONS)["grpc.keepalive_time_ms"] == 30_000
    options = [(name, 100 if name == "grpc.keepalive_time_ms" else value) for name, value in grpcio._OPTIONS]
    monkeypatch.setattr(grpcio, "_OPTIONS", tuple(options))
    asked: list[bytes] = []
    enough = asyncio.Event()

    async def script(session):
        await session.greet()
        request = await session.request()
        session.send(answer(request.stream, b"done"))
        while True:
            ping = await session.until(PING)
            if not ping.flags & ACK:
                asked.append(ping.payload)
                session.send(frame(PING, ACK, payload=ping.payload))
            if len(asked) == 3:
                enough.set()

    async with serve_raw(script) as address:
        transport = GrpcioTransport(f"grpc://{address}")
        assert await transport.unary("/s/M", b"", 5) == b"done"
        await asyncio.wait_for(enough.wait(), 10)
        await transport.close()
