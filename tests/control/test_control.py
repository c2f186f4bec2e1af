"""Control against real engines' sockets, in one process (spec routing 4.3, 4.5; engine-contract 4.1)."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from smg._native import region as table
from smg.config.settings import DisaggregationSettings, FleetSettings, ServerSettings, Settings
from smg.control import frames
from smg.control.client import ControlClient
from smg.control.fleet import FleetControl
from smg.control.main import serve
from smg.core.errors import GatewayError
from smg.engine_server.mock import MockEngine, Script
from smg.fleet import monitor
from smg.fleet.sources import HealthSpec, ModelCard, StaticSource, WorkerSpec
from smg.fleet.view import FleetView


@pytest.fixture
def region():
    region = table.Region.create(3, workers=8)
    yield region
    region.close()


@pytest.fixture
def settings(tmp_path):
    def make(*urls, **fleet):
        quick = {"health_check_interval_secs": 0.3, "health_failure_threshold": 2, "worker_startup_check_interval": 0.1}
        return Settings(
            fleet=FleetSettings(worker_urls=urls, **(quick | fleet)),
            server=ServerSettings(state_dir=str(tmp_path / "state"), shutdown_grace_period_secs=5.0),
        )

    return make


@contextlib.asynccontextmanager
async def controlling(settings, region, *extra):
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings, region, extra, stop))
    try:
        yield FleetView(region)
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not (found := condition()):  # noqa: ASYNC110 - another process would write this too
            await asyncio.sleep(0.02)
    return found


def statuses(view):
    return {worker.url: view.status(worker) for worker in view.snapshot().workers}


def by_url(view, url):
    return next(worker for worker in view.snapshot().workers if worker.url == url)


async def test_a_fleet_comes_up_with_models_and_tokenizer(settings, region):
    async with MockEngine(Script(token_usage=0.5, waiting=3)) as one, MockEngine(model="org/other") as two:
        unreachable = "grpc://127.0.0.1:1"
        async with controlling(settings(unreachable, one.url, two.url), region) as view:
            await until(lambda: list(statuses(view).values()).count("ready") == 2)
            assert statuses(view) == {unreachable: "pending", one.url: "ready", two.url: "ready"}
            # A status is seen at once, what goes with it with the next snapshot.
            worker = await until(lambda: (found := by_url(view, one.url)).models and found)
            assert (worker.runtime, worker.models, worker.labels["block_size"]) == ("vllm", ["mock-model"], "16")
            model = await until(
                lambda: (found := view.snapshot().model("mock-model")) and found.tokenizer_dir and found
            )
            assert Path(model.tokenizer_dir).joinpath("tokenizer.json").is_file()
            assert model.tokenizer_key == Path(model.tokenizer_dir).name
            assert model.context_length == 32768
            assert view.snapshot().model("org/other").id == "org/other"
            await until(lambda: by_url(view, unreachable).reason.startswith("the engine is not reachable: "))
            assert not one.requests  # found out without a generation
            await until(lambda: region.worker_get(worker.slot, table.USAGE) == 500_000)
            assert region.worker_get(worker.slot, table.WAITING) == 3


async def test_engines_the_gateway_started_itself_join(settings, region):
    async with MockEngine() as engine, controlling(settings(), region, engine.url) as view:
        await until(lambda: statuses(view) == {engine.url: "ready"})


async def test_a_killed_engine_is_taken_out_and_back_within_five_seconds(settings, region):
    engine = MockEngine()
    await engine.start()
    async with MockEngine() as other, controlling(settings(engine.url, other.url), region) as view:
        await until(lambda: statuses(view) == {engine.url: "ready", other.url: "ready"})
        worker = by_url(view, engine.url)
        await engine.kill()
        await until(lambda: view.status(worker) == "not_ready")
        await until(lambda: view.status(worker) == "failed")
        assert view.status(by_url(view, other.url)) == "ready"
        await engine.start()
        await until(lambda: view.status(worker) == "ready", 5.0)
        assert view.worker(worker.id).slot == worker.slot
        assert region.worker_get(worker.slot, table.FAILURES) == 0
    await engine.stop()


async def test_a_failure_that_a_request_saw_brings_the_probe_forward(settings, region):
    async with MockEngine() as engine:
        lazy = settings(engine.url, health_check_interval_secs=60.0)
        async with controlling(lazy, region) as view:
            await until(lambda: statuses(view) == {engine.url: "ready"})
            worker = by_url(view, engine.url)
            await engine.kill()
            view.failed(worker)
            await until(lambda: view.status(worker) == "not_ready", 5.0)
            await engine.start()
            await until(lambda: view.status(worker) == "ready", 5.0)


async def test_an_engine_that_says_it_is_ill_is_not_routed_to(settings, region):
    async with MockEngine() as engine, controlling(settings(engine.url), region) as view:
        await until(lambda: statuses(view) == {engine.url: "ready"})
        engine.script = Script(healthy=False)
        await until(lambda: view.status(by_url(view, engine.url)) == "not_ready")
        await until(lambda: by_url(view, engine.url).reason == "the engine reports that it is not healthy")
        engine.script = Script()
        await until(lambda: statuses(view) == {engine.url: "ready"})
        await until(lambda: by_url(view, engine.url).reason == "")


async def test_a_ready_engine_that_begins_to_fail_says_why(settings, region):
    async with MockEngine() as engine, controlling(settings(engine.url, health_failure_threshold=1000), region) as view:
        await until(lambda: statuses(view) == {engine.url: "ready"})
        engine.script = Script(healthy=False)
        worker = await until(lambda: (found := by_url(view, engine.url)).reason and found)
        assert (worker.reason, view.status(worker)) == ("the engine reports that it is not healthy", "ready")
        engine.script = Script()
        await until(lambda: by_url(view, engine.url).reason == "")


async def test_another_model_at_the_same_address_is_noticed(settings, region):
    first = MockEngine(model="first")
    address = await first.start()
    async with controlling(settings(first.url), region) as view:
        await until(lambda: statuses(view) == {first.url: "ready"})
        await first.stop()
        await until(lambda: statuses(view) != {first.url: "ready"})
        async with MockEngine(model="second", port=int(address.rpartition(":")[2])):
            await until(lambda: [model.id for model in view.snapshot().models] == ["second"], 5.0)


@contextlib.asynccontextmanager
async def replaced(engine, **kind):
    """Kill ``engine`` and run another one at its address."""
    port = int(engine.url.rpartition(":")[2])
    await engine.kill()
    async with MockEngine(port=port, **kind) as other:
        yield other


async def test_an_engine_that_was_replaced_between_two_probes_is_described_anew(settings, region, caplog):
    first = MockEngine(model="first")
    await first.start()
    async with controlling(settings(first.url, health_check_interval_secs=60.0), region) as view:
        await until(lambda: statuses(view) == {first.url: "ready"})
        async with replaced(first, model="second", contract="sglang"):
            await until(lambda: by_url(view, first.url).runtime == "sglang", 5.0)
            await until(lambda: [model.id for model in view.snapshot().models] == ["second"], 5.0)
            await until(lambda: statuses(view) == {first.url: "ready"}, 5.0)
    (told,) = [record for record in caplog.records if record.message == "another engine answers"]
    assert (told.before["runtime"], told.before["models"]) == ("vllm", "first")
    assert (told.now["runtime"], told.now["models"]) == ("sglang", "second")


async def test_an_engine_with_another_model_than_configured_does_not_serve(settings, region):
    first = MockEngine(model="first")
    await first.start()
    fleet = FleetControl(settings(health_check_interval_secs=60.0), region, [StaticSource(())])
    fleet.start()
    fleet.create(WorkerSpec(first.url, models=(ModelCard("first"),)))
    view = FleetView(region)
    await until(lambda: statuses(view) == {first.url: "ready"})
    async with replaced(first, model="second"):
        why = "the engine serves 'second' now, and is configured for 'first'"
        await until(lambda: view.status(by_url(view, first.url)) in ("not_ready", "failed"), 5.0)
        await until(lambda: by_url(view, first.url).reason == why, 5.0)
        assert by_url(view, first.url).models == ["first"]
    async with MockEngine(model="first", port=int(first.url.rpartition(":")[2])):
        await until(lambda: statuses(view) == {first.url: "ready"}, 5.0)
    await fleet.close()


async def test_a_configured_name_that_no_engine_tells_is_for_whatever_it_serves(settings, region):
    first = MockEngine(model="first")
    await first.start()
    fleet = FleetControl(settings(), region, [StaticSource(())])
    fleet.start()
    fleet.create(WorkerSpec(first.url, models=(ModelCard("prod"),)))
    view = FleetView(region)
    await until(lambda: statuses(view) == {first.url: "ready"})
    worker = by_url(view, first.url)
    async with replaced(first, model="second"):
        await until(lambda: fleet.registry.info(worker.id).model_id == "second", 5.0)
        await until(lambda: statuses(view) == {first.url: "ready"}, 5.0)
        assert by_url(view, first.url).models == ["prod"]
    await fleet.close()


async def test_who_an_engine_is_is_asked_now_and_then_without_cause(settings, region, monkeypatch):
    monkeypatch.setattr(monitor, "DESCRIBE_SECS", 0.3)
    async with MockEngine(model="first") as engine, controlling(settings(engine.url), region) as view:
        await until(lambda: statuses(view) == {engine.url: "ready"})
        engine._servicer.model = "second"  # behind the gateway's back: no connection breaks
        await until(lambda: [model.id for model in view.snapshot().models] == ["second"], 5.0)
        assert statuses(view) == {engine.url: "ready"}


async def test_control_restarts_and_nothing_moves(settings, region):
    async with MockEngine() as one, MockEngine(model="b") as two:
        async with controlling(settings(one.url, two.url), region) as view:
            await until(lambda: set(statuses(view).values()) == {"ready"})
            await until(lambda: [bool(model.tokenizer_dir) for model in view.snapshot().models] == [True, True])
            before = [(worker.id, worker.slot) for worker in view.snapshot().workers]
            models = view.snapshot().models
        # No control: routing goes on.
        assert set(statuses(view).values()) == {"ready"}
        async with controlling(settings(one.url, two.url), region):
            seen = set()
            for _ in range(20):
                seen |= set(statuses(view).values())
                await asyncio.sleep(0.02)
            assert seen == {"ready"}
            assert [(worker.id, worker.slot) for worker in view.snapshot().workers] == before
            assert view.snapshot().models == models
        async with controlling(settings(two.url), region):
            await until(lambda: list(statuses(view)) == [two.url])
            assert [model.id for model in view.snapshot().models] == ["b"]


class ChangingSource:
    """A source whose list a test changes."""

    def __init__(self, name="test"):
        self.name = name
        self.lists = asyncio.Queue()

    async def watch(self):
        while True:
            item = await self.lists.get()
            if item is None:
                raise OSError("the source is away")
            yield item


async def test_a_worker_nobody_wants_drains_before_it_leaves(settings, region):
    source = ChangingSource()
    async with MockEngine() as engine:
        fleet = FleetControl(settings(), region, [StaticSource(()), source])
        fleet.start()
        view = FleetView(region)
        spec = WorkerSpec(engine.url, labels={"zone": "x"})
        source.lists.put_nowait([spec])
        await until(lambda: statuses(view) == {engine.url: "ready"})
        worker = by_url(view, engine.url)
        assert worker.labels["zone"] == "x"

        region.inflight_add(1, worker.slot, 1, 10)
        source.lists.put_nowait([])
        await until(lambda: view.status(worker) == "draining")
        await asyncio.sleep(0.2)
        assert view.worker(worker.id) is not None
        source.lists.put_nowait([spec])  # wanted again: the drain is off
        await until(lambda: view.status(worker) == "ready")

        source.lists.put_nowait([])
        await until(lambda: view.status(worker) == "draining")
        region.inflight_add(1, worker.slot, -1, -10)
        await until(lambda: view.worker(worker.id) is None)
        assert region.worker_get(worker.slot, table.STATUS) == 0
        await fleet.close()


def series(region, name):
    """Values of a metric by its labels."""
    found = {tuple(key.decode().split("\0")): value for key, _, value in region.read_series()}
    return {labels: value for (metric, *labels), value in found.items() if metric == name for labels in [tuple(labels)]}


async def test_a_worker_that_its_source_holds_back_gets_nothing_until_it_lets_go(settings, region):
    source = ChangingSource()
    async with MockEngine() as engine:
        fleet = FleetControl(settings(), region, [source])
        fleet.start()
        view = FleetView(region)
        free, held = WorkerSpec(engine.url), WorkerSpec(engine.url, held="its pod is not ready")
        source.lists.put_nowait([held])
        await until(lambda: statuses(view) == {engine.url: "pending"})
        worker = by_url(view, engine.url)
        source.lists.put_nowait([free])
        await until(lambda: view.status(worker) == "ready")

        region.inflight_add(1, worker.slot, 1, 10)
        source.lists.put_nowait([held])
        await until(lambda: view.status(worker) == "pending")
        await until(lambda: by_url(view, engine.url).reason == held.held)
        # Probes that would find it well change nothing, and what runs there keeps it in the fleet.
        await asyncio.sleep(0.5)
        assert view.status(worker) == "pending"
        source.lists.put_nowait([free])
        await until(lambda: view.status(worker) == "ready")
        assert view.worker(worker.id).models == ["mock-model"]
        assert not series(region, "smg_discovery_deregistrations_total")
        await fleet.close()


async def test_a_source_may_change_how_a_worker_is_probed(settings, region):
    source = ChangingSource()
    async with MockEngine() as engine:
        fleet = FleetControl(settings(health_failure_threshold=1000), region, [source])
        fleet.start()
        view = FleetView(region)
        source.lists.put_nowait([WorkerSpec(engine.url)])
        await until(lambda: statuses(view) == {engine.url: "ready"})
        engine.script = Script(healthy=False, serving=False)
        await asyncio.sleep(0.5)
        assert statuses(view) == {engine.url: "ready"}
        source.lists.put_nowait([WorkerSpec(engine.url, health=HealthSpec(failure_threshold=1))])
        await until(lambda: statuses(view) == {engine.url: "not_ready"})
        await fleet.close()


async def test_a_source_that_is_silent_keeps_its_own_workers_only(settings, region):
    """After a restart of control, while one source is away."""
    async with MockEngine() as one, MockEngine() as two:
        first, second = ChangingSource("first"), ChangingSource("second")
        fleet = FleetControl(settings(), region, [first, second])
        fleet.start()
        view = FleetView(region)
        first.lists.put_nowait([WorkerSpec(one.url)])
        second.lists.put_nowait([WorkerSpec(two.url, labels={"zone": "x"})])
        await until(lambda: statuses(view) == {one.url: "ready", two.url: "ready"})
        await fleet.close()

        first, second = ChangingSource("first"), ChangingSource("second")
        fleet = FleetControl(settings(), region, [first, second])
        fleet.start()
        first.lists.put_nowait([])
        await until(lambda: statuses(view) == {two.url: "ready"})
        await two.kill()
        await until(lambda: statuses(view) == {two.url: "not_ready"})
        await two.start()
        await until(lambda: statuses(view) == {two.url: "ready"})
        assert by_url(view, two.url).labels["zone"] == "x"
        second.lists.put_nowait([])
        await until(lambda: statuses(view) == {})
        await fleet.close()


async def test_why_workers_left_is_counted(settings, region):
    class Pods(ChangingSource):
        def departure(self, url):
            return "deleted"

    pods, other = Pods("pods"), ChangingSource("other")
    fleet = FleetControl(settings(), region, [pods, other])
    fleet.start()
    pods.lists.put_nowait([WorkerSpec("grpc://127.0.0.1:1"), WorkerSpec("grpc://127.0.0.1:2")])
    other.lists.put_nowait([WorkerSpec("grpc://127.0.0.1:3"), WorkerSpec("grpc://no port")])
    await until(lambda: len(fleet.registry.workers) == 4)
    assert series(region, "smg_discovery_registrations_total") == {
        ("pods", "added"): 2,
        ("other", "added"): 1,
        ("other", "failed"): 1,
    }
    assert series(region, "smg_discovery_workers_discovered") == {("pods",): 2, ("other",): 2, ("api",): 0}
    fleet.dismiss(fleet.registry.by_url("grpc://127.0.0.1:1"))
    pods.lists.put_nowait([])
    other.lists.put_nowait([])
    await until(lambda: not fleet.registry.workers)
    assert series(region, "smg_discovery_deregistrations_total") == {
        ("pods", "dismissed"): 1,
        ("pods", "deleted"): 1,
        ("other", "unlisted"): 2,
    }
    await fleet.close()


async def test_a_source_that_breaks_takes_nothing_away(settings, region, monkeypatch):
    monkeypatch.setattr("smg.control.fleet._SOURCE_RETRY_SECS", 0.05)
    source = ChangingSource()
    async with MockEngine() as engine:
        fleet = FleetControl(settings(), region, [source])
        fleet.start()
        view = FleetView(region)
        source.lists.put_nowait([WorkerSpec(engine.url), WorkerSpec("grpc://no port")])
        await until(lambda: engine.url in statuses(view) and statuses(view)[engine.url] == "ready")
        source.lists.put_nowait(None)
        source.lists.put_nowait([WorkerSpec(engine.url), WorkerSpec("grpc://127.0.0.1:1")])
        await until(lambda: len(statuses(view)) == 2)
        assert view.status(by_url(view, engine.url)) == "ready"
        await fleet.close()


class TestAdminSocket:
    async def test_operations(self, settings, region, tmp_path):
        async with MockEngine() as engine, controlling(settings(engine.url), region) as view:
            await until(lambda: statuses(view) == {engine.url: "ready"})
            region.inflight_add(1, by_url(view, engine.url).slot, 2, 20)
            client = ControlClient(str(tmp_path / "state"), region.boot_id)
            assert (await client.call("ping"))["pid"] == os.getpid()
            fleet = await client.call("list")
            [worker] = fleet["workers"]
            assert (worker["url"], worker["status"], worker["in_flight"]) == (engine.url, "ready", 2)
            assert [model["id"] for model in fleet["models"]] == ["mock-model"]
            [load] = map(msgspec.json.decode, (await client.call("loads"))["json"])
            assert (load["worker"], load["worker_type"], load["in_flight"]) == (engine.url, "regular", 2)
            # Nothing has been polled yet.
            assert load["load"] == -1
            assert "details" not in load
            await client.call("set_policy", model="mock-model", policy="least_load")
            await until(lambda: view.snapshot().models[0].policy == "least_load")
            tuned = "cache_aware: cache_threshold=0.5"
            await client.call("set_policy", model="mock-model", policy=tuned)
            await until(lambda: view.snapshot().models[0].policy == tuned)
            for wrong in ("cache_aware: cache_threshold=2", "cache_aware: colour=red", 7):
                with pytest.raises(GatewayError) as caught:
                    await client.call("set_policy", model="mock-model", policy=wrong)
                assert caught.value.code == "invalid_value"
            with pytest.raises(GatewayError) as caught:
                await client.call("set_policy", model="mock-model", policy="fastest")
            assert caught.value.code == "invalid_value"
            with pytest.raises(GatewayError) as caught:
                await client.call("dance")
            assert caught.value.code == "not_found"

    async def test_only_the_owner_may_use_it_and_it_goes_with_control(self, settings, region, tmp_path):
        path = frames.socket_path(str(tmp_path / "state"), region.boot_id)
        path.parent.mkdir(parents=True)
        path.write_text("left by a crash")
        async with controlling(settings(), region):
            await until(path.is_socket)
            assert path.stat().st_mode & 0o777 == 0o600
        assert not path.parent.exists()
        with pytest.raises(GatewayError) as caught:
            await ControlClient(str(tmp_path / "state"), region.boot_id).call("ping")
        assert (caught.value.status, str(tmp_path) in caught.value.message) == (503, False)

    async def test_a_socket_that_somebody_removes_is_made_again(self, settings, region, tmp_path, monkeypatch):
        monkeypatch.setattr("smg.control.admin.LOOK_SECS", 0.05)
        path = frames.socket_path(str(tmp_path / "state"), region.boot_id)
        async with controlling(settings(), region):
            await until(path.is_socket)
            shutil.rmtree(tmp_path / "state")
            await until(path.is_socket)
            client = ControlClient(str(tmp_path / "state"), region.boot_id)
            assert (await client.call("ping"))["boot_id"] == region.boot_id
            assert path.stat().st_mode & 0o777 == 0o600
        assert not path.parent.exists()

    async def test_deep_directories_do_not_matter(self, region, tmp_path):
        deep = str(tmp_path / ("d" * 120))
        async with controlling(Settings(server=ServerSettings(state_dir=deep)), region):
            client = ControlClient(deep, region.boot_id)
            await until(frames.socket_path(deep, region.boot_id).exists)
            assert (await client.call("list"))["workers"] == []

    @pytest.mark.parametrize(
        "garbage", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0", b"\0\0\0\x09abc", b"\0\0\0\1\x01"]
    )
    async def test_garbage_ends_its_connection_only(self, settings, region, tmp_path, garbage):
        async with controlling(settings(), region):
            path = frames.socket_path(str(tmp_path / "state"), region.boot_id)
            await until(path.is_socket)
            with frames.address(path) as address:
                reader, writer = await asyncio.open_unix_connection(address)
            writer.write(garbage)
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
            assert await ControlClient(str(tmp_path / "state"), region.boot_id).call("ping")


BODY = """
import sys, msgspec
from smg._native.region import Region
from smg.config.settings import DisaggregationSettings, Settings
from smg.control.main import run
run(msgspec.json.decode(sys.argv[2], type=Settings), Region.attach(int(sys.argv[1])))
"""


async def test_the_process_ends_cleanly_on_sigterm(settings, region):
    async with MockEngine() as engine:
        arguments = [str(region.fd), msgspec.json.encode(settings(engine.url)).decode()]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", BODY, *arguments, pass_fds=[region.fd], stderr=asyncio.subprocess.PIPE
        )
        view = FleetView(region)
        await until(lambda: statuses(view) == {engine.url: "ready"}, 20)
        assert region.process_pid(0) == process.pid
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 10)
        assert (process.returncode, errors) == (0, b"")
        assert statuses(view) == {engine.url: "ready"}


@pytest.mark.parametrize(("urls", "backend"), [(("ftp://a:1",), None), (("grpc://a:1",), "abacus")])
async def test_flags_that_make_no_sense_end_the_start(settings, region, urls, backend):
    with pytest.raises(ValueError, match=r"grpc|abacus"):
        await serve(settings(*urls, backend=backend), region, (), asyncio.Event())


async def test_the_engines_that_flags_name_are_counted_those_of_pairs_too(settings, region, caplog):
    caplog.set_level("INFO", "smg.control")
    pairs = DisaggregationSettings(prefill=("grpc://127.0.0.1:1", "8998"), decode=("grpc://127.0.0.1:2",))
    given = msgspec.structs.replace(settings("grpc://127.0.0.1:3"), disaggregation=pairs)
    async with controlling(given, region):
        await until(lambda: any(record.message == "control is up" for record in caplog.records))
    (record,) = [record for record in caplog.records if record.message == "control is up"]
    assert record.workers == 3
