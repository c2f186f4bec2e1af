"""A large fleet is published and read part by part, and nobody sees more of that than a snapshot that comes later."""

import asyncio
from contextlib import contextmanager
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.region import Region
from smg.engines.base import EngineInfo
from smg.fleet import models, parts, policies, published, slots
from smg.fleet.parts import WorkerParts
from smg.fleet.published import AT_ONCE, PART, Published, Reading, encode, parts_of, read
from smg.fleet.records import FleetSnapshot, ModelRecord, RankRecord, WorkerRecord
from smg.fleet.registry import Registry
from smg.fleet.slots import REST_SECS, FreeSlots
from smg.fleet.sources import WorkerSpec
from smg.fleet.view import FleetView

COUNT = 6 * PART + 3


@contextmanager
def small_parts(size=4):
    """Parts of so few records that a short sequence of changes fills and empties many."""
    few = mock.patch.object(parts, "_FEW", size // 2)
    with few, mock.patch.object(parts, "PART", size), mock.patch.object(published, "PART", size):
        yield


def everything(reading):
    while reading.left:
        reading.step()
    return reading.snapshot()


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(1, 9)),
        st.tuples(st.sampled_from(["leave", "change", "same"]), st.integers(0, 99)),
        st.tuples(st.just("models"), st.integers(0, 12)),
        st.tuples(st.just("publish"), st.just(0)),
    ),
    max_size=60,
)


class Fleet:
    """Workers and models, kept as control keeps them and as a plain list."""

    def __init__(self):
        self.parts = WorkerParts()
        self.workers: list[WorkerRecord] = []
        self.models: list[ModelRecord] = []
        self.joined = self.version = 0
        self.changed: set[str] = set()

    def apply(self, change, number):
        if change == "join":
            for _ in range(number):
                worker = WorkerRecord(f"w{self.joined}", self.joined, f"grpc://a:{self.joined}")
                self.joined += 1
                self.workers.append(worker)
                self.parts.put(worker)
        elif change == "models":
            self.models = [ModelRecord(f"m{each}") for each in range(number)]
        elif self.workers:
            worker = self.workers[number % len(self.workers)]
            if change == "leave":
                self.workers.remove(worker)
                self.parts.drop(worker.id)
            else:
                if change == "change":
                    worker.reason += "x"
                    self.changed.add(worker.id)
                self.parts.touch(worker.id)

    def publish(self):
        self.version += 1
        return encode(Published(self.version, self.parts.packed(), parts_of(self.models)))


@given(CHANGES)
def test_any_changes_read_in_parts_give_what_the_whole_gives(changes):
    with small_parts():
        fleet, last, seen = Fleet(), Reading(), FleetSnapshot()
        for change, number in [*changes, ("publish", 0)]:
            if change != "publish":
                fleet.apply(change, number)
                continue
            blob = fleet.publish()
            reading = Reading(blob, last)
            found = everything(reading)
            assert found.workers == read(blob).workers == fleet.workers
            assert found.models == read(blob).models == fleet.models
            assert list(fleet.parts) == fleet.workers
            assert all(reading.worker(worker.id) is worker for worker in found.workers)
            before = {record.id: record for record in [*seen.workers, *seen.models]}
            for record in [*found.workers, *found.models]:
                if record.id in before and record.id not in fleet.changed:
                    assert record is before[record.id]
            # Only the reasons of statuses change here, apart from who is there.
            ids = [[record.id for record in one.workers + one.models] for one in (seen, found)]
            assert found.alike(seen) == (seen.version > 0 and ids[0] == ids[1])
            last, seen = reading, found
            fleet.changed.clear()


@given(st.lists(st.integers(0, 1000), max_size=200))
def test_parts_of_a_fleet_that_shrinks_do_not_stay_many_and_small(leaving):
    with small_parts(8):
        fleet = Fleet()
        fleet.apply("join", 200)
        for number in leaving:
            fleet.apply("leave", number)
        # Two neighbours that have few together become one.
        assert len(fleet.parts.packed()) <= 2 + len(fleet.workers) // 2


def test_only_parts_that_have_changed_are_packed_and_unpacked():
    fleet = Fleet()
    fleet.apply("join", COUNT)
    last = Reading(fleet.publish())
    everything(last)
    fleet.apply("change", PART + 1)
    assert fleet.parts.behind == 1
    assert Reading(fleet.publish(), last).left == 1
    fleet.apply("leave", 0)
    fleet.apply("join", 1)
    assert fleet.parts.behind == 2
    assert Reading(fleet.publish(), last).left == 3


@pytest.mark.parametrize(
    ("field", "value", "alike"),
    [
        ("status", "ready", True),
        ("reason", "slow", True),
        ("labels", {"zone": "b"}, False),
        ("features", frozenset({"n"}), False),
        ("priority", 60, False),
        ("ranks", [RankRecord(0, 7)], False),
    ],
)
def test_a_fleet_is_alike_when_only_statuses_have_changed(field, value, alike):
    fleet = Fleet()
    fleet.apply("join", 3)
    fleet.apply("models", 1)
    last = Reading(fleet.publish())
    before = everything(last)
    setattr(fleet.workers[1], field, value)
    fleet.parts.touch(fleet.workers[1].id)
    last = Reading(fleet.publish(), last)
    after = everything(last)
    assert (after.alike(before), before.alike(None)) == (alike, False)
    fleet.models[0].policy = "random"
    assert not everything(Reading(fleet.publish(), last)).alike(after)


