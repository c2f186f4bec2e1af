"""Engines that hang: found by their probes or by a limit, and never mistaken for a slow client."""

import asyncio

import pytest

from smg.config.settings import RoutingSettings, Settings
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Failure, TextDelta
from smg.core.request import GenerationRequest, Message
from smg.pipeline.generation import Generation
from smg.pipeline.silence import OUT_SECS
from tests.pipeline.fakes import FOREVER, World, end, text, world

ANSWER = [[text("hello"), end()]]


@pytest.fixture
def now(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return now


def generation_of(place: World) -> Generation:
    request = GenerationRequest("test", "m", messages=[Message("user", "hi")])
    return Generation(place.services, RequestContext("r", endpoint="/t", started=0.0), request)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def silent_for(place: World, now: list[float], seconds: float) -> None:
    """Let time pass, with the looks that the watch task takes."""
    for _ in range(int(seconds / 0.5) + 1):
        place.services.silences.check()
        await settle()
        now[0] += 0.5


async def test_a_request_that_waits_for_an_engine_that_fails_its_probes_goes_elsewhere(now):
    place = world({"w1": [[FOREVER]], "w2": [ANSWER]})
    generation = generation_of(place)
    starting = asyncio.create_task(generation.start())
    await settle()
    await silent_for(place, now, 60)
    assert not starting.done(), "a long prompt is no fault"
    place.fleet.set("w1", "not_ready")
    await silent_for(place, now, OUT_SECS + 1)
    await asyncio.wait_for(starting, 5)
    assert [worker for worker, _ in place.drivers.opened] == ["w1", "w2"]
    assert place.drivers.cancelled == ["error"]
    await generation.aclose()
    assert place.idle()


async def test_a_stream_that_has_begun_goes_on_elsewhere(now):
    place = world({"w1": [[[text("he")], FOREVER]], "w2": [[[text("llo"), end()]]]})
    generation = generation_of(place)
    await generation.start()
    events = await anext(generation)
    pulling = asyncio.create_task(anext(generation))
    await settle()
    place.fleet.set("w1", "failed")
    await silent_for(place, now, OUT_SECS + 1)
    events += await asyncio.wait_for(pulling, 5)
    async for more in generation:
        events += more
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "hello"
    await generation.aclose()
    assert place.idle()


async def test_tokens_are_proof_of_life_whatever_the_probes_say(now):
    place = world({"w1": [[[text("a")], *[[text("b")]] * 50, [end()]]]})
    generation = generation_of(place)
    await generation.start()
    place.fleet.set("w1", "not_ready")
    events = []
    async for more in generation:
        events += more
        await silent_for(place, now, 1)
    assert not any(isinstance(event, Failure) for event in events)
    await generation.aclose()


async def test_a_client_that_does_not_read_is_not_the_engine_s_silence(now):
    place = world({"w1": [[[text("a")], [text("b"), end()]]]})
    generation = generation_of(place)
    await generation.start()
    await anext(generation)
    place.fleet.set("w1", "not_ready")
    await silent_for(place, now, 60)
    events = await anext(generation)
    assert TextDelta(0, "b") in events
    await generation.aclose()


async def test_silence_from_before_the_engine_went_out_does_not_count(now):
    place = world({"w1": [[FOREVER]]})
    generation = generation_of(place)
    starting = asyncio.create_task(generation.start())
    await settle()
    await silent_for(place, now, 30)
    place.fleet.set("w1", "not_ready")
    place.services.silences.check()
    await settle()
    assert not starting.done()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert place.idle()


class TestLimits:
    async def test_of_the_first_token(self):
        limited = Settings(routing=RoutingSettings(first_token_timeout_secs=0.05, retry_initial_backoff_ms=1))
        place = world({"w1": [[FOREVER]], "w2": [ANSWER]}, limited)
        generation = generation_of(place)
        await generation.start()
        assert [worker for worker, _ in place.drivers.opened] == ["w1", "w2"]
        await generation.aclose()
        assert place.idle()

    async def test_err_mapping_when_nobody_answers_in_time_it_is_a_504(self):
        limited = Settings(routing=RoutingSettings(first_token_timeout_secs=0.02, retry_max_retries=1))
        place = world({"w1": [[FOREVER]]}, limited)
        with pytest.raises(GatewayError) as caught:
            await generation_of(place).start()
        assert (caught.value.code, caught.value.status) == ("upstream_timeout", 504)
        assert place.idle()

    async def test_of_silence_in_the_middle(self, now):
        place = world({"w1": [[[text("a")], FOREVER]]}, Settings(routing=RoutingSettings(idle_timeout_secs=5)))
        generation = generation_of(place)
        await generation.start()
        await anext(generation)
        pulling = asyncio.create_task(anext(generation))
        await settle()
        await silent_for(place, now, 4)
        assert not pulling.done()
        await silent_for(place, now, 2)
        events = await asyncio.wait_for(pulling, 5)
        assert events[-1] == Failure("upstream_timeout", "the engine has stopped answering", 504)
        await generation.aclose()
        assert place.drivers.cancelled == ["error"]
        assert place.idle()
