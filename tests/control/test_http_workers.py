"""Control in front of HTTP engines: found out, named, expanded into ranks, and their keys kept to itself."""

import asyncio
import contextlib

import pytest

from smg._native import region as table
from smg.config.settings import FleetSettings, ServerSettings, Settings
from smg.control.client import ControlClient
from smg.control.main import serve
from smg.engine_server.mock import MockEngine
from smg.engine_server.mock.http import HttpScript, MockHttpEngine
from smg.fleet.sources import StaticSource
from smg.fleet.view import FleetView


@pytest.fixture
def region():
    region = table.Region.create(3, workers=8)
    yield region
    region.close()


@contextlib.asynccontextmanager
async def controlling(region, tmp_path, *urls, **fleet):
    quick = {"health_check_interval_secs": 0.2, "health_failure_threshold": 2, "worker_startup_check_interval": 0.05}
    settings = Settings(
        fleet=FleetSettings(worker_urls=urls, **(quick | fleet)),
        server=ServerSettings(state_dir=str(tmp_path / "state"), shutdown_grace_period_secs=5.0),
    )
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings, region, (), stop))
    try:
        yield FleetView(region), ControlClient(settings.server.state_dir, region.boot_id)
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not (found := condition()):  # noqa: ASYNC110 - another process would write this too
            await asyncio.sleep(0.02)
    return found


def ready(view):
    """Workers that can be routed to: a status is seen at once, what goes with it with the next snapshot."""
    return {
        worker.url: worker for worker in view.snapshot().workers if worker.models and view.status(worker) == "ready"
    }


async def test_every_kind_of_server_is_found_out_and_named(region, tmp_path):
    async with (
        MockHttpEngine(HttpScript(models=("org/a", "adapter"), usage=0.5, waiting=2), server="vllm") as one,
        MockHttpEngine(HttpScript(models=("b",), running=1), server="sglang") as two,
        MockHttpEngine(HttpScript(models=("c",))) as three,
        MockEngine(model="d") as four,
        controlling(region, tmp_path, one.url, two.url, three.url, four.url) as (view, _),
    ):
        found = await until(lambda: len(ready(view)) == 4 and ready(view))
        assert {worker.runtime: (worker.kind, worker.models) for worker in found.values() if worker.kind == "raw"} == {
            "vllm": ("raw", ["org/a", "adapter"]),
            "sglang": ("raw", ["b"]),
            "openai": ("raw", ["c"]),
        }
        assert found[four.url].kind == "tokens"
        assert {model.id for model in view.snapshot().models} == {"org/a", "adapter", "b", "c", "d"}
        assert view.snapshot().model("org/a").context_length == 4096
        assert found[two.url].labels["disaggregation_mode"] == "null"
        assert "secret" not in str(view.snapshot())
        slot = found[one.url].slot
        await until(lambda: region.worker_get(slot, table.USAGE) == 500_000)
        assert region.worker_get(slot, table.WAITING) == 2


async def test_a_url_without_scheme_is_asked_in_both_ways_at_once(region, tmp_path):
    async with (
        MockHttpEngine(server="vllm") as http,
        MockEngine(model="d") as grpc,
        controlling(region, tmp_path, http.address, grpc.address) as (view, _),
    ):
        found = await until(lambda: len(ready(view)) == 2 and ready(view))
        assert (found[http.address].kind, found[http.address].runtime) == ("raw", "vllm")
        assert (found[grpc.address].kind, found[grpc.address].runtime) == ("tokens", "vllm")
        assert grpc.requests == http.requests == []


async def test_an_engine_that_dies_and_comes_back_as_another_kind(region, tmp_path):
    async with (
        MockHttpEngine(HttpScript(models=("a",)), server="vllm") as engine,
        controlling(region, tmp_path, engine.url) as (view, _),
    ):
        await until(lambda: ready(view))
        await engine.stop()
        await until(lambda: not ready(view))
        other = MockHttpEngine(HttpScript(models=("b",)), int(engine.address.split(":")[1]), server="sglang")
        async with other:
            found = await until(lambda: ready(view).get(engine.url))
            await until(lambda: ready(view)[engine.url].models == ["b"])
            assert ready(view)[engine.url].runtime == "sglang"
            assert found.id == ready(view)[engine.url].id


async def test_keys_are_used_and_never_shown(region, tmp_path):
    async with (
        MockHttpEngine(HttpScript(key="key-1", models=("a",))) as one,
        MockHttpEngine(HttpScript(key="key-2", models=("b",))) as two,
    ):
        keys = (f"{one.url}=key-1", "key-2")
        async with controlling(region, tmp_path, one.url, two.url, worker_api_key=keys) as (view, client):
            await until(lambda: len(ready(view)) == 2)
            assert {worker.api_key for worker in ready(view).values()} == {"key-1", "key-2"}
            assert "key-" not in str(await client.call("list"))


def test_a_key_for_nobody_is_a_mistake():
    with pytest.raises(ValueError, match="no worker has"):
        StaticSource(["http://a:1"], keys=["http://b:1=k"])


class TestRanks:
    async def test_RO_05_an_engine_is_one_worker_with_a_slot_for_each_rank(self, region, tmp_path):
        async with (
            MockHttpEngine(HttpScript(dp_size=3, running=1), server="sglang") as engine,
            controlling(region, tmp_path, engine.url, dp_aware=True) as (view, _),
        ):
            found = await until(lambda: set(ready(view)) == {engine.url} and ready(view))
            ranks = found[engine.url].ranks
            assert [rank.number for rank in ranks] == [0, 1, 2]
            # Load is each rank's own.
            await until(lambda: region.worker_get(ranks[2].slot, table.RUNNING) == 3)
            assert [region.worker_get(rank.slot, table.RUNNING) for rank in ranks[:2]] == [1, 2]

    async def test_RO_05_a_rank_behind_a_url_is_that_workers_only_one(self, region, tmp_path):
        async with MockHttpEngine(HttpScript(dp_size=3, running=1), server="sglang") as engine:
            url = f"{engine.url}@2"
            async with controlling(region, tmp_path, url) as (view, _):
                found = await until(lambda: set(ready(view)) == {url} and ready(view))
                assert [rank.number for rank in found[url].ranks] == [2]
                await until(lambda: region.worker_get(found[url].slot, table.RUNNING) == 3)

    async def test_without_the_flag_an_engine_is_one_worker(self, region, tmp_path):
        async with (
            MockHttpEngine(HttpScript(dp_size=3), server="sglang") as engine,
            controlling(region, tmp_path, engine.url) as (view, _),
        ):
            found = await until(lambda: set(ready(view)) == {engine.url} and ready(view))
            assert found[engine.url].ranks == []

    async def test_dp_vllm_http_engines_that_balance_by_themselves_stay_one_worker(self, region, tmp_path):
        async with (
            MockHttpEngine(HttpScript(dp_size=3), server="vllm") as engine,
            controlling(region, tmp_path, engine.url, dp_aware=True) as (view, _),
        ):
            await until(lambda: set(ready(view)) == {engine.url})