class Turning:
    """Counts the loop's turns, and what is done in each."""

    def __init__(self):
        self.turn = 0
        self.done: dict[int, int] = {}

    def note(self, method):
        def noted(*args):
            self.done[self.turn] = self.done.get(self.turn, 0) + 1
            return method(*args)

        return noted

    async def run(self):
        while True:
            self.turn += 1
            await asyncio.sleep(0)


@pytest.fixture
def large():
    region = Region.create(3, workers=COUNT + 5, snapshot_bytes=1 << 22)
    registry = Registry(region)
    for number in range(COUNT):
        registry.add(WorkerSpec(f"grpc://10.0.0.1:{number + 1}"))
    registry.publish()
    yield region, registry
    region.close()


@pytest.fixture
async def turning():
    counted = Turning()
    task = asyncio.create_task(counted.run())
    yield counted
    task.cancel()


def change_all(registry, reason):
    for worker in registry.workers:
        registry.set_status(worker.id, "not_ready", reason)


def begun(region):
    view = FleetView(region)
    view.begin()
    return view


async def newer(view, than):
    """The first snapshot after ``than``, and every one that was seen on the way."""
    seen = []
    async with asyncio.timeout(20):
        while view.snapshot() is than:
            seen.append(view.snapshot())
            await asyncio.sleep(0)
    return view.snapshot(), seen


