"""Engines that refuse, hang, are busy, die, flap and leave under load: no retriable request is lost (routing 12)."""

import asyncio
import contextlib
import os
import signal

import grpc
import httpx
import pytest

from smg.cli.fleet import connect
from smg.core.errors import GatewayError
from smg.engine_server.mock import Fault, MockEngine, Script, encode_text
from tests.api.serving import frames
from tests.engines_for_tests import engine_process, mock_process
from tests.gateway import Gateway, body, running_async, settings, wait_for

pytestmark = pytest.mark.e2e

ANSWER = " one two day over time there"
IDS = encode_text(ANSWER)
QUICK = (
    *("--health-check-interval-secs", "0.2", "--health-failure-threshold", "2"),
    *("--health-check-timeout-secs", "0.5", "--worker-startup-check-interval", "0.1"),
    *("--retry-initial-backoff-ms", "20", "--policy", "round_robin", "--log-level", "error"),
)


def going_on(request, choice: int) -> list[int]:
    """As a model at temperature 0 does: the ids of ANSWER that the prompt does not have at its end yet."""
    prompt = list(request.tokenized.input_ids)
    done = next(count for count in range(len(IDS), -1, -1) if prompt[len(prompt) - count :] == IDS[:count])
    return IDS[done:]


def script(*faults: Fault, **fields) -> Script:
    return Script(tokens=going_on, faults=faults, **fields)


@contextlib.asynccontextmanager
async def fleet(tmp_path, *engines: MockEngine, flags: tuple[str, ...] = ()):
    """A gateway in front of ``engines``, all of which are ready."""
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine)
        urls = [engine.url for engine in engines]
        gateway = await stack.enter_async_context(
            running_async(settings(tmp_path, "--worker-urls", *urls, *QUICK, *flags))
        )
        await until(gateway, lambda workers: [worker["status"] for worker in workers] == ["ready"] * len(urls))
        yield gateway


async def until(gateway: Gateway, condition, seconds: float = 10) -> None:
    """Wait until ``condition`` holds of the list of workers."""
    async with httpx.AsyncClient() as client, asyncio.timeout(seconds):
        while not condition((await client.get(f"{gateway.url}/workers")).json()["workers"]):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


class Clients:
    """Requests, streamed and buffered in turn; every one has to be answered in full."""

    def __init__(self, gateway: Gateway) -> None:
        self._url = f"{gateway.url}/v1/chat/completions"
        self._http = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=64))
        self.resumed = 0

    async def one(self, stream: bool) -> str:
        """What one request is answered with: the text, or what went wrong."""
        asked = body(model="mock-model", stream=stream)
        answer = await self._http.post(self._url, content=asked)
        if answer.status_code != 200:
            return f"{answer.status_code} {answer.text}"
        if not stream:
            self.resumed += "x-smg-resumed" in answer.headers
            return str(answer.json()["choices"][0]["message"]["content"])
        *chunks, last = frames(answer.content)
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        return text if last == "data: [DONE]" else f"{text} {last}"

    async def all_answered(self, count: int, at_once: int = 8) -> None:
        """Send ``count`` requests, so many at a time."""
        gate = asyncio.Semaphore(at_once)

        async def gated(number: int) -> str:
            async with gate:
                return await self.one(stream=number % 2 == 0)

        found = await asyncio.gather(*map(gated, range(count)))
        assert set(found) == {ANSWER}

    async def keep_on(self, stop: asyncio.Event) -> int:
        """Send requests until ``stop``; returns how many were answered."""
        count = 0
        while not stop.is_set():
            assert await self.one(stream=count % 2 == 0) == ANSWER
            count += 1
        return count


async def idle(gateway: Gateway) -> None:
    await until(gateway, lambda workers: all(worker["in_flight"] == 0 for worker in workers), 5)


async def test_refuse_an_engine_that_is_stopped_costs_no_request(tmp_path):
    good, bad = MockEngine(script()), MockEngine(script())
    async with fleet(tmp_path, good, bad) as gateway:
        clients, stop = Clients(gateway), asyncio.Event()
        running = [asyncio.create_task(clients.keep_on(stop)) for _ in range(6)]
        await asyncio.sleep(0.3)
        await bad.kill()
        await asyncio.sleep(1)
        await bad.start()
        await until(gateway, lambda workers: all(worker["status"] == "ready" for worker in workers))
        await clients.all_answered(20)
        stop.set()
        assert sum(await asyncio.gather(*running)) > 20
        await idle(gateway)


async def test_hang_an_engine_that_accepts_and_says_nothing_is_given_up(tmp_path):
    stall = Fault(kind="stall", after_chunks=0)
    async with fleet(
        tmp_path, MockEngine(script()), MockEngine(script(stall)), flags=("--first-token-timeout-secs", "0.3")
    ) as gateway:
        await Clients(gateway).all_answered(16)
        await idle(gateway)


