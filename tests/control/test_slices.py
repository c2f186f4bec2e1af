"""Answers about thousands of workers never keep the event loop long: counted in work between two turns of it."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from smg._native.region import Region
from smg.control.admin import AdminServer, operations
from smg.control.client import ControlClient
from smg.control.frames import socket_path
from smg.control.slices import SLICE, sliced
from smg.fleet import registry as fleet_registry
from smg.fleet.registry import Registry
from smg.fleet.sources import WorkerSpec

COUNT = 10 * SLICE + 3


@pytest.fixture
def region():
    region = Region.create(processes=2, workers=COUNT, snapshot_bytes=1 << 22)
    yield region
    region.close()


class Fleet:
    """Describes workers, and notes how many between two turns of the loop."""

    def __init__(self, region):
        self.registry = Registry(region)
        for number in range(COUNT):
            self.registry.add(WorkerSpec(f"grpc://10.0.0.1:{number + 1}"))
        self.turn = 0
        self.described: dict[int, int] = {}

    def describe(self, worker):
        self.described[self.turn] = self.described.get(self.turn, 0) + 1
        return {"url": worker.url, "models": worker.models}

    async def turning(self):
        while True:
            self.turn += 1
            await asyncio.sleep(0)


@pytest.fixture
async def asked(region, tmp_path):
    fleet = Fleet(region)
    server = AdminServer(socket_path(str(tmp_path), 1), operations(fleet, region))
    await server.start()
    turning = asyncio.create_task(fleet.turning())
    yield fleet, ControlClient(str(tmp_path), 1)
    turning.cancel()
    await server.close()


@pytest.mark.parametrize("op", ["list", "workers"])
async def test_few_workers_are_described_between_two_turns_of_the_loop(asked, op):
    fleet, client = asked
    found = await client.call(op)
    assert sum(fleet.described.values()) == COUNT
    assert max(fleet.described.values()) <= SLICE
    urls = [worker.url for worker in fleet.registry.workers]
    workers = found["workers"] if op == "list" else msgspec.json.decode(b"[%b]" % b",".join(found["json"]))
    assert [worker["url"] for worker in workers] == urls


async def test_kinds_go_with_the_workers_of_one_model(asked):
    fleet, client = asked
    for worker in fleet.registry.workers[::2]:
        worker.models = ["m"]
    found = await client.call("workers", model="m")
    assert found["kinds"] == ["regular"] * (COUNT // 2 + 1)
    assert len(msgspec.json.decode(b"[%b]" % b",".join(found["json"]))) == COUNT // 2 + 1


async def test_of_nobody_there_are_empty_lists(region, tmp_path):
    fleet = SimpleNamespace(registry=Registry(region))
    async with asyncio.timeout(5):
        server = AdminServer(socket_path(str(tmp_path), 1), operations(fleet, region))
        await server.start()
        client = ControlClient(str(tmp_path), 1)
        assert await client.call("list") == {"workers": [], "models": []}
        assert await client.call("workers", model="m") == {"json": [], "kinds": []}
        assert await client.call("loads") == {"json": []}
        await server.close()


async def test_who_leaves_meanwhile_is_left_out(asked):
    fleet, _ = asked
    last = fleet.registry.workers[-1]
    parts = await operations(fleet, fleet.registry._region)["list"]({})
    await anext(parts)
    fleet.registry.remove(last.id)
    seen = [worker async for part in parts for worker in part.get("workers", ())]
    assert last.url not in [worker["url"] for worker in seen]
    assert len(seen) == COUNT - 1


async def test_what_breaks_half_way_is_an_error_and_no_shorter_list(asked, monkeypatch):
    fleet, client = asked

    def describe(worker):
        if worker is fleet.registry.workers[-1]:
            raise RuntimeError("broken")
        return {}

    monkeypatch.setattr(fleet, "describe", describe)
    with pytest.raises(Exception, match="the operation failed"):
        await client.call("workers")


async def test_slices_make_up_the_whole():
    parts = [part["all"] async for part in sliced(range(COUNT), lambda some: {"all": list(some)})]
    assert [number for part in parts for number in part] == list(range(COUNT))
    assert max(map(len, parts)) == SLICE


def test_models_are_derived_once_for_many_workers_that_join(region, monkeypatch):
    derived = []
    real = fleet_registry.derive
    monkeypatch.setattr(fleet_registry, "derive", lambda *arguments: derived.append(1) or real(*arguments))
    registry = Registry(region)
    for number in range(COUNT):
        registry.add(WorkerSpec(f"grpc://10.0.0.1:{number + 1}"))
    assert (len(registry.models), len(registry.models), len(derived)) == (0, 0, 1)