class TestReaders:
    async def test_a_large_change_is_read_a_part_per_turn_and_comes_as_a_whole(self, large, turning, monkeypatch):
        region, registry = large
        view, told = begun(region), []
        first = view.snapshot()
        assert len(first.workers) == COUNT
        view.on_change(told.append)
        monkeypatch.setattr(Reading, "step", turning.note(Reading.step))
        change_all(registry, "one")
        registry.publish()
        assert view.snapshot() is first
        second, _ = await newer(view, first)
        assert second.workers == registry.workers
        assert {worker.reason for worker in first.workers} == {""}
        assert (max(turning.done.values()), sum(turning.done.values())) == (1, COUNT // PART + 1)
        assert told == [second]
        assert view.worker(second.workers[-1].id) is second.workers[-1]

    async def test_what_is_published_meanwhile_comes_next(self, large):
        region, registry = large
        view = begun(region)
        first = view.snapshot()
        change_all(registry, "one")
        registry.publish()
        assert view.snapshot() is first
        change_all(registry, "two")
        registry.publish()
        second, _ = await newer(view, first)
        assert {worker.reason for worker in second.workers} == {"one"}
        third, _ = await newer(view, second)
        assert {worker.reason for worker in third.workers} == {"two"}
        assert third.version == region.snapshot_version()

    async def test_of_a_small_change_only_that_is_read(self, large, turning, monkeypatch):
        region, registry = large
        view = begun(region)
        first = view.snapshot()
        monkeypatch.setattr(Reading, "step", turning.note(Reading.step))
        registry.set_status(registry.workers[3].id, "ready")
        registry.publish()
        second, _ = await newer(view, first)
        assert second.workers[3].status == "ready"
        assert [old is new for old, new in zip(first.workers, second.workers, strict=True)].count(False) == 1
        assert sum(turning.done.values()) == 1

    async def test_the_first_snapshot_is_read_in_turns_as_well(self, large, turning, monkeypatch):
        region, registry = large
        view = FleetView(region)
        monkeypatch.setattr(Reading, "step", turning.note(Reading.step))
        nothing = view.snapshot()
        assert nothing.workers == []
        first, _ = await newer(view, nothing)
        assert first.workers == registry.workers
        assert (max(turning.done.values()), sum(turning.done.values())) == (1, COUNT // PART + 1)

    async def test_who_has_served_nobody_yet_reads_it_at_once(self, large):
        region, registry = large
        assert begun(region).snapshot().workers == registry.workers

    async def test_where_nothing_is_published_yet_there_is_nothing(self):
        region = Region.create(3, workers=8, snapshot_bytes=1 << 12)
        assert begun(region).snapshot().workers == []
        region.close()

    async def test_others_prepare_for_it_in_turns_before_it_is_the_current_one(self, large, turning):
        region, registry = large
        view, seen = begun(region), []
        first = view.snapshot()

        def prepare(snapshot):
            for _ in range(3):
                seen.append((turning.turn, snapshot, view.snapshot() is first))
                yield

        view.before_change(prepare)
        registry.set_status(registry.workers[3].id, "ready")
        registry.publish()
        second, _ = await newer(view, first)
        turns, snapshots, before = zip(*seen, strict=True)
        assert len(set(turns)) == 3
        assert set(map(id, snapshots)) == {id(second)}
        assert all(before)

    async def test_a_small_fleet_is_there_at_once(self):
        region = Region.create(3, workers=8, snapshot_bytes=1 << 14)
        registry = Registry(region)
        view = FleetView(region)
        view.before_change(lambda snapshot: pytest.fail("nobody waits for that"))
        for count in (1, 2):
            registry.add(WorkerSpec(f"grpc://a:{count}"))
            registry.publish()
            assert len(view.snapshot().workers) == count
        region.close()

    def test_where_no_loop_runs_everything_is_there_at_once(self, large):
        region, registry = large
        view = FleetView(region)
        view.snapshot()
        change_all(registry, "one")
        registry.publish()
        assert {worker.reason for worker in view.snapshot().workers} == {"one"}

    async def test_one_that_is_unreadable_leaves_the_last_in_force(self, large, caplog):
        region, registry = large
        view = begun(region)
        first = view.snapshot()
        bad = [published.Part(1000 + number, b"\xc1") for number in range(AT_ONCE + 1)]
        region.publish(encode(Published(99, bad)))
        for _ in range(200):
            assert view.snapshot() is first
            await asyncio.sleep(0.001)
        assert caplog.text.count("unreadable") == 1
        change_all(registry, "one")
        registry.publish()
        assert (await newer(view, first))[0].workers == registry.workers


class TestControl:
    async def test_few_parts_are_packed_between_two_turns_of_the_loop(self, large, turning, monkeypatch):
        region, registry = large
        change_all(registry, "one")
        monkeypatch.setattr(WorkerParts, "pack_one", turning.note(WorkerParts.pack_one))
        assert await registry.publish_in_turns() == COUNT // PART + 1
        assert sum(turning.done.values()) == COUNT // PART + 1
        assert max(turning.done.values()) <= AT_ONCE + 1
        assert read(region.snapshot()[1]).workers == registry.workers
        assert not registry.dirty.is_set()

    async def test_few_workers_are_looked_at_between_two_turns_of_the_loop(self, large, turning, monkeypatch):
        _, registry = large
        monkeypatch.setattr(models, "WORKERS", 16)
        monkeypatch.setattr(policies, "WORKERS", 16)
        registry.patch(registry.workers[0].id, {"labels": {"a": "b"}})
        monkeypatch.setattr(WorkerRecord, "wanted", property(turning.note(WorkerRecord.wanted.fget)))
        before = turning.turn
        await registry.publish_in_turns()
        # Each is looked at once for the model's other names, twice for its model, and once for its policy.
        assert turning.turn - before >= 3 * (COUNT // 16)
        assert sum(turning.done.values()) == COUNT
        assert max(turning.done.values()) <= 16

    async def test_what_is_told_of_a_model_while_models_are_derived_is_kept(self, large):
        region, registry = large
        registry.identify(registry.workers[0].id, "vllm", EngineInfo(model_id="m"))
        publishing = asyncio.create_task(registry.publish_in_turns())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        registry.set_tokenizer("m", "/somewhere", "key")
        await publishing
        assert [model.tokenizer_dir for model in read(region.snapshot()[1]).models] == ["/somewhere"]

    async def test_who_joins_while_models_are_derived_is_published_with_its_model(self, large):
        region, registry = large
        registry.identify(registry.workers[0].id, "vllm", EngineInfo(model_id="m"))
        publishing = asyncio.create_task(registry.publish_in_turns())
        for number in range(5):
            await asyncio.sleep(0)
            registry.identify(registry.workers[number].id, "vllm", EngineInfo(model_id=f"m{number}"))
        await publishing
        published = read(region.snapshot()[1])
        assert [model.id for model in published.models] == [f"m{number}" for number in range(5)]
        assert published.workers == registry.workers

    async def test_what_changes_while_it_is_packed_is_published_as_it_is_at_the_end(self, large):
        region, registry = large
        change_all(registry, "one")
        publishing = asyncio.create_task(registry.publish_in_turns())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        registry.remove(registry.workers[0].id)
        registry.set_status(registry.workers[-1].id, "ready", "two")
        await publishing
        assert read(region.snapshot()[1]).workers == registry.workers

    def test_the_slot_of_a_worker_that_has_left_a_large_fleet_rests(self, large):
        _, registry = large
        gone = registry.workers[0]
        registry.remove(gone.id)
        registry.publish()
        assert [registry.add(WorkerSpec(f"grpc://b:{port}")).slot for port in range(1, 6)] == [*range(COUNT, COUNT + 5)]
        # Nothing else is left.
        assert registry.add(WorkerSpec("grpc://b:6")).slot == gone.slot


def test_slots_that_have_rested_are_free_like_others(monkeypatch):
    free, now = FreeSlots([5, 3]), 100.0
    monkeypatch.setattr(slots.clock, "monotonic", lambda: now)
    free.give(1, rest=True)
    free.give(2, rest=True)
    assert free.take() == 3
    now += REST_SECS
    assert [free.take() for _ in range(3)] == [1, 2, 5]
    assert not free
