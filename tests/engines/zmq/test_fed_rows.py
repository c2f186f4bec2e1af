"""Rows fed by an engine's steps over ZeroMQ: ids alone cost one native call, and answers are the same (DESIGN 6)."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from smg._native.inlet import Intake
from smg._native.stream_table import StreamTable
from smg.core.backends import feeds_rows
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import Limits, StopRules
from smg.core.stream import Counter, RowOutput, RowSpec
from smg.engine_server.mock import tokenizer
from smg.engines.zmq.address import parse
from smg.engines.zmq.driver import ZmqDriver
from smg.engines.zmq.source import ZmqSource
from smg.text.tables import make_table
from tests._native.test_stream_feed import TEMPLATE, bodies
from tests._native.test_stream_table import Recorder, Vocabulary
from tests.engines.test_transports_agree import buffered, streamed
from tests.engines.zmq.core import MockCore
from tests.engines.zmq.scheduler import MockScheduler
from tests.engines.zmq.test_zmq import LABELS, free_url, request, until
from tests.pairs.pools import Pairs
from tests.pipeline.fakes import world

ENGINES = {"vllm": MockCore, "tokenspeed": MockScheduler}
WORDS = "one two three four five six seven eight nine ten"
WORD_IDS = [*tokenizer.encode_text(WORDS), tokenizer.EOS]
VOCABULARY = Vocabulary([b"%d " % number for number in range(200)])


@pytest.fixture(params=ENGINES)
def contract(request):
    return request.param


class Place:
    """A worker's driver and the engine it is connected to."""

    def __init__(self, worker: ZmqDriver, core: MockCore) -> None:
        self.worker, self.core = worker, core

    async def open(self, **changes) -> ZmqSource:
        return await self.worker.open(changes.pop("ctx", RequestContext("q")), request(**changes))


@pytest.fixture
async def at(tmp_path, monkeypatch, contract):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    url = free_url()
    control, worker = ZmqDriver(url, 0, 2, LABELS), ZmqDriver(url, 1, labels=LABELS, runtime=contract)
    try:
        async with ENGINES[contract](parse(url).handshake) as core:
            await until(lambda: control._handshake.facts is not None)
            yield Place(worker, core)
    finally:
        await worker.close()
        await control.close()


class Rows:
    """Rows of a source's choices, direct to ``sink`` or tapped, and what reading it told."""

    def __init__(self, source: ZmqSource, sink=None, rows: int = 1) -> None:
        self.source = source
        self.table = StreamTable(RowOutput)
        self.taps = [Recorder() for _ in range(rows)]
        self.rows = [self.table.open(RowSpec(choice=index), VOCABULARY, tap) for index, tap in enumerate(self.taps)]
        for row in self.rows if sink is not None else ():
            self.table.direct(row, sink, TEMPLATE, Counter())
        self.ends: list[str] = []
        self.prompt = self.cached = self.alone = 0

    async def begin(self) -> None:
        """Take what came before rows can be fed."""
        assert await self.pull()
        self.alone = 0
        assert feeds_rows(self.source)
        assert self.source.feed_rows(self.table, self.rows)

    async def pull(self) -> bool:
        batches = await self.source.next()
        for batch in batches:
            self.prompt = max(self.prompt, batch.prompt_tokens)
            self.cached = max(self.cached, batch.cached_tokens)
            self.ends += [batch.finish] if batch.finish else []
            if batch.ids:
                self.alone += len(batch.ids)
                self.table.feed(self.rows[batch.index], batch.ids)
        return bool(batches)

    async def finish(self) -> None:
        while await self.pull():
            pass

    def ids(self, choice: int = 0) -> list[int]:
        return list(self.table.ids(self.rows[choice]))


def text(ids: list[int]) -> bytes:
    return b"".join(b"<%d >" % token for token in ids)


async def test_ids_alone_go_to_the_socket_while_a_read_waits(at, pipe):
    told = list(range(10, 70))
    at.core.tokens = lambda add: told
    at.core.delay = 0.005
    rows = Rows(await at.open(limits=Limits(60)), pipe)
    await rows.begin()
    reading = asyncio.create_task(rows.pull())
    await until(lambda: len(rows.ids()) >= 40)
    assert not reading.done(), "Python sleeps"
    await reading
    await rows.finish()
    assert (rows.ids(), rows.ends, rows.prompt, rows.cached) == (told, ["length"], 3, 1)
    assert rows.alone == 1, "the last one came with the end"
    assert b"".join(pipe.writes[:1]) + bodies(pipe.received()) + b"".join(pipe.writes[1:]) == text(told)
    assert not pipe.lent


