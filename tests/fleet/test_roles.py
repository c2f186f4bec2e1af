"""Which part an engine takes, told by a flag, a file or the engine itself (spec engine-contract 2.8)."""

import pytest

from smg.config.settings import DisaggregationSettings
from smg.engines.base import EngineInfo
from smg.fleet.legs import LegSource
from smg.fleet.records import WorkerRecord
from smg.fleet.registry import Registry
from smg.fleet.roles import facts, fits, role_of, served
from smg.fleet.sources import WorkerSpec


@pytest.mark.parametrize(
    ("labels", "role"),
    [
        ({}, "regular"),
        ({"disaggregation_mode": "null"}, "regular"),
        ({"disaggregation_mode": "prefill"}, "prefill"),
        ({"disaggregation_mode": "decode"}, "decode"),
        ({"disaggregation_mode": "encode"}, "encode"),
        ({"kv_role": "kv_producer"}, "prefill"),
        ({"kv_role": "kv_consumer"}, "decode"),
        ({"kv_role": "kv_both"}, "regular"),
        ({"kv_role": "kv_both", "worker_type": "decode"}, "decode"),
        ({"disaggregation_mode": "prefill", "worker_type": "regular"}, "regular"),
        ({"worker_type": "something else"}, "regular"),
    ],
)
def test_role(labels, role):
    assert role_of(labels) == role


def test_the_flags_make_workers_with_roles_and_ports():
    settings = DisaggregationSettings(
        prefill=("grpc://a:1", "9001", "grpc://b:1"), decode=("grpc://c:1",), encode=("grpc://d:1 none",)
    )
    assert [(spec.url, spec.runtime, spec.labels) for spec in LegSource(settings, "sglang").specs] == [
        ("grpc://a:1", "sglang", {"worker_type": "prefill", "bootstrap_port": "9001"}),
        ("grpc://b:1", "sglang", {"worker_type": "prefill"}),
        ("grpc://c:1", "sglang", {"worker_type": "decode"}),
        ("grpc://d:1", "sglang", {"worker_type": "encode"}),
    ]


class TestRegistry:
    @pytest.fixture
    def registry(self, region):
        return Registry(region)

    def test_a_configured_role_is_known_at_once_and_stays(self, registry):
        worker = registry.add(WorkerSpec(url="grpc://a:1", labels={"worker_type": "prefill"}))
        assert worker.role == "prefill"
        registry.identify(worker.id, "sglang", EngineInfo("m", labels={"disaggregation_mode": "decode"}))
        assert worker.role == "prefill"

    def test_else_the_engine_tells(self, registry):
        worker = registry.add(WorkerSpec(url="grpc://a:1"))
        registry.identify(worker.id, "sglang", EngineInfo("m", labels={"disaggregation_mode": "decode"}))
        assert worker.role == "decode"
        registry.identify(worker.id, "sglang", EngineInfo("m"))
        assert worker.role == "regular"

    @pytest.mark.parametrize("contract", ["trtllm", "mlx"])
    def test_an_engine_that_cannot_be_paired_is_reported(self, registry, caplog, contract):
        worker = registry.add(WorkerSpec(url="grpc://a:1", labels={"worker_type": "decode"}))
        registry.identify(worker.id, contract, EngineInfo("m"))
        assert "cannot be paired" in caplog.text

    def test_the_decode_engines_sampling_defaults_count(self, registry):
        for url, role, temperature in (("grpc://a:1", "prefill", 0.1), ("grpc://b:1", "decode", 0.9)):
            worker = registry.add(WorkerSpec(url=url, labels={"worker_type": role}))
            info = EngineInfo("m", default_sampling={"temperature": temperature})
            registry.identify(worker.id, "sglang", info)
        assert registry.model("m").default_sampling == {"temperature": 0.9}


def test_facts_that_are_not_told_fit():
    def record(runtime="vllm", **labels):
        return facts(WorkerRecord("w", 0, "grpc://w:1", runtime=runtime, labels=labels))

    assert fits(record(), record(block_size="16"))
    assert not fits(record(block_size="32"), record(block_size="16"))
    assert not fits(record("vllm"), record("sglang"))


def test_a_model_is_served_by_a_regular_worker_or_by_a_whole_pair():
    def record(role, *models):
        return WorkerRecord("w", 0, "grpc://w:1", role=role, models=list(models))

    prefill, decode, regular = record("prefill", "a", "b"), record("decode", "b", "c"), record("regular", "d")
    assert served([prefill, decode, regular, record("encode", "e")]) == {"b", "d"}
    assert served([prefill]) == frozenset()
