"""What engines tell of their abilities and bounds reaches the request workers (spec engine-contract 2.8, 9)."""

import asyncio

import pytest

from smg.engine_server.mock import Fault, MockEngine, Script
from smg.engines.table import adapter
from smg.fleet.health import Thresholds
from smg.fleet.monitor import WorkerMonitor
from smg.fleet.registry import Registry
from smg.fleet.sources import WorkerSpec
from smg.fleet.view import FleetView


@pytest.fixture
def registry(region):
    return Registry(region)


@pytest.fixture
def view(registry, region):
    def read():
        registry.publish()
        return FleetView(region).snapshot()

    return read


def test_features_are_published_with_the_worker(registry, view, told):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    assert view().workers[0].features is None
    registry.identify(worker.id, "sglang", told(lacks=frozenset({"lora"})))
    assert view().workers[0].features == adapter("sglang").capabilities - {"lora"}
    registry.identify(worker.id, "sglang", told(is_generation=False))
    assert "generate" not in view().workers[0].features
    assert "embed" in view().workers[0].features


def test_a_contract_nobody_knows_changes_nothing(registry, told):
    worker = registry.add(WorkerSpec("grpc://a:1"))
    with pytest.raises(ValueError, match="unknown engine contract"):
        registry.identify(worker.id, "poem", told())
    assert registry.info(worker.id) is None


def test_a_model_is_bounded_by_its_tightest_engine(registry, view, told):
    one, two = registry.add(WorkerSpec("grpc://a:1")), registry.add(WorkerSpec("grpc://b:1"))
    registry.identify(one.id, "vllm", told(max_input_length=900, vocab_size=50))
    registry.identify(two.id, "sglang", told(max_input_length=800, is_generation=False))
    [model] = view().models
    assert (model.max_input_length, model.vocab_size, model.generates) == (800, 50, True)
    registry.remove(one.id)
    assert not view().models[0].generates
    # Control restarts: until the engines have told again, what is published stays.
    again = Registry(registry._region)
    assert (again.models[0].max_input_length, again.models[0].generates) == (800, False)


@pytest.fixture
def probe(registry, region):
    """Run a monitor on an engine until a condition holds; returns the models it asked a tokenizer for."""

    async def run(engine, until, timeout=5.0, origin="flags"):
        asked = []
        thresholds = Thresholds(down_interval=0.02, interval=0.02)
        worker = registry.add(WorkerSpec(engine.url), origin)
        monitor = WorkerMonitor(registry, region, worker, thresholds, timeout, asyncio.Semaphore(4), asked.append)
        task = asyncio.create_task(monitor.run())
        async with asyncio.timeout(10):
            while not until():  # noqa: ASYNC110 - a mock has no event for it
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await monitor.close()
        return asked

    return run


@pytest.mark.parametrize(("origin", "level"), [("flags", "WARNING"), ("embedded", "INFO")])
async def test_a_first_probe_in_vain_is_news_unless_the_gateway_has_just_started_the_engine(
    probe, caplog, origin, level
):
    caplog.set_level("INFO", "smg.fleet")
    async with MockEngine(Script(healthy=False)) as engine:
        await probe(engine, lambda: "probe failed" in caplog.text, origin=origin)
    assert [record.levelname for record in caplog.records if record.message == "probe failed"] == [level]


async def test_the_tokenizer_of_an_unwell_engine_is_not_fetched_with_every_probe(registry, probe):
    async with MockEngine(Script(healthy=False)) as engine:

        def probed_often():
            # As the fetch that the first probe starts would do.
            registry.set_tokenizer("mock-model", "/there", "key")
            return engine.calls["HealthCheck"] > 5

        asked = await probe(engine, probed_often)
        assert asked == ["mock-model"]


async def test_a_model_without_tokenizer_is_asked_for_again(probe):
    async with MockEngine(Script(healthy=False)) as engine:
        asked = await probe(engine, lambda: engine.calls["HealthCheck"] > 3)
        assert len(asked) > 2


@pytest.mark.parametrize("contract", ["sglang", "tokenspeed"])
async def test_an_engine_that_generates_for_its_check_becomes_ready(registry, probe, contract):
    async with MockEngine(Script(health_delay=0.4), contract=contract) as engine:
        await probe(engine, lambda: registry.by_url(engine.url).status == "ready", timeout=0.1)
        worker = registry.by_url(engine.url)
        assert (worker.runtime, worker.models) == (contract, ["mock-model"])


async def test_the_contract_is_found_again_when_another_engine_takes_the_address(registry, probe):
    async with MockEngine(contract="trtllm") as engine:
        await probe(engine, lambda: registry.by_url(engine.url).status == "ready")
        assert registry.by_url(engine.url).runtime == "trtllm"
        port = int(engine.address.rpartition(":")[2])
        await engine.stop()
        async with MockEngine(port=port, contract="mlx") as other:
            await probe(other, lambda: registry.by_url(other.url).runtime == "mlx")


async def test_an_engine_that_refuses_its_information_is_reported(registry, probe):
    fault = Fault(rpc="GetModelInfo", message="no model")
    async with MockEngine(Script(faults=(fault,)), contract="sglang") as engine:
        await probe(engine, lambda: registry.by_url(engine.url).reason != "")
        assert registry.by_url(engine.url).status == "pending"
