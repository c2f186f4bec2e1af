"""Slots of data-parallel ranks follow what an engine tells (spec routing 4.6)."""

import pytest

from smg._native import region as table
from smg.core.errors import GatewayError
from smg.engines.base import EngineLoad
from smg.fleet import loads
from smg.fleet.registry import Registry
from smg.fleet.sources import WorkerSpec


@pytest.fixture
def registry(region):
    return Registry(region, dp_aware=True)


def test_each_rank_has_a_slot_in_the_state_of_its_worker(registry, region, told):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    registry.set_status(worker.id, "ready")
    registry.identify(worker.id, "vllm", told(labels={"dp_size": "3"}))
    assert [(rank.number, rank.slot) for rank in worker.ranks] == [(0, 1), (1, 2), (2, 3)]
    assert worker.slots == [0, 1, 2, 3]
    assert [region.worker_get(slot, table.STATUS) for slot in worker.slots] == [2] * 4
    registry.set_status(worker.id, "draining")
    assert [region.worker_get(slot, table.STATUS) for slot in worker.slots] == [5] * 4
    assert all(region.index.ticket(slot) for slot in worker.slots)


def test_ranks_go_with_their_worker_and_when_the_engine_has_none_any_more(registry, region, told):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    registry.identify(worker.id, "vllm", told(labels={"dp_size": "2"}))
    registry.identify(worker.id, "vllm", told())
    assert worker.ranks == []
    assert region.index.ticket(1) == 0
    registry.identify(worker.id, "vllm", told(labels={"dp_size": "2"}))
    registry.remove(worker.id)
    registry.publish()
    assert [region.worker_get(slot, table.STATUS) for slot in range(4)] == [0] * 4
    assert not any(region.index.ticket(slot) for slot in range(4))


def test_more_ranks_than_slots_is_an_error(registry, told):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    with pytest.raises(GatewayError, match="slots are taken"):
        registry.identify(worker.id, "vllm", told(labels={"dp_size": "8"}))


def test_the_next_control_process_knows_the_slots(registry, region, told):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    registry.identify(worker.id, "vllm", told(labels={"dp_size": "2"}))
    registry.publish()
    ticket = region.index.ticket(2)
    after = Registry(region, dp_aware=True)
    assert after.workers[0].slots == [0, 1, 2]
    assert region.index.ticket(2) == ticket
    assert after.add(WorkerSpec("grpc://b:1")).slot == 3


def test_without_dp_aware_the_rank_is_left_to_the_engine(region, told):
    registry = Registry(region)
    worker = registry.add(WorkerSpec("grpc://a:1"))
    registry.identify(worker.id, "vllm", told(labels={"dp_size": "2"}))
    assert worker.slots == [0]


def test_loads_are_kept_by_rank(registry, region, told):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    registry.identify(worker.id, "vllm", told(labels={"dp_size": "2"}))
    loads.write_all(
        region, worker, [EngineLoad(0, queued_tokens=5, usage=0.1), EngineLoad(1, queued_tokens=7, usage=0.3)]
    )
    assert [region.worker_get(slot, table.QUEUED_TOKENS) for slot in worker.slots] == [12, 5, 7]
    assert [region.worker_get(slot, table.USAGE) for slot in worker.slots] == [300_000, 100_000, 300_000]
    loads.clear(region, worker)
    assert [region.worker_get(slot, table.USAGE) for slot in worker.slots] == [0, 0, 0]


def test_a_models_policy_is_published_and_stays(registry, region, told):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    registry.identify(worker.id, "vllm", told("llama"))
    registry.set_policy("llama", "least_load")
    registry.identify(registry.add(WorkerSpec("grpc://b:1")).id, "vllm", told("llama"))
    registry.publish()
    [model] = Registry(region).models
    assert (model.id, model.policy) == ("llama", "least_load")
    with pytest.raises(GatewayError) as caught:
        registry.set_policy("nope", "random")
    assert caught.value.code == "model_not_found"


def test_what_was_computed_fades_by_halves_for_workers_and_ranks(registry, region, told):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    registry.identify(worker.id, "vllm", told(labels={"dp_size": "2"}))
    region.worker_set(worker.ranks[1].slot, table.COMPUTED, 401)
    loads.fade(region, [worker])
    assert region.worker_get(worker.ranks[1].slot, table.COMPUTED) == 201
    loads.fade(region, [worker])
    assert region.worker_get(worker.ranks[1].slot, table.COMPUTED) == 101
    assert region.worker_get(worker.ranks[0].slot, table.COMPUTED) == 0