async def test_buffered_rows_of_several_choices(at):
    at.core.tokens = lambda add: [40, 41, 42, 43, 44, 45]
    at.core.delay = 0.02
    rows = Rows(await at.open(n=3), None, rows=3)
    await rows.begin()
    await rows.finish()
    assert [rows.ids(choice) for choice in range(3)] == [[40, 41, 42, 43, 44, 45]] * 3
    assert [tap.text for tap in rows.taps] == ["40 41 42 43 44 45 "] * 3
    assert rows.ends == ["stop"] * 3


async def test_before_rows_are_fed_ids_of_several_steps_are_one_batch(at):
    at.core.tokens = lambda add: [40, 41, 42, 43]
    source = await at.open()
    await until(lambda: not at.worker._sources)
    batches = await source.next()
    assert [(batch.ids, batch.finish) for batch in batches] == [([40, 41, 42], None), ([43], "stop")]
    assert (batches[0].prompt_tokens, batches[0].cached_tokens) == (3, 1)
    assert not source.feed_rows(StreamTable(RowOutput), [])
    assert await source.next() == []


async def test_a_client_that_does_not_read_holds_up_nobody_and_loses_nothing(at, narrow):
    told = [10 + number % 90 for number in range(100)]
    at.core.tokens = lambda add: told
    stalled = Rows(await at.open(id="r1", limits=Limits(100)), narrow)
    await stalled.begin()
    while narrow.lent or not stalled.ends:
        # Its socket is full, and whoever reads waits for it: what comes waits in the gateway.
        if not await stalled.pull():
            break
    other = Rows(await at.open(id="r2"))
    await other.finish()
    await stalled.finish()
    assert stalled.ids() == told
    assert other.ids() == told[:64]
    shown = bodies(narrow.received() + b"".join(narrow.rests)) + b"".join(narrow.writes)
    assert sorted(shown.split(b">")) == sorted(text(told).split(b">"))


async def test_giving_up_a_read_loses_nothing_and_tells_nothing_twice(at, pipe):
    at.core.tokens = lambda add: [40, 41, 42]
    at.core.delay = 0.1
    rows = Rows(await at.open(), pipe)
    await rows.begin()
    reading = asyncio.create_task(rows.pull())
    await until(lambda: rows.ids() == [40, 41])
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    assert not pipe.lent
    await until(lambda: not at.worker._sources)
    assert rows.ids() == [40, 41], "nobody reads"
    await rows.finish()
    assert (rows.ids(), rows.ends) == ([40, 41, 42], ["stop"])
    assert pipe.writes[0] + bodies(pipe.received()) + b"".join(pipe.writes[1:]) == text([40, 41, 42])


@pytest.mark.parametrize("reason", ["stop", "client_disconnect"])
async def test_cancelling_ends_the_read_that_feeds(at, pipe, reason):
    at.core.tokens = lambda add: [40] * 60
    at.core.delay = 0.01
    rows = Rows(await at.open(), pipe)
    await rows.begin()
    reading = asyncio.create_task(rows.finish())
    await until(lambda: len(rows.ids()) > 3)
    await rows.source.cancel(reason)
    if reason == "stop":
        await reading
    else:
        with pytest.raises(GatewayError) as caught:
            await reading
        assert (caught.value.code, caught.value.worker_fault) == ("client_disconnected", False)
    assert not pipe.lent
    assert not rows.source.feed_rows(rows.table, rows.rows)
    await until(lambda: at.core.aborts == ["r"])


async def test_what_was_fed_is_told_also_when_the_read_was_broken_off(at, pipe):
    at.core.tokens = lambda add: [40] * 60
    rows = Rows(await at.open(), pipe)
    await rows.begin()
    at.core.stall = True
    reading = asyncio.create_task(rows.finish())
    await asyncio.sleep(0.05)
    rows.source.take(0, [41], 3, 7)
    assert rows.ids()[-1] == 41
    reading.cancel()
    await asyncio.wait({reading})
    [told] = rows.source.unsaid()
    assert (told.ids, told.prompt_tokens, told.cached_tokens) == ([], 3, 7)
    assert rows.source.unsaid() == []


