"""Who serves what is worked out in steps before a new snapshot is the current one (field case PF-02)."""

import pytest
from msgspec.structs import replace

from smg.core.errors import GatewayError
from smg.fleet.records import FleetSnapshot, ModelRecord
from smg.routing import needs, serving
from smg.routing.router import Query
from tests.routing.fleets import FakeFleet
from tests.routing.routers import prompt, router_of, serve

WORKERS = [f"w{number:02}" for number in range(25)]
NEEDY = Query("qwen", needs=frozenset({"generate"}))


def fleet_of(models: dict[str, list[str]]) -> FakeFleet:
    """A fleet whose workers say what they can do."""
    fleet = FakeFleet(models)
    for worker in fleet.workers.values():
        worker.features = frozenset({"generate"})
    return fleet


def without(fleet: FakeFleet, name: str) -> FleetSnapshot:
    """The next snapshot, which has lost a worker."""
    now = fleet.snapshot()
    return replace(now, version=now.version + 1, workers=[worker for worker in now.workers if worker.id != name])


def test_no_step_looks_at_more_workers_than_a_slice(monkeypatch):
    monkeypatch.setattr(serving, "SLICE", 10)
    fleet = fleet_of({"qwen": WORKERS})
    made = serving.Serving(fleet.snapshot(), fleet.region)
    read = [len(made._by_name["qwen"]) for _ in made.prepare(made)]
    assert read == [10, 20, 25]


def test_after_the_steps_a_request_works_nothing_out(monkeypatch):
    fleet = fleet_of({"qwen": WORKERS})
    router = router_of(fleet, "prefix_hash")
    router.release(router.select(replace(prompt(1), needs=NEEDY.needs)), "ok")
    coming = without(fleet, "w03")
    # Two for who serves it and by which policy, one for its pools, two for what requests asked for.
    assert [1 for _ in router.prepare(coming)] == [1] * 5
    fleet._snapshot = coming

    made, asked = [], []
    monkeypatch.setattr(serving, "Pools", lambda *arguments: made.append(arguments))
    missing = needs.missing
    monkeypatch.setattr(needs, "missing", lambda *arguments: asked.append(arguments) or missing(*arguments))
    lease = router.select(replace(prompt(1), needs=NEEDY.needs))
    assert made == []
    # What the chosen one lacks of the wishes.
    assert asked == [(lease.worker, frozenset())]
    assert router.count(NEEDY) == 24


def test_what_was_prepared_says_the_same_as_what_is_worked_out_at_once():
    fleet = fleet_of({"qwen": WORKERS[:9], "llama": WORKERS[5:]})
    router = router_of(fleet, "round_robin")
    for model in ("qwen", "llama"):
        serve(router, prompt(1, model=model))
    fleet_snapshot = without(fleet, "w07")
    for _ in router.prepare(fleet_snapshot):
        pass
    fleet._snapshot = fleet_snapshot
    fresh = router_of(fleet, "round_robin")
    for model in ("qwen", "llama"):
        prepared, made = ([place.id for place in one._pools(model).regular.everyone] for one in (router, fresh))
        assert prepared == made
        assert "w07" not in made
    assert router.kinds() == fresh.kinds() == {"tokens"}


def test_models_that_nobody_asked_for_and_those_that_are_gone_wait_for_a_request():
    fleet = fleet_of({"qwen": WORKERS[:5], "llama": WORKERS[5:10], "gone": WORKERS[10:]})
    router = router_of(fleet, "round_robin")
    for model in ("qwen", "gone"):
        serve(router, prompt(1, model=model))
    coming = replace(fleet.snapshot(), version=2, models=[ModelRecord("llama"), ModelRecord("qwen")])
    for _ in router.prepare(coming):
        pass
    assert list(router._coming._pools) == ["qwen"]
    fleet._snapshot = coming
    assert router.count(Query("llama")) == 5
    with pytest.raises(GatewayError) as caught:
        router.count(Query("gone"))
    assert caught.value.status == 404


def test_a_snapshot_that_came_after_the_prepared_one_is_what_counts():
    fleet = fleet_of({"qwen": WORKERS})
    router = router_of(fleet, "round_robin")
    serve(router, prompt(1))
    for _ in router.prepare(without(fleet, "w03")):
        pass
    fleet._snapshot = without(fleet, "w04")
    names = [place.id for place in router._pools("qwen").regular.everyone]
    assert names == [name for name in WORKERS if name != "w04"]


def test_nothing_is_prepared_where_only_statuses_change():
    fleet = fleet_of({"qwen": WORKERS})
    fleet._snapshot = replace(fleet.snapshot(), shape=1)
    router = router_of(fleet, "round_robin")
    serve(router, prompt(1))
    before = router._pools("qwen")
    coming = replace(fleet.snapshot(), version=2, workers=[replace(w, reason="x") for w in fleet.snapshot().workers])
    assert list(router.prepare(coming)) == []
    fleet._snapshot = coming
    assert router._pools("qwen") is before


def test_a_model_of_several_names_has_each_worker_once_in_the_order_of_the_fleet():
    fleet = fleet_of({"qwen": ["a", "c", "d"], "org/qwen": ["b", "c"]})
    fleet._snapshot = replace(fleet.snapshot(), models=[ModelRecord("qwen", aliases=["org/qwen"])])
    made = serving.Serving(fleet.snapshot(), fleet.region)
    assert [worker.id for worker in made.of("org/qwen").everyone] == ["a", "b", "c", "d"]
