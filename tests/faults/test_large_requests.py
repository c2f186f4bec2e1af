"""Large requests (a long prompt, an image's pixels) whose engine dies, stops reading or loses its gateway: nobody waits
in vain, what can go elsewhere does, and nothing is left (case RL-03)."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from tests.faults.engine_on_a_port import Engine
from tests.faults.every_dialect import CHAT, KINDS, QUESTION, Dialect, ask
from tests.faults.test_disconnects import rss
from tests.gateway import Gateway, running, settings, until_async
from tests.media.models import QWEN, data_url, png
from tests.media.test_end_to_end import share_kernels

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PATIENCE = 30.0
MIB = 1 << 20
# More ids than an engine that does not read has room for (its HTTP/2 window), and a request of more than 64 KiB.
LONG = " the sea" * 100_000
CONTEXT = "1000000"
# Bytes of such an image in a request: three colours, twice, as its family wants it.
PIXELS = 3 * 1000 * 1000 * 2 * 4
AT_ONCE, ROUNDS = 6, 6
NAMES = ("one", "two", "alone")


class Place(NamedTuple):
    """A gateway before engines ``one`` and ``two``, which serve one model, and ``alone``, which has its own.

    ``common`` are the flags that all engines have.
    """

    gateway: Gateway
    engines: dict[str, Engine]
    common: tuple[str, ...]

    def selected(self, *names: str) -> int:
        """How many attempts were made on these engines."""
        urls = {self.engines[name].url for name in names}
        ids = [worker["id"] for worker in self.gateway.get("/workers").json()["workers"] if worker["url"] in urls]
        lines = self.gateway.get("/metrics").text.splitlines()
        told = [
            line for line in lines if line.startswith("smg_worker_selection_total") and any(id in line for id in ids)
        ]
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in told)

    def active(self) -> int:
        return int(self.gateway.metric("smg_worker_requests_active"))

    async def idle(self) -> None:
        """Wait until nothing is counted any more, in any process, and no engine is at work."""
        names = ("smg_worker_requests_active", "smg_requests_inflight")
        counts: dict[str, float] = {}

        def nothing() -> bool:
            counts.update({name: self.gateway.metric(name) for name in names}, engines=self.gateway.engine_running())
            return not any(counts.values())

        try:
            await until_async(nothing, PATIENCE)
        except TimeoutError:
            raise AssertionError(f"{counts} are left") from None

    async def all_healthy(self) -> None:
        await until_async(lambda: self.gateway.metric("smg_worker_health") == len(NAMES), PATIENCE)


@pytest.fixture(scope="module", params=["native", pytest.param("grpcio", marks=pytest.mark.full)])
def place(request, tmp_path_factory) -> Iterator[Place]:
    """One for all tests of a transport: each ends with all engines back."""
    state = tmp_path_factory.mktemp("state")
    share_kernels(state)
    common = ("--bundle", str(QWEN.write(tmp_path_factory.mktemp("model"))), "--context-length", CONTEXT)
    engines = {
        # It takes for ever, until it is started anew.
        "one": Engine(*common, "--delay-first-ms", "600000"),
        "two": Engine(*common),
        "alone": Engine(*common, "--model", "alone"),
    }
    configured = settings(
        state,
        *("--worker-urls", *(engine.url for engine in engines.values())),
        *("--engine-transport", request.param, "--policy", "round_robin"),
        *("--health-check-interval-secs", "0.5", "--health-failure-threshold", "1000"),
        *("--cb-failure-threshold", "1000", "--mm-pixel-cache-mb", "0", "--multimodal-tensor-transport", "inline"),
    )
    with contextlib.ExitStack() as stack:
        for engine in engines.values():
            engine.launch()
            stack.callback(engine.kill)
        for engine in engines.values():
            engine.ready()
        started = Place(stack.enter_context(running(configured)), engines, common)
        asyncio.run(warmed(started))
        yield started


async def warmed(place: Place) -> None:
    """Have kernels compiled and connections stand."""
    for kind in (LARGE[1], LARGE[3], LARGE[1], LARGE[3]):
        [end] = await asyncio.gather(*begin(place, kind, model="alone", timeout=200.0))
        assert end.how == "answer"


@pytest.fixture(autouse=True)
async def all_back(place: Place):
    await place.all_healthy()
    yield
    for engine in place.engines.values():
        engine.go_on()
    await place.idle()


def long(dialect: Dialect) -> Dialect:
    """The dialect's question with a long prompt."""
    return dialect._replace(asks=json.loads(json.dumps(dialect.asks).replace(QUESTION, LONG)))


def seen(number: int) -> Dialect:
    """A question about a picture."""
    url = data_url(png(1000, 1000 + number))
    content = [{"type": "image_url", "image_url": {"url": url}}]
    return CHAT._replace(asks={"messages": [{"role": "user", "content": content}]})


