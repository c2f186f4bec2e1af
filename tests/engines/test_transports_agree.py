"""All transports bring the same generation and the same answer of every contract's engine (DESIGN 6).

``python`` is the oracle of the others: the generated contract reads each message and the table in Python each token.
"""

import asyncio
import contextlib
import random
import socket

import pytest

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Failure, Finish, Usage
from smg.core.request import Logprobs, StopRules
from smg.core.stream import ByteTemplate, Counter
from smg.engine_server.mock import Fault, MockEngine, Script, tokenizer
from smg.engines.table import adapter
from smg.engines.transport.base import TokenTransport
from smg.engines.transport.table import TRANSPORTS
from tests.engines.contracts import NAMES, driver_to, having
from tests.pairs.pools import PAIRED, TEXT, Pairs, eventually, pairs

RANDOM = random.Random(11)
LONG = [RANDOM.randrange(200) for _ in range(1500)]
READERS = [name for name in TRANSPORTS if name != "python"]
WORDS = "one two three four five six seven eight nine ten"

every = pytest.mark.parametrize("contract", NAMES)

CASES = {
    "one-token-each": (Script(tokens=LONG[:200], eos=False), {}),
    "long": (Script(tokens=LONG, eos=False, per_chunk=7), {}),
    "choices": (Script(choices=[LONG[:50], LONG[50:53], [], LONG[60:160]], eos=False), {"n": 4}),
    "empty-chunks": (Script(tokens=LONG[:40], eos=False, empty_chunks=True, late_cached=True, cached_tokens=9), {}),
    "cumulative": (Script(tokens=LONG[:40], eos=False, complete_ids="all", delta_counts=False), {}),
    "deltas": (Script(tokens=LONG[:40], eos=False, complete_ids="delta", delta_counts=True), {}),
    "told": (Script(tokens=LONG[:9], reasoning_tokens=5, weight_version="v2", spec_tokens=(3, 4), eos=False), {}),
    "matched": (Script(tokens=LONG[:10], matched_stop="END"), {}),
    "logprobs": (Script(tokens=LONG[:20], eos=False, per_chunk=3), {"logprobs": Logprobs(3)}),
    "prompt-logprobs": (Script(tokens=LONG[:20], eos=False), {"logprobs": Logprobs(3, prompt=True)}),
    "end-of-sequence": (Script(tokens=LONG[:10]), {}),
}


def has(contract: str, changes: dict) -> bool:
    """Whether the contract can be asked for a case."""
    wanted = changes.get("logprobs")
    asked = {"n": "n" in changes, "prompt_logprobs": wanted is not None and wanted.prompt}
    return {name for name, needed in asked.items() if needed} <= adapter(contract).capabilities


async def generation(transport, url, contract, request):
    """Per choice: ids, log probabilities, the end and the counts, however the batches were cut."""
    async with driver_to(url, contract, TRANSPORTS[transport]) as driver:
        source = await driver.open(RequestContext(request_id=request.id), request)
        out: dict[int, dict] = {}
        while batches := await source.next():
            for batch in batches:
                choice = out.setdefault(batch.index, {"ids": [], "logprobs": [], "prompt": [], "finish": None})
                choice["ids"] += batch.ids
                choice["logprobs"] += batch.logprobs or []
                choice["prompt"] += batch.prompt_logprobs or []
                choice["finish"] = choice["finish"] or batch.finish
                choice["end"] = (batch.matched_stop, batch.prompt_tokens, batch.cached_tokens)
                choice["more"] = (batch.reasoning_tokens, batch.spec_accepted_tokens, batch.spec_draft_tokens)
                choice["weights"] = batch.weight_version
        return out


@pytest.mark.parametrize(
    ("contract", "case"),
    [(contract, case) for contract in NAMES for case, (_, changes) in CASES.items() if has(contract, changes)],
)
async def test_the_same_generation(kit, contract, case):
    script, changes = CASES[case]
    async with MockEngine(script, contract=contract) as engine:
        request = kit.request(limits=kit.request().limits.__class__(max_tokens=5000), **changes)
        expected = await generation("python", engine.url, contract, request)
        for transport in READERS:
            assert await generation(transport, engine.url, contract, request) == expected, transport
        assert len(expected) == request.n
        assert all(choice["finish"] for choice in expected.values())


@every
async def test_plain_chunks_are_read_natively_and_others_by_the_contract(kit, contract):
    async with MockEngine(Script(tokens=LONG[:5], eos=False), contract=contract) as engine:
        for transport in READERS:
            assert issubclass(TRANSPORTS[transport], TokenTransport)
            async with driver_to(engine.url, contract, TRANSPORTS[transport]) as driver:
                for changes, plain in (({}, True), ({"logprobs": Logprobs(1)}, False)):
                    source = await driver.open(RequestContext(request_id="r"), kit.request(**changes))
                    assert (source._decoder.plain is not None) == plain
                    assert (source._call._layout is not None) == plain
                    assert [token for batch in await kit.drain(source) for token in batch.ids] == LONG[:5]


