"""Calls that feed rows by themselves while they are read: what is told, and every way in which they end (DESIGN 6).

That rows find no memory (MemoryError) cannot be brought about here.
"""

import asyncio

import grpc
import pytest

from smg._native.stream_table import StreamTable
from smg.core.errors import GatewayError
from smg.core.stream import Counter, RowOutput, RowSpec
from smg.engines.transport.grpcio_tokens import GrpcioTokenTransport
from smg.engines.transport.h2 import H2Transport
from smg.engines.vllm.decode import VllmDecoder
from smg.text.stream_table import PythonStreamTable
from tests._native.test_grpc_stream import chunk, complete
from tests._native.test_stream_feed import TEMPLATE, WORDS, Pipe, bodies
from tests._native.test_stream_table import Recorder, Vocabulary
from tests.calls import failure

ONE, TWO = 0, 1


@pytest.fixture(params=[GrpcioTokenTransport, H2Transport], ids=["grpcio", "native"])
def transport(request):
    return request.param


@pytest.fixture
async def connect(transport):
    opened = []

    def make(url):
        opened.append(transport(url))
        return opened[-1]

    yield make
    for each in opened:
        await each.close()


class Reader:
    """A call whose rows go to ``sink`` (None: tapped rows, as for a buffered answer), and what reading it told."""

    def __init__(self, transport, address, sink, rows: int = 1, timeout: float | None = None) -> None:
        self.table = StreamTable(RowOutput)
        vocabulary, self.taps = Vocabulary(WORDS), [Recorder() for _ in range(rows)]
        self.rows = [self.table.open(RowSpec(choice=index), vocabulary, tap) for index, tap in enumerate(self.taps)]
        for row in self.rows if sink is not None else ():
            self.table.direct(row, sink, TEMPLATE, Counter())
        self.call = transport.generate("/t.T/Say", b"", timeout, layout=VllmDecoder.layout)
        self.prompt: list[int] = []
        self.cached = 0
        self.messages: list[bytes] = []
        self.pulls = 0

    async def begin(self) -> None:
        """Take what came before rows can be fed."""
        assert await self.pull()
        assert self.call.feed_rows(self.table, self.rows)

    async def pull(self) -> bool:
        """One read; what was not fed is fed here, as a generation does."""
        items = await self.call.read()
        self.pulls += 1
        for item in items:
            if isinstance(item, bytes):
                self.messages.append(item)
                continue
            self.prompt.append(item.prompt_tokens)
            self.cached = max(self.cached, item.cached_tokens)
            if item.ids:
                self.table.feed(self.rows[item.index], item.ids)
        return bool(items)

    async def finish(self) -> None:
        while await self.pull():
            pass

    @property
    def ids(self) -> list[int]:
        return list(self.table.ids(self.rows[0]))


def text(pipe: Pipe, received: bytes = b"") -> bytes:
    """All events a pipe got, whoever wrote them; only where the socket never filled up."""
    return bodies(received + pipe.received()) + b"".join(pipe.writes)


async def read_until(condition, pipe: Pipe) -> bytes:
    out = b""
    async with asyncio.timeout(5):
        while not condition(out := out + pipe.received()):  # noqa: ASYNC110 - a socket without a reader has no event
            await asyncio.sleep(0.005)
    return out


async def test_plain_chunks_go_to_the_socket_while_a_read_waits(kit, connect, pipe):
    go, end = asyncio.Event(), asyncio.Event()

    async def Say(request, context):
        yield chunk([ONE])
        await go.wait()
        for _ in range(50):
            yield chunk([TWO, ONE], prompt_tokens=3, cached_tokens=2)
        await end.wait()
        yield complete()

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, pipe)
        await reader.begin()
        reading = asyncio.create_task(reader.pull())
        go.set()
        received = await read_until(lambda raw: raw.count(b"two") == 50, pipe)
        assert not reading.done(), "Python sleeps"
        end.set()
        await reading
        assert (reader.messages, reader.prompt[-1], reader.cached) == ([complete()], 3, 2)
        await reader.finish()
    assert bodies(received) == b"<two ><one >" * 50
    assert pipe.writes == [b"<one >"], "what came before the rows were fed"
    assert reader.ids == [ONE, *[TWO, ONE] * 50]
    assert not pipe.lent


