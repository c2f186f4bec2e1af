"""What dies in the middle of answers, in every dialect, streamed and buffered: no half answer looks whole."""

import asyncio
import contextlib
import os
import signal
from collections import Counter
from typing import Any

import pytest

from smg.engine_server.mock import MockEngine, Script, encode_text
from tests.faults.every_dialect import KINDS, Dialect, End, ask
from tests.gateway import Gateway, running_async, settings, until_async

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ANSWER = " one two day over time there" * 6
IDS = encode_text(ANSWER)
# Seconds until something has gone wrong, however busy the machine is.
PATIENCE = 30.0
QUICK = ("--health-check-interval-secs", "0.2", "--worker-startup-check-interval", "0.1", "--policy", "round_robin")


def going_on(request, choice: int) -> list[int]:
    """As a model at temperature 0 does: the ids of ANSWER that the prompt does not have at its end yet."""
    prompt = list(request.tokenized.input_ids)
    done = next(count for count in range(len(IDS), -1, -1) if prompt[len(prompt) - count :] == IDS[:count])
    return IDS[done:]


def slow(seconds: float) -> MockEngine:
    """An engine whose answers take so long."""
    return MockEngine(Script(tokens=going_on, chunk_delay=seconds / len(IDS)))


@contextlib.asynccontextmanager
async def serving(tmp_path, *engines: MockEngine, flags: tuple[str, ...] = ()):
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine)
        configured = settings(tmp_path, "--worker-urls", *(engine.url for engine in engines), *QUICK, *flags)
        gateway = await stack.enter_async_context(running_async(configured))
        await until_async(lambda: gateway.metric("smg_worker_health") == len(engines), PATIENCE)
        yield gateway


class Answers:
    """Answers of all kinds at once, ``times`` of each, which ``engines`` give."""

    def __init__(self, gateway: Gateway, *engines: MockEngine, times: int = 1) -> None:
        self.kinds = KINDS * times
        self._engines = engines
        self._before = [len(engine.requests) for engine in engines]
        self._begun = 0
        self._tasks = [asyncio.create_task(self._ask(gateway, *kind)) for kind in self.kinds]

    async def _ask(self, gateway: Gateway, dialect: Dialect, stream: bool) -> End:
        return await ask(gateway.url, dialect, stream, began=self._begin)

    def _begin(self) -> None:
        self._begun += 1

    def _entries(self) -> list[Any]:
        """What the engines were asked for these answers."""
        return [entry for engine, at in zip(self._engines, self._before, strict=True) for entry in engine.requests[at:]]

    async def running(self) -> None:
        """Wait until the engines work on all of them and every stream has begun."""
        streams = sum(stream for _, stream in self.kinds)
        async with asyncio.timeout(PATIENCE):
            while len(self._entries()) < len(self.kinds) or self._begun < streams:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def ends(self) -> list[End]:
        return await asyncio.gather(*self._tasks)

    def states(self) -> Counter[str]:
        """How the engines' own requests ended."""
        return Counter("done" if entry.state == "done" else "stopped" for entry in self._entries())


async def idle(gateway: Gateway) -> None:
    """Wait until nothing is counted any more, in any process."""
    names = ("smg_requests_inflight", "smg_worker_requests_active")
    await until_async(lambda: not any(gateway.metric(name) for name in names), PATIENCE)


async def test_deaths_with_resume(tmp_path):
    """One gateway after the other death: of control and a worker, of an engine, and its own."""
    dying, other = slow(2), slow(2)
    async with serving(tmp_path, dying, other, flags=("--workers", "2")) as gateway:
        await kill_9_of_control_is_not_noticed_and_of_a_worker_cuts_its_own_answers_only(gateway, dying, other)
        dying.script = other.script = slow(1.2).script
        await an_engine_that_dies_is_followed_by_another_or_by_an_error_and_nothing_else(
            gateway, dying, other, resumes=True
        )
        other.script = slow(1).script
        await a_drain_waits_for_the_answers_of_every_dialect(gateway, other)


async def test_deaths_without_resume(tmp_path):
    dying, other = slow(1.2), slow(1.2)
    flags = ("--no-resume", "--shutdown-grace-period-secs", "0.3")
    async with serving(tmp_path, dying, other, flags=flags) as gateway:
        await an_engine_that_dies_is_followed_by_another_or_by_an_error_and_nothing_else(
            gateway, dying, other, resumes=False
        )
        other.script = slow(60).script
        await a_drain_that_has_waited_long_enough_ends_answers_with_an_error(gateway, other)


async def kill_9_of_control_is_not_noticed_and_of_a_worker_cuts_its_own_answers_only(gateway, *engines):
    answers = Answers(gateway, *engines, times=3)
    await answers.running()
    os.kill(gateway.child("control"), signal.SIGKILL)
    os.kill(gateway.child("worker-1"), signal.SIGKILL)
    ends = await answers.ends()

    assert {end.how for end in ends} == {"answer", "reset"}
    assert all(end.text == ANSWER for end in ends if end.how == "answer")
    assert all(ANSWER.startswith(end.text) for end in ends)
    whole = sum(end.how == "answer" for end in ends)
    assert answers.states() == {"done": whole, "stopped": len(ends) - whole}
    assert sum(engine.running for engine in engines) == 0
    await idle(gateway)
    await until_async(lambda: gateway.metric("smg_process_restarts_total") == 2, PATIENCE)
    await until_async(lambda: gateway.ready() and gateway.metric("smg_worker_health") == len(engines), PATIENCE)


async def an_engine_that_dies_is_followed_by_another_or_by_an_error_and_nothing_else(gateway, dying, other, *, resumes):
    answers = Answers(gateway, dying, other, times=2)
    await answers.running()
    hit = dying.running
    await dying.kill()
    ends = await answers.ends()

    assert 0 < hit < len(ends)
    failed = [end for end in ends if end.how == "error"]
    assert len(failed) == (0 if resumes else hit)
    assert {end.code for end in failed} <= {"worker_stream_failed", "server_error", ""}
    assert all(ANSWER.startswith(end.text) for end in failed)
    assert {end.text for end in ends if end not in failed} == {ANSWER}
    assert gateway.metric("smg_worker_resumes_total") == (hit if resumes else 0)
    await idle(gateway)
    assert other.running == 0


async def a_drain_waits_for_the_answers_of_every_dialect(gateway, engine):
    answers = Answers(gateway, engine)
    await answers.running()
    stopping = asyncio.create_task(asyncio.to_thread(gateway.server.stop))
    assert {end.text for end in await answers.ends()} == {ANSWER}
    assert await stopping == 0
    assert answers.states() == {"done": len(KINDS)}


async def a_drain_that_has_waited_long_enough_ends_answers_with_an_error(gateway, engine):
    answers = Answers(gateway, engine)
    await answers.running()
    stopping = asyncio.create_task(asyncio.to_thread(gateway.server.stop))
    ends = await answers.ends()
    assert {end.how for end in ends} == {"error"}
    assert {end.code for end in ends} <= {"shutting_down", "server_error", ""}
    assert await stopping == 0
    assert answers.states() == {"stopped": len(KINDS)}