async def test_hang_a_frozen_engine_loses_nobody_without_any_limit(tmp_path):
    with engine_process("mock", "--text", ANSWER) as (one, frozen), mock_process("--text", ANSWER) as two:
        flags = ("--worker-urls", f"grpc://{one}", f"grpc://{two}", *QUICK)
        async with running_async(settings(tmp_path, *flags)) as gateway:
            await until(gateway, lambda workers: [worker["status"] for worker in workers] == ["ready"] * 2)
            os.kill(frozen, signal.SIGSTOP)
            try:
                await Clients(gateway).all_answered(12)
            finally:
                os.kill(frozen, signal.SIGCONT)
            await idle(gateway)


async def test_RL_02_a_storm_of_429_goes_elsewhere_and_opens_no_breaker(tmp_path):
    full = Fault(status=grpc.StatusCode.RESOURCE_EXHAUSTED, message="no slot")
    busy, good = MockEngine(script(full)), MockEngine(script())
    async with fleet(tmp_path, busy, good, flags=("--cb-failure-threshold", "2")) as gateway:
        clients = Clients(gateway)
        await clients.all_answered(30)
        async with httpx.AsyncClient() as http:
            workers = (await http.get(f"{gateway.url}/workers")).json()["workers"]
        assert {worker["breaker"] for worker in workers} == {"closed"}
        page = await asyncio.to_thread(lambda: gateway.get("/metrics").text)
        assert 'outcome="backpressure"' in page
        busy.script, before = script(), len(busy.requests)
        await clients.all_answered(4)
        assert len(busy.requests) > before, "it is used again at once"
        assert all(entry.state == "done" for entry in busy.requests[before:])


async def test_RL_02_the_only_worker_s_429_is_passed_on_and_the_next_request_succeeds(tmp_path):
    full = Fault(status=grpc.StatusCode.RESOURCE_EXHAUSTED, message="no slot")
    engine = MockEngine(script(full))
    async with fleet(tmp_path, engine, flags=("--disable-retries", "--cb-failure-threshold", "1")) as gateway:
        async with httpx.AsyncClient() as http:
            url = f"{gateway.url}/v1/chat/completions"
            answer = await http.post(url, content=body(model="mock-model"))
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        engine.script = script()
        assert await Clients(gateway).one(stream=False) == ANSWER


@pytest.mark.parametrize("transport", ["grpcio", "native"])
async def test_cut_streams_go_on_where_they_were(tmp_path, transport):
    cuts = tuple(Fault(after_chunks=count, first=count) for count in (4, 2))
    engines = MockEngine(script(*cuts)), MockEngine(script(*cuts)), MockEngine(script())
    async with fleet(tmp_path, *engines, flags=("--engine-transport", transport)) as gateway:
        clients = Clients(gateway)
        await clients.all_answered(16, at_once=4)
        assert await asyncio.to_thread(gateway.metric, "smg_worker_resumes_total") >= 4
        assert clients.resumed >= 1
        await idle(gateway)


async def test_flap_health_that_comes_and_goes_costs_no_request(tmp_path):
    steady, flapping = MockEngine(script()), MockEngine(script())
    async with fleet(tmp_path, steady, flapping) as gateway:
        clients, stop = Clients(gateway), asyncio.Event()
        running = [asyncio.create_task(clients.keep_on(stop)) for _ in range(4)]
        for _ in range(4):
            flapping.script = script(healthy=False, serving=False)
            await asyncio.sleep(0.5)
            flapping.script = script()
            await asyncio.sleep(0.3)
        stop.set()
        assert sum(await asyncio.gather(*running)) > 10


async def test_drain_until_idle_under_load_streams_end_and_new_ones_go_elsewhere(tmp_path):
    slow, other = MockEngine(script(chunk_delay=0.1)), MockEngine(script())
    async with fleet(tmp_path, slow, other) as gateway:
        clients = Clients(gateway)
        streams = [asyncio.create_task(clients.one(stream=True)) for _ in range(8)]
        # All of them: a request that was on its way when the drain began would be counted as a new one.
        await asyncio.to_thread(
            wait_for, lambda: len(slow.requests) + len(other.requests) == 8, 10, "all streams on the engines"
        )
        async with httpx.AsyncClient() as http:
            await http.request("DELETE", f"{gateway.url}/workers/{slow.url.replace('/', '%2F')}")
            before = len(slow.requests)
            await clients.all_answered(10)
            assert set(await asyncio.gather(*streams)) == {ANSWER}
            assert len(slow.requests) == before
            assert {entry.state for entry in slow.requests} == {"done"}
        await until(gateway, lambda workers: [worker["url"] for worker in workers] == [other.url], 3)