async def test_buffered_rows_are_fed_without_a_sink(kit, connect):
    async def Say(request, context):
        yield chunk([ONE])
        for _ in range(20):
            yield chunk([TWO], index=1)
            yield chunk([ONE])
        yield complete(1)
        yield complete(0)

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, None, rows=2)
        await reader.begin()
        await reader.finish()
    assert [tap.text for tap in reader.taps] == ["one " * 21, "two " * 20]
    assert reader.messages == [complete(1), complete(0)]


async def test_a_choice_that_is_not_fed_and_an_odd_id_come_to_the_reader(kit, connect, pipe):
    async def Say(request, context):
        yield chunk([ONE])
        yield chunk([TWO], index=7)
        yield chunk([ONE])
        yield complete()

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, pipe)
        await reader.begin()
        items = []
        while fresh := await reader.call.read():
            items += fresh
    assert (7, [TWO]) in [(item.index, item.ids) for item in items if not isinstance(item, bytes)]


async def test_a_reader_who_does_not_come_back_stops_the_engine(kit, connect, narrow):
    """The client's socket is full and whoever reads waits for it: read-ahead, windows, and no more."""
    sent = 0
    ids = [TWO] * 4000

    async def Say(request, context):
        nonlocal sent
        yield chunk([ONE])
        for _ in range(600):
            yield chunk(ids)
            sent += 1
        yield complete()

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, narrow)
        await reader.begin()
        await reader.pull()
        assert not narrow.lent, "the socket took no more"
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 250, "of 600"
        # The client reads again: all of it comes, in order, and once.
        while not reader.messages:
            narrow.received()
            await reader.pull()
        await reader.finish()
    assert reader.ids == [ONE, *ids * 600]


async def test_what_does_not_fit_the_socket_is_neither_lost_nor_doubled(kit, connect, narrow):
    async def Say(request, context):
        yield chunk([ONE])
        for _ in range(40):
            yield chunk([TWO] * 500)
        yield complete()

    out: list[bytes] = []
    narrow.write = lambda data: out.append(b"%x\r\n%b\r\n" % (len(data), data)) or True  # type: ignore[method-assign]
    lent = Pipe.give_back

    def give_back(rest: bytes) -> None:
        lent(narrow, rest)
        # What the socket took comes before the rest of its last chunk.
        out.append(narrow.received() + rest)

    narrow.give_back = give_back  # type: ignore[method-assign]
    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, narrow)
        await reader.begin()
        await reader.finish()
    assert bodies(b"".join(out)) == b"<one >" + b"<two >" * 20_000


async def test_cancelling_ends_the_read_that_feeds_and_resets_the_stream(kit, connect, pipe):
    ended = []

    go = asyncio.Event()

    async def Say(request, context):
        try:
            yield chunk([ONE])
            await go.wait()
            yield chunk([TWO])
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, pipe)
        await reader.begin()
        reading = asyncio.create_task(reader.pull())
        go.set()
        await kit.eventually(lambda: reader.ids == [ONE, TWO])
        reader.call.cancel()
        reader.call.cancel()
        with pytest.raises(GatewayError) as caught:
            await reading
        assert not caught.value.worker_fault
        assert not pipe.lent
        assert not reader.call.feed_rows(reader.table, reader.rows)
        await kit.eventually(lambda: ended == ["cancelled"])


async def test_rows_may_be_closed_while_the_call_still_runs(kit, connect, pipe):
    go = asyncio.Event()

    async def Say(request, context):
        yield chunk([ONE])
        await go.wait()
        yield chunk([TWO])
        yield complete()

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, pipe)
        await reader.begin()
        reading = asyncio.create_task(reader.call.read())
        await asyncio.sleep(0)
        reader.table.close(reader.rows[0])
        go.set()
        await reading
    assert pipe.writes == [b"<one >"]


async def test_a_deadline(kit, connect, pipe):
    go = asyncio.Event()

    async def Say(request, context):
        yield chunk([ONE])
        await go.wait()
        yield chunk([TWO], prompt_tokens=9, cached_tokens=4)
        await asyncio.Event().wait()

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, pipe, timeout=0.5)
        await reader.begin()
        go.set()
        with pytest.raises(GatewayError) as caught:
            await reader.finish()
    assert (caught.value.status, caught.value.code) == (504, "upstream_timeout")
    assert (reader.ids, reader.cached, text(pipe)) == ([ONE, TWO], 4, b"<two ><one >")