LARGE = ((long(CHAT), True), (long(CHAT), False), (seen(0), True), (seen(1), False))


def begin(
    place: Place, *kinds: tuple[Dialect, bool], model: str = "mock-model", timeout: float = 2 * PATIENCE
) -> list[asyncio.Task]:
    return [
        asyncio.create_task(ask(place.gateway.url, dialect, stream, model=model, timeout=timeout))
        for dialect, stream in kinds
    ]


async def test_another_engine_gets_what_one_was_killed_over(place: Place):
    async def begun() -> list[asyncio.Task]:
        before = place.selected("one", "two")
        asking = begin(place, *LARGE)
        await until_async(lambda: place.selected("one", "two") == before + len(LARGE), PATIENCE)
        return asking

    async def all_answered(asking: list[asyncio.Task]) -> None:
        ends = await asyncio.gather(*asking)
        assert {end.how for end in ends} == {"answer"}, ends
        assert all(end.text for end in ends)

    def retries() -> float:
        return place.gateway.metric("smg_worker_retries_total")

    dying = place.engines["one"]
    asking = await begun()
    await until_async(lambda: place.gateway.engine_running() == len(LARGE) // 2, PATIENCE)
    dying.kill()  # while it computes
    await all_answered(asking)
    assert retries() == len(LARGE) // 2

    dying.start(*place.common)
    await place.all_healthy()
    for kind in LARGE[1::2]:
        await all_answered(begin(place, kind, kind))
    assert retries() == len(LARGE) // 2, "its connection is made anew"

    dying.pause()
    asking = await begun()
    dying.kill()  # while it receives
    await all_answered(asking)
    assert retries() == len(LARGE)
    dying.start()
    await place.all_healthy()
    await place.idle()


async def test_without_another_engine_it_is_an_error_in_the_dialects_form(place: Place):
    alone = place.engines["alone"]
    alone.pause()
    kinds = [(long(dialect), stream) for dialect, stream in KINDS]
    asking = begin(place, *kinds, (seen(0), False), model="alone")
    await until_async(lambda: place.active() == len(asking), PATIENCE)
    alone.kill()
    ends = await asyncio.gather(*asking)

    # Nothing had been sent, so streams, too, are answered with a status.
    assert {(end.how, end.code) for end in ends} == {("error", "worker_failed")}
    alone.start()
    await place.all_healthy()
    [end] = await asyncio.gather(*begin(place, kinds[0], model="alone"))
    assert end.how == "answer"


async def test_what_an_engine_does_not_read_is_given_up_with_its_client(place: Place):
    alone, worker, sizes = place.engines["alone"], place.gateway.child("worker-1"), []
    aborts = place.gateway.metric("smg_engine_aborts_total")
    alone.pause()
    for _ in range(ROUNDS):
        asking = begin(place, *[(seen(number), number % 2 == 0) for number in range(AT_ONCE)], model="alone")
        await until_async(lambda asking=asking: place.active() == len(asking), PATIENCE)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        await until_async(lambda: place.active() == 0, PATIENCE)
        sizes.append(rss(worker))
    # The heap keeps what a round took, whoever may use it next; but not all that all of them took.
    most = sizes[1] + (ROUNDS - 2) * AT_ONCE * PIXELS / 2
    try:
        await until_async(lambda: rss(worker) < most, PATIENCE)
    except TimeoutError:
        raise AssertionError(f"{[size // MIB for size in sizes]} MiB after each round") from None
    assert place.gateway.metric("smg_engine_aborts_total") - aborts == ROUNDS * AT_ONCE
    alone.go_on()
    await place.idle()
    [end] = await asyncio.gather(*begin(place, (seen(0), False), model="alone"))
    assert end.how == "answer"


async def test_an_engine_outlives_a_gateways_worker_that_was_killed_while_it_sent(place: Place):
    alone, restarts = place.engines["alone"], place.gateway.metric("smg_process_restarts_total")
    alone.pause()
    asking = begin(place, *LARGE, *LARGE, model="alone")
    await until_async(lambda: place.active() == len(asking), PATIENCE)
    os.kill(place.gateway.child("worker-1"), signal.SIGKILL)
    assert {end.how for end in await asyncio.gather(*asking)} == {"reset"}
    alone.go_on()

    async def answered() -> bool:
        with contextlib.suppress(httpx.TransportError):
            [end] = await asyncio.gather(*begin(place, LARGE[1], model="alone"))
            return end.how == "answer"
        return False

    async with asyncio.timeout(PATIENCE):
        while not await answered():
            pass
    await until_async(lambda: place.gateway.metric("smg_process_restarts_total") == restarts + 1, PATIENCE)
