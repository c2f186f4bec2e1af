"""What one token costs in the pump: from frames of an engine's connection to a row's text, or to a client's socket.

An engine's step brings one message of each running stream in one read. The connection is fed such reads by itself:
nothing here is network but the clients' sockets, whose peers read nothing and have room for everything. The column to
read is ``ns_per_token``; no call of Python is in it but one for each read.
"""

import contextlib
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb

from benchmarks.micro.test_text_native import STOPS, TEMPLATE, WORDS
from smg._native.h2 import Connection
from smg._native.stream_feed import StreamFeed
from smg.core.stream import ByteTemplate, Counter, RowSpec
from smg.text.tables import make_table, vocabulary
from tests import h2_peer as h2
from tests.h2_native import connected, opened

STREAMS = 64
# As many as the sockets have room for.
STEPS = 50
DECODER = vocabulary(WORDS)
# The same event with a running number, as those of Responses have one, in place of its time.
NUMBERED = ByteTemplate((*TEMPLATE.pieces[0].split(b"1700000000"), TEMPLATE.pieces[1]), ("sequence", "text"))
results: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def summary() -> Iterator[None]:
    yield
    print("\n\nns_per_token")
    for name, value in results.items():
        print(f"{value:12.0f}  {name}")


class Buffered:
    """Tap of an answer in one piece."""

    def on_output(self, row: int, output: object) -> None: ...


class Client(Buffered):
    """Sink with a socket of its own."""

    template = TEMPLATE

    def __init__(self) -> None:
        self.ours, self.peer = socket.socketpair()
        self.ours.setblocking(False)

    def lend(self, feeder: object) -> int:
        return self.ours.fileno()

    def give_back(self, rest: bytes) -> None:
        assert not rest, "the socket was full"

    def write(self, data: bytes) -> bool:
        raise AssertionError("the socket was full")

    async def drain(self) -> None: ...

    def close(self) -> None:
        self.ours.close()
        self.peer.close()


class Numbered(Client):
    """The same, of a dialect that numbers its events."""

    template = NUMBERED


def chunk(ids: list[int]) -> bytes:
    counts = {"prompt_tokens": 900, "completion_tokens": len(ids)}
    return pb.GenerateResponse(chunk=pb.GenerateStreamChunk(token_ids=ids, **counts)).SerializeToString()


@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("stops", [(), STOPS], ids=["no stops", "stops"])
@pytest.mark.parametrize("kind", [Buffered, Client, Numbered], ids=["buffered", "socket", "numbered"])
def test_engine_steps(benchmark: Any, kind: type[Buffered], stops: tuple[str, ...], size: int) -> None:
    draw = random.Random(3)
    messages = [h2.message(chunk(draw.choices(range(WORDS.size), k=size))) for _ in range(STREAMS + STEPS)]
    table, clients, feeds = make_table(), list[Client](), list[StreamFeed]()

    def finished() -> None:
        for feed in feeds:
            feed.pause()
        for row in range(len(feeds)):
            table.close(row)
        feeds.clear()
        for client in clients:
            client.close()
        clients.clear()

    def begun() -> tuple[tuple[Connection, list[bytes]], dict[str, Any]]:
        finished()
        connection = connected()
        streams = opened(connection, STREAMS, tokens=True)
        for stream in streams:
            client = kind()
            row = table.open(RowSpec(stop_strings=stops), DECODER, client)
            if isinstance(client, Client):
                clients.append(client)
                table.direct(row, client, client.template, Counter())
            feeds.append(StreamFeed(stream, table, [row]))
            feeds[-1].resume()
        reads = [
            b"".join(h2.data(stream.id, messages[step + place]) for place, stream in enumerate(streams))
            for step in range(STEPS)
        ]
        return (connection, reads), {}

    def run(connection: Connection, reads: list[bytes]) -> None:
        for read in reads:
            connection.feed(read)

    with contextlib.ExitStack() as stack:
        stack.callback(finished)
        benchmark.pedantic(run, setup=begun, rounds=40, iterations=1, warmup_rounds=2)
        assert all(len(table.ids(row)) == STEPS * size for row in range(STREAMS)), "tokens were lost"
    tokens = STREAMS * STEPS * size
    results[f"{size} a message, {len(stops)} stops, {kind.__name__.lower()}"] = benchmark.stats.stats.min / tokens * 1e9
    benchmark.extra_info["per_token"] = tokens