async def test_the_deadline(at, pipe):
    at.core.tokens = lambda add: [40] * 60
    at.core.delay = 0.05
    ctx = RequestContext("q")
    ctx.deadline = asyncio.get_running_loop().time() + 0.3
    rows = Rows(await at.open(ctx=ctx), pipe)
    await rows.begin()
    with pytest.raises(GatewayError) as caught:
        await rows.finish()
    assert caught.value.code == "deadline_exceeded"
    assert 1 < len(rows.ids()) < 60


async def test_an_engine_that_dies_comes_after_what_was_fed(at, pipe):
    at.core.tokens = lambda add: [40] * 60
    at.core.delay = 0.02
    rows = Rows(await at.open(), pipe)
    await rows.begin()
    reading = asyncio.create_task(rows.finish())
    await until(lambda: len(rows.ids()) > 3)
    await at.core.__aexit__()
    with pytest.raises(GatewayError) as caught:
        await reading
    assert (caught.value.code, caught.value.worker_fault) == ("worker_failed", True)
    assert not pipe.lent
    assert pipe.writes[0] + bodies(pipe.received()) == text(rows.ids())


async def test_an_engine_that_gives_up(at, pipe):
    at.core.tokens = lambda add: [40] * 20
    at.core.delay = 0.02
    at.core.finish, at.core.ends = 3, "error"
    rows = Rows(await at.open(), pipe)
    await rows.begin()
    with pytest.raises(GatewayError) as caught:
        await rows.finish()
    assert (caught.value.code, caught.value.worker_fault) == ("worker_stream_failed", True)


@pytest.mark.parametrize("odd", [-1, 2**31, 2**32, 2**63])
async def test_ids_that_are_none_fail_only_their_request(at, odd):
    at.core.delay = 0.01
    for name, told in (("alone", [40, odd, 41]), ("last", [40, odd])):
        at.core.tokens = lambda add, told=told: told
        rows = Rows(await at.open(id=name))
        with pytest.raises(GatewayError, match="not an answer"):
            await rows.finish()
        assert rows.ids() in ([40], [])
    at.core.tokens = lambda add: [40]
    other = Rows(await at.open(id="r2"))
    await other.finish()
    assert other.ids() == [40]


class Cored(Pairs):
    """A pipeline in memory over an engine by ZeroMQ."""

    def __init__(self, driver: ZmqDriver, native: bool) -> None:
        made = world({"w1": []}, context_length=1000)
        self.services, self.fleet = made.services, made.fleet
        made.services.drivers = SimpleNamespace(get=lambda worker: driver)
        made.services.table = make_table(native)


@pytest.mark.parametrize("use", [streamed, buffered])
@pytest.mark.parametrize(
    ("fields", "shown"),
    [({}, WORDS), ({"stop": StopRules(strings=("six",))}, "one two three four five "), ({"n": 2}, WORDS)],
    ids=["plain", "stop", "choices"],
)
async def test_answers_are_those_of_the_table_in_python(at, use, fields, shown):
    at.core.tokens = lambda add: WORD_IDS
    answers = []
    for native in (False, True):
        place = Cored(at.worker, native)
        answers.append(await use(place, **fields))
        assert len(place.services.table) == 0
    assert answers[0] == answers[1]
    assert repr(answers[0]).count(repr(shown)[1:-1]) >= fields.get("n", 1)
    assert not at.worker._sources


async def test_tokens_cost_no_batch(at, monkeypatch):
    """What is fed: every token but the first ones and the last, which brings the end."""
    at.core.tokens = lambda add: WORD_IDS
    at.core.delay = 0.01
    put, pushed = [], []
    original = ZmqSource.put

    class Counting(Intake):
        def push_ids(self, index, ids, *counts):
            pushed.append(super().push_ids(index, ids, *counts))
            return pushed[-1]

    monkeypatch.setattr(ZmqSource, "put", lambda self, batch: put.append(batch) or original(self, batch))
    monkeypatch.setattr("smg.engines.zmq.source.Intake", Counting)
    await streamed(Cored(at.worker, True))
    assert len(put) == 1
    assert len(pushed) == len(WORD_IDS) - 1
    assert pushed == sorted(pushed, reverse=True), "once rows are fed, Python does not wake"
    assert not pushed[-1]