class Client:
    """A sink that lends a socket, and all that its client has got, in order, whoever wrote it."""

    def __init__(self) -> None:
        self._ours, self._peer = socket.socketpair()
        self._ours.setblocking(False)
        self._peer.setblocking(False)
        self._got = b""
        self.lent = 0

    def lend(self, feeder: object) -> int:
        self.lent += 1
        return self._ours.fileno()

    def give_back(self, rest: bytes) -> None:
        self._look()
        self._got += rest

    def write(self, data: bytes) -> bool:
        self._look()
        self._got += b"%x\r\n%b\r\n" % (len(data), data)
        return True

    async def drain(self) -> None: ...

    def close(self) -> bytes:
        """The content of all chunks."""
        self._look()
        self._ours.close()
        self._peer.close()
        out, raw = b"", self._got
        while raw:
            size, raw = raw.split(b"\r\n", 1)
            out, raw = out + raw[: int(size, 16)], raw[int(size, 16) + 2 :]
        return out

    def _look(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._got += self._peer.recv(1 << 20)


class Encoder:
    """Templates that name the choice: its text comes as ``<number:text>``."""

    def __init__(self) -> None:
        self.counter = Counter()

    def template(self, choice: int, kind: str = "text", call: int = 0) -> ByteTemplate:
        return ByteTemplate((b"<%d:" % choice, b">"), ("text",))


async def streamed(place: Pairs, **fields) -> tuple:
    """What a client gets of a direct stream, choice by choice, and what is accounted for it."""
    client, ends = Client(), []
    request = place.generation(stream=True, **fields)
    try:
        await request.start()
        assert request.direct(client, Encoder())
        async for events in request:
            ends += events
    finally:
        await request.aclose()
    shown = client.close()
    texts = [
        b"".join(part[3:] for part in shown.split(b">") if part.startswith(b"<%d:" % number))
        for number in range(fields.get("n", 1))
    ]
    assert sum(map(len, texts)) + 4 * shown.count(b">") == len(shown)
    finishes = sorted((end for end in ends if isinstance(end, Finish)), key=lambda end: end.choice)
    # One event for each token, however many came in one message: the cuts are the same too.
    return texts, shown.count(b">"), finishes, [e for e in ends if isinstance(e, Failure)], request.usage


async def buffered(place: Pairs, **fields) -> tuple:
    answer = await place.answer(**fields)
    return answer.choices, answer.usage


async def broken_off(place: Pairs, way: str, broken: str) -> Usage:
    """What is accounted for an answer whose engine has stopped in the middle, after what ``broken`` says."""
    client, ctx = Client(), RequestContext("r", endpoint="/t")
    request = place.generation(ctx, stream=way == "streamed")

    async def read() -> None:
        try:
            async for _ in request:
                pass
        finally:
            await request.aclose("client_disconnect")

    await request.start()
    if way == "streamed":
        assert request.direct(client, Encoder())
    reading = asyncio.create_task(read())
    await eventually(lambda: len(request._choices[0].taken) == 6)
    match broken:
        case "left":
            ctx.cancel.cancel("client_disconnect")
        case "late":
            ctx.cancel.cancel("deadline")
        case "silent":
            request._interrupt.fail(GatewayError("upstream_timeout", "silent", worker_fault=True))
        case "cancelled":
            reading.cancel()
    await asyncio.wait({reading})
    client.close()
    return request.usage


TOLD = Script.text(
    WORDS, cached_tokens=5, late_cached=True, reasoning_tokens=4, weight_version="v7", spec_tokens=(2, 3)
)


async def on_all(contract, use, names=("w1",), scripts=None, **fields):
    """The answer over each transport."""
    out = {}
    for transport in TRANSPORTS:
        async with pairs(contract, *names, scripts=scripts or {"w1": TOLD}, transport=transport) as place:
            out[transport] = await use(place, **fields)
            await eventually(place.idle)
    return out


def agreed(answers: dict[str, tuple]) -> tuple:
    """The one answer that all transports brought."""
    for transport in READERS:
        assert answers[transport] == answers["python"], transport
    return answers["python"]


@every
class TestAnswers:
    async def test_a_stream(self, contract):
        [text], events, finishes, failures, usage = agreed(await on_all(contract, streamed))
        assert text.decode() == WORDS
        assert (len(finishes), failures) == (1, [])
        assert events >= 10
        assert (usage.cached_tokens, usage.completion_tokens > 9) == (5, True)
        assert usage.reasoning_tokens == (4 if contract == "sglang" else 0)
        assert usage.weight_version == ("v7" if contract == "tokenspeed" else "")

    async def test_a_buffered_answer(self, contract):
        [choice], usage = agreed(await on_all(contract, buffered))
        assert (choice.text, usage.cached_tokens) == (WORDS, 5)

    async def test_a_stop_in_the_middle(self, contract):
        for use in (streamed, buffered):
            answer = agreed(await on_all(contract, use, stop=StopRules(strings=("six",))))
            assert b"seven" not in repr(answer[0]).encode()

    @pytest.mark.parametrize("kind", ["status", "eof"])
    async def test_a_stream_that_breaks_off_reports_all_that_the_engine_told(self, contract, kind):
        script = Script.text(
            WORDS,
            cached_tokens=5,
            late_cached=True,
            reasoning_tokens=4,
            weight_version="v7",
            faults=(Fault(kind=kind, after_chunks=6),),
        )
        [text], _, finishes, [failure], usage = agreed(await on_all(contract, streamed, scripts={"w1": script}))
        assert WORDS.startswith(text.decode())
        assert text
        assert (finishes, failure.status) == ([], 502)
        assert (usage.cached_tokens, usage.completion_tokens) == (5, 6)
        assert usage.reasoning_tokens == (4 if contract == "sglang" else 0)
        assert usage.weight_version == ("v7" if contract == "tokenspeed" else "")

    @pytest.mark.parametrize("way", ["streamed", "buffered"])
    @pytest.mark.parametrize("broken", ["left", "late", "silent", "cancelled"])
    async def test_what_an_engine_told_counts_however_its_answer_is_broken_off(self, contract, way, broken):
        script = Script.text(
            WORDS,
            cached_tokens=5,
            late_cached=True,
            reasoning_tokens=4,
            chunk_delay=0.002,
            faults=(Fault(kind="stall", after_chunks=6),),
        )
        usage = agreed(await on_all(contract, broken_off, scripts={"w1": script}, way=way, broken=broken))
        assert (usage.cached_tokens, usage.completion_tokens) == (5, 6)
        assert usage.reasoning_tokens == (4 if contract == "sglang" else 0)

    async def test_an_id_that_no_vocabulary_has_is_the_engines_failure(self, contract):
        scripts = {"w1": Script(tokens=[*tokenizer.encode_text("one two"), 1 << 31, 5], eos=False, chunk_delay=0.005)}
        for [text], _, finishes, [failure], _ in (await on_all(contract, streamed, scripts=scripts)).values():
            assert (finishes, failure.status, failure.code) == ([], 502, "worker_stream_failed")
            assert b"one two".startswith(text)

    async def test_another_engine_goes_on(self, contract):
        scripts = {
            "w1": Script.text(WORDS, cached_tokens=5, reasoning_tokens=2, faults=(Fault(after_chunks=6),)),
            "w2": Script.text(" and more", cached_tokens=9, reasoning_tokens=3, weight_version="v8"),
        }
        answers = await on_all(contract, streamed, ("w1", "w2"), scripts)
        [text], _, [finish], failures, usage = agreed(answers)
        assert text.startswith(b"one two")
        assert text.endswith(b"and more")
        assert (finish.reason, failures, usage.cached_tokens) == ("stop", [], 5)
        assert usage.reasoning_tokens == (5 if contract == "sglang" else 0)
        assert usage.weight_version == ("v8" if contract == "tokenspeed" else "")


@pytest.mark.parametrize("contract", having("n"))
async def test_choices_are_fed_each_to_its_row(contract):
    scripts = {"w1": Script.text(WORDS, "a shorter one", "", reasoning_tokens=2)}
    texts, *_ = agreed(await on_all(contract, streamed, scripts=scripts, n=3))
    assert texts == [WORDS.encode(), b"a shorter one", b""]
    choices, _ = agreed(await on_all(contract, buffered, scripts=scripts, n=3))
    assert [choice.text for choice in choices] == [WORDS, "a shorter one", ""]


@pytest.mark.parametrize("contract", PAIRED)
async def test_the_decode_engine_of_a_pair_feeds_rows(contract):
    scripts = {"p1": Script.text("never read"), "d1": Script.text(TEXT, reasoning_tokens=2)}
    for use in (streamed, buffered):
        answer = agreed(await on_all(contract, use, ("p1", "d1"), scripts))
        assert TEXT in repr(answer[0])


@every
@pytest.mark.parametrize("transport", READERS)
async def test_rows_are_fed_and_not_only_batches(contract, transport, monkeypatch):
    """Chunks that come one by one are no batches: only what needs Python is one."""
    script = Script.text(" ".join([WORDS] * 4), chunk_delay=0.005, weight_version="v1")
    async with pairs(contract, "w1", scripts={"w1": script}, transport=transport) as place:
        request, client, batches = place.generation(stream=True), Client(), []
        await request.start()
        assert request.direct(client, Encoder())
        source = request._running.source
        read = source.next

        async def next_() -> list:
            batches.append(await read())
            return batches[-1]

        monkeypatch.setattr(source, "next", next_)
        async for _ in request:
            pass
        await request.aclose()
        assert client.close().decode().count(">") >= 40
        told = [batch for pull in batches for batch in pull]
        assert sum(len(batch.ids) for batch in told) < 20
        assert len(batches) < 10
        assert told[-1].finish == "stop"
        assert isinstance(request.usage, Usage)