async def test_a_status_comes_after_what_was_fed_and_its_counts(kit, connect, pipe):
    go = asyncio.Event()

    async def Say(request, context):
        yield chunk([ONE])
        await go.wait()
        yield chunk([TWO], cached_tokens=4)
        await asyncio.sleep(0.05)
        await context.abort(grpc.StatusCode.INTERNAL, "CUDA error in /opt/engine/kernel.py")

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, pipe)
        await reader.begin()
        go.set()
        with pytest.raises(GatewayError) as caught:
            await reader.finish()
        with pytest.raises(GatewayError):
            await reader.pull()
    assert (caught.value.code, caught.value.worker_fault) == ("worker_stream_failed", True)
    assert "/opt" not in caught.value.message
    assert (reader.ids, reader.cached) == ([ONE, TWO], 4)


async def test_a_connection_that_breaks(kit, connect, pipe):
    go = asyncio.Event()

    async def Say(request, context):
        yield chunk([ONE])
        await go.wait()
        yield chunk([TWO])
        await asyncio.Event().wait()

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, pipe)
        await reader.begin()
        reading = asyncio.create_task(failure(reader.call))
        go.set()
        await kit.eventually(lambda: reader.ids == [ONE, TWO])
    error = await reading
    assert error.worker_fault
    assert reader.ids == [ONE, TWO]


async def test_a_transport_that_is_closed(kit, connect, pipe):
    go = asyncio.Event()

    async def Say(request, context):
        yield chunk([ONE])
        await go.wait()
        yield chunk([TWO])
        await asyncio.Event().wait()

    async with kit.serve("t.T", Say=Say) as address:
        transport = connect(address)
        reader = Reader(transport, address, pipe)
        await reader.begin()
        reading = asyncio.create_task(failure(reader.call))
        go.set()
        await kit.eventually(lambda: reader.ids == [ONE, TWO])
        await transport.close()
        await reading
    assert not pipe.lent


async def test_an_end_without_complete_is_told_as_the_end(kit, connect, pipe):
    async def Say(request, context):
        yield chunk([ONE])
        yield chunk([TWO])

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, pipe)
        await reader.begin()
        await reader.finish()
        assert not await reader.pull()
    assert (reader.messages, reader.ids) == ([], [ONE, TWO])


async def test_giving_up_a_read_loses_nothing_and_tells_nothing_twice(kit, connect, pipe):
    first, second = asyncio.Event(), asyncio.Event()

    async def Say(request, context):
        yield chunk([ONE])
        await first.wait()
        yield chunk([TWO], prompt_tokens=5, cached_tokens=3)
        await second.wait()
        yield chunk([ONE], prompt_tokens=6)
        yield complete()

    async with kit.serve("t.T", Say=Say) as address:
        reader = Reader(connect(address), address, pipe)
        await reader.begin()
        told = len(reader.prompt)
        reading = asyncio.create_task(reader.pull())
        await asyncio.sleep(0)
        first.set()
        await kit.eventually(lambda: reader.ids == [ONE, TWO])
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert not pipe.lent
        # Nobody reads: what comes now waits, and is not fed.
        second.set()
        await asyncio.sleep(0.1)
        assert reader.ids == [ONE, TWO]
        await reader.pull()
        assert (reader.prompt[told:], reader.cached) == ([5, 6], 3), "also of what was fed before"
        await reader.finish()
    assert reader.ids == [ONE, TWO, ONE]
    assert (text(pipe), reader.messages) == (b"<two ><one ><one >", [complete()])


async def test_a_table_in_python_is_not_fed(kit, connect):
    async def Say(request, context):
        yield chunk([ONE])
        yield chunk([TWO])
        yield complete()

    async with kit.serve("t.T", Say=Say) as address:
        call = connect(address).generate("/t.T/Say", b"", None, layout=VllmDecoder.layout)
        table = PythonStreamTable()
        row = table.open(RowSpec(), Vocabulary(WORDS), Recorder())
        items = list(await call.read())
        assert not call.feed_rows(table, [row])
        while fresh := await call.read():
            items += fresh
    assert [token for item in items if not isinstance(item, bytes) for token in item.ids] == [ONE, TWO]