async def test_all_breakers_open_requests_wait_for_them_and_none_is_lost(tmp_path):
    broken = Fault(status=grpc.StatusCode.INTERNAL, first=3)
    engines = MockEngine(script(broken)), MockEngine(script(broken))
    flags = ("--cb-failure-threshold", "2", "--cb-timeout-duration-secs", "0.3", "--retry-max-retries", "12")
    async with fleet(tmp_path, *engines, flags=flags) as gateway:
        clients, stop = Clients(gateway), asyncio.Event()
        await clients.all_answered(10, at_once=5)
        running = asyncio.create_task(clients.keep_on(stop))
        await until(gateway, lambda workers: {worker["breaker"] for worker in workers} == {"closed"})
        stop.set()
        await running
        assert await asyncio.to_thread(gateway.metric, "smg_worker_cb_transitions_total") >= 4


async def test_all_breakers_open_a_long_pause_is_told_at_once(tmp_path):
    engine = MockEngine(script(Fault(status=grpc.StatusCode.INTERNAL)))
    flags = ("--cb-failure-threshold", "1", "--disable-retries")
    async with fleet(tmp_path, engine, flags=flags) as gateway, httpx.AsyncClient() as http:
        url = f"{gateway.url}/v1/chat/completions"
        assert (await http.post(url, content=body(model="mock-model"))).status_code == 500
        answer = await http.post(url, content=body(model="mock-model"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_available_workers")
        assert 30 <= int(answer.headers["retry-after"]) <= 60


async def test_kill_9_of_a_process_leaves_no_load(tmp_path):
    stall = Fault(kind="stall", after_chunks=2)
    async with fleet(tmp_path, MockEngine(script(stall)), flags=("--workers", "2")) as gateway:
        control = await connect(str(tmp_path), None)

        async def load() -> int:
            with contextlib.suppress(GatewayError):
                return sum(worker["in_flight"] for worker in (await control.call("list"))["workers"])
            return -1

        clients = [asyncio.create_task(Clients(gateway).one(stream=True)) for _ in range(8)]
        async with asyncio.timeout(5):
            while await load() != 8:  # noqa: ASYNC110 - other processes count
                await asyncio.sleep(0.02)
        for role in ("worker-1", "worker-2"):
            os.kill(gateway.child(role), signal.SIGKILL)
        # One second, and what a busy machine takes for it.
        async with asyncio.timeout(2):
            while await load() != 0:  # noqa: ASYNC110 - other processes count
                await asyncio.sleep(0.02)
        await asyncio.gather(*clients, return_exceptions=True)


async def test_RL_08_a_dead_worker_in_the_list_is_no_obstacle_and_joins_when_it_is_up(tmp_path):
    late = MockEngine(script())
    address = await late.start()
    await late.stop()
    async with MockEngine(script()) as ok:
        flags = ("--worker-urls", ok.url, f"grpc://{address}", *QUICK)
        async with running_async(settings(tmp_path, *flags)) as gateway:
            await Clients(gateway).all_answered(4)
            await until(gateway, lambda workers: workers[1]["reason"].startswith("the engine is not reachable: "))
            async with httpx.AsyncClient() as http:
                [model] = (await http.get(f"{gateway.url}/v1/models")).json()["data"]
                found = (await http.get(f"{gateway.url}/workers")).json()["workers"]
            assert (model["id"], found[1]["status"]) == ("mock-model", "pending")
            await late.start()
            try:
                await until(gateway, lambda workers: workers[1]["status"] == "ready")
                await Clients(gateway).all_answered(4)
                assert late.requests
            finally:
                await late.stop()


async def test_a_fleet_can_be_built_and_taken_down_through_the_api(tmp_path):
    async with (
        MockEngine(script()) as engine,
        running_async(settings(tmp_path, *QUICK), ready=0) as gateway,
        httpx.AsyncClient(base_url=gateway.url) as http,
    ):
        await asyncio.to_thread(wait_for, lambda: gateway.get("/workers").status_code == 200, 10, "control answers")
        made = await http.post("/workers", json={"url": engine.url, "labels": {"zone": "x"}})
        assert made.status_code == 202
        place = made.headers["location"]
        await until(gateway, lambda workers: [worker["status"] for worker in workers] == ["ready"])
        await asyncio.to_thread(wait_for, gateway.ready, 10, "the gateway is ready")
        await Clients(gateway).all_answered(2)
        assert (await http.patch(place, json={"priority": 7})).status_code == 202
        worker = (await http.get(place)).json()
        assert (worker["priority"], worker["labels"]["zone"], worker["processed"]) == (7, "x", 2)
        assert (await http.post("/workers", json={"url": engine.url})).status_code == 409
        assert (await http.delete(place)).status_code == 202
        await until(gateway, lambda workers: workers == [])
        answer = await http.get(place)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "worker_not_found")
