"""What the admin API does to a fleet, and how sources, patches and control's own restarts go together."""

import asyncio
import contextlib
from functools import partial

import pytest

from smg._native import region as table
from smg._native.breaker import FAILED, Breakers
from smg.config.settings import FleetSettings, ServerSettings, Settings
from smg.control.client import ControlClient
from smg.control.main import serve
from smg.core.errors import GatewayError
from smg.engine_server.mock import Fault, MockEngine, Script
from smg.fleet import loads
from smg.fleet.resilience import ResilienceSpec
from smg.fleet.view import FleetView


@pytest.fixture
def region():
    region = table.Region.create(3, workers=4)
    yield region
    region.close()


class Place:
    """A control process in this one, and its client."""

    def __init__(self, region, state, **fleet):
        quick = {"health_check_interval_secs": 0.2, "worker_startup_check_interval": 0.05}
        self.settings = Settings(
            fleet=FleetSettings(**(quick | {"discovery_check_interval_secs": 0.05} | fleet)),
            server=ServerSettings(state_dir=str(state)),
        )
        self.region = region
        self.client = ControlClient(str(state), region.boot_id)

    @contextlib.asynccontextmanager
    async def running(self):
        stop = asyncio.Event()
        task = asyncio.create_task(serve(self.settings, self.region, (), stop))
        try:
            await until(self.answers)
            yield FleetView(self.region)
        finally:
            stop.set()
            await asyncio.wait_for(task, 10)

    async def answers(self):
        with contextlib.suppress(GatewayError):
            return await self.client.call("ping")

    async def fleet(self):
        """Workers by URL."""
        return {worker["url"]: worker for worker in (await self.client.call("list"))["workers"]}

    async def status(self, url):
        return (await self.fleet()).get(url, {}).get("status")


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not (found := await condition()):  # noqa: ASYNC110 - another process would write this too
            await asyncio.sleep(0.02)
    return found


@pytest.fixture
def place(region, tmp_path):
    return Place(region, tmp_path / "state")


async def refused(place, op, **arguments):
    with pytest.raises(GatewayError) as caught:
        await place.client.call(op, **arguments)
    return caught.value


class TestCreate:
    async def test_a_worker_is_there_at_once_and_ready_when_its_engine_is(self, place):
        async with MockEngine(Script(startup_delay=0.3)) as engine, place.running():
            made = await place.client.call("create", spec={"url": engine.url, "labels": {"zone": "x"}})
            assert (made["status"], made["job_status"]["status"], made["origin"]) == ("pending", "pending", "api")
            await until(lambda: ready(place, engine.url))
            found = await place.client.call("get", id=made["id"])
            assert (found["job_status"], found["runtime_type"], found["labels"]["zone"]) == (None, "vllm", "x")
            assert (found["model_id"], found["breaker"], found["is_healthy"]) == ("mock-model", "closed", True)
            assert found["last_probe"] is not None

    async def test_a_url_can_be_taken_once(self, place):
        async with place.running():
            await place.client.call("create", spec={"url": "grpc://127.0.0.1:1"})
            error = await refused(place, "create", spec={"url": "grpc://127.0.0.1:1"})
            assert (error.code, error.status, error.param) == ("worker_already_exists", 409, "url")

    @pytest.mark.parametrize(
        ("spec", "param"),
        [
            ({"url": "ftp://a:1"}, "url"),
            ({"url": "grpc://a"}, "url"),
            ({"url": "gopher://a:1"}, "url"),
            ({"url": "grpc://a:1", "runtime": "abacus"}, "url"),
            ({"url": "grpc://a:1", "cost": float("inf")}, "cost"),
            ({"url": 7}, None),
        ],
    )
    async def test_what_is_no_worker_is_a_400(self, place, spec, param):
        async with place.running():
            error = await refused(place, "create", spec=spec)
            assert (error.status, error.param) == (400, param)
            assert await place.fleet() == {}

    async def test_all_slots_taken_is_said_and_leaves_nothing_behind(self, place):
        async with place.running():
            for port in range(1, 5):
                await place.client.call("create", spec={"url": f"grpc://127.0.0.1:{port}"})
            assert (await refused(place, "create", spec={"url": "grpc://127.0.0.1:5"})).code == "overloaded"
            assert len(await place.fleet()) == 4

    async def test_RL_08_why_it_is_not_there_yet_is_told(self, place):
        async with place.running():
            made = await place.client.call("create", spec={"url": "grpc://127.0.0.1:1"})

            async def tried():
                return (await place.client.call("get", id=made["id"]))["job_status"]["status"] == "processing"

            await until(tried)
            job = (await place.client.call("get", id="grpc://127.0.0.1:1"))["job_status"]
            assert job["job_type"] == "add_worker"
            assert job["message"].startswith("the engine is not reachable: ")


async def ready(place, url):
    return await place.status(url) == "ready"


class TestPatch:
    async def test_patch_preserves_what_it_does_not_name(self, place):
        spec = {"runtime": "vllm", "models": [{"id": "m", "aliases": ["n"]}], "labels": {"a": "1", "b": "2"}}
        async with MockEngine() as engine, place.running() as view:
            made = await place.client.call("create", spec={"url": engine.url, "cost": 3.0, **spec})
            await until(lambda: ready(place, engine.url))
            before = await place.client.call("get", id=made["id"])
            changed = await place.client.call("patch", id=made["id"], patch={"priority": 9, "labels": {"a": None}})
            expected = before | {"priority": 9, "labels": {k: v for k, v in before["labels"].items() if k != "a"}}
            volatile = {"last_probe", "engine"}
            assert {k: v for k, v in changed.items() if k not in volatile} == {
                k: v for k, v in expected.items() if k not in volatile
            }
            # The request workers see it too, and nothing about the worker's state has moved.
            await until(lambda: published(view, made["id"], priority=9))
            assert view.snapshot().model("n").id == "m"

    async def test_a_policy_and_its_parameters(self, place):
        tuned = "cache_aware: cache_threshold=0.5"
        async with MockEngine() as engine, place.running() as view:
            made = await place.client.call("create", spec={"url": engine.url})
            await until(lambda: ready(place, engine.url))
            await place.client.call("patch", id=made["id"], patch={"labels": {"policy": tuned}})

            async def told():
                return (await only(view)).labels.get("policy") == tuned

            await until(told)
            wrong = {"policy": "cache_aware: cache_threshold=5"}
            for error in (
                await refused(place, "patch", id=made["id"], patch={"labels": wrong}),
                await refused(place, "create", spec={"url": "grpc://127.0.0.1:9", "labels": wrong}),
            ):
                assert (error.status, error.param) == (400, "labels.policy")
                assert "cache_threshold" in error.message
            error = await refused(place, "patch", id=made["id"], patch={"labels": {"policy": "nonsense"}})
            assert (error.status, error.param) == (400, "labels.policy")
            assert "'nonsense'" in error.message

    async def test_it_outlives_control_and_what_the_flags_say(self, region, tmp_path):
        async with MockEngine() as engine:
            place = Place(region, tmp_path / "state", worker_urls=(engine.url,))
            async with place.running():
                await until(lambda: ready(place, engine.url))
                worker = (await place.fleet())[engine.url]
                await place.client.call("patch", id=worker["id"], patch={"cost": 2.5})
            async with place.running():
                after = (await place.fleet())[engine.url]
                assert (after["id"], after["cost"], after["status"]) == (worker["id"], 2.5, "ready")

    async def test_how_it_is_probed(self, place):
        async with MockEngine() as engine, place.running():
            made = await place.client.call("create", spec={"url": engine.url, "health": {"failure_threshold": 50}})
            await until(lambda: ready(place, engine.url))
            await place.client.call("patch", id=made["id"], patch={"health": {"check_interval_secs": 0.1}})
            changed = (await place.client.call("get", id=made["id"]))["health"]
            assert (changed["failure_threshold"], changed["check_interval_secs"]) == (50, 0.1)
            engine.script = Script(healthy=False, serving=False)
            await asyncio.sleep(0.6)
            assert await place.status(engine.url) == "ready"
            await place.client.call("patch", id=made["id"], patch={"health": {"failure_threshold": 1}})
            await until(lambda: is_(place, engine.url, "not_ready"))
            error = await refused(place, "patch", id=made["id"], patch={"health": {"failure_threshold": 0}})
            assert error.status == 400

    async def test_retries_breaker_and_load(self, place):
        own = {"resilience": {"max_retries": 2, "cb_failure_threshold": 1}, "max_connection_attempts": 9}
        async with MockEngine() as engine, place.running() as view:
            made = await place.client.call("create", spec={"url": engine.url, **own})
            assert (made["resilience"], made["max_connection_attempts"]) == (own["resilience"], 9)
            await until(lambda: ready(place, engine.url))
            worker = await only(view)
            Breakers(place.region, 1, 1, 60_000, 60_000).leave(worker.slot, 0, FAILED)
            changes = {"resilience": {"cb_failure_threshold": 50}, "load_monitor_interval_secs": 0.1, "priority": 3}
            changed = await place.client.call("patch", id=made["id"], patch=changes)
            assert changed["resilience"] == {"max_retries": 2, "cb_failure_threshold": 50}
            assert (changed["max_connection_attempts"], changed["load_monitor_interval_secs"]) == (9, 0.1)
            assert changed["breaker"] == "closed", "what was counted by other numbers is forgotten"
            # The request workers go by it.
            wanted = ResilienceSpec(max_retries=2, cb_failure_threshold=50)
            await until(lambda: published(view, made["id"], resilience=wanted, priority=3))
            # Its load is looked at more often than the settings say (2 s).
            engine.script = Script(waiting=5)
            await until(lambda: published_waiting(place, worker.slot, 5), 1.5)
            error = await refused(place, "patch", id=made["id"], patch={"resilience": {"jitter_factor": 2}})
            assert error.status == 400

    async def test_one_that_is_not_to_be_probed(self, place):
        async with MockEngine(Script(healthy=False, serving=False)) as engine, place.running():
            spec = {"url": engine.url, "runtime": "vllm", "health": {"disable_health_check": True}}
            made = await place.client.call("create", spec=spec)
            await until(lambda: ready(place, engine.url))
            await place.client.call("patch", id=made["id"], patch={"health": {"disable_health_check": False}})
            await until(lambda: is_(place, engine.url, "not_ready"))

    async def test_fields_it_does_not_know_are_refused(self, place):
        async with place.running():
            made = await place.client.call("create", spec={"url": "grpc://127.0.0.1:1"})
            assert (await refused(place, "patch", id=made["id"], patch={"url": "grpc://b:1"})).status == 400
            assert (await refused(place, "patch", id="nobody", patch={})).code == "worker_not_found"

    async def test_replace_changes_all_but_the_url(self, place):
        async with MockEngine(contract="sglang") as engine, place.running():
            made = await place.client.call("create", spec={"url": engine.url, "runtime": "vllm", "priority": 7})
            other = {"url": "grpc://127.0.0.1:9"}
            assert (await refused(place, "replace", id=made["id"], spec=other)).param == "url"
            await place.client.call("replace", id=made["id"], spec={"url": engine.url})
            await until(lambda: ready(place, engine.url))
            found = await place.client.call("get", id=made["id"])
            assert (found["runtime_type"], found["priority"], found["id"]) == ("sglang", 50, made["id"])


async def published_waiting(place, slot, count):
    return place.region.worker_get(slot, table.WAITING) == count


async def published(view, id, **fields):
    record = view.worker(id)
    return record is not None and all(getattr(record, name) == value for name, value in fields.items())


class TestDelete:
    async def test_drain_until_idle_an_idle_worker_leaves_at_once(self, place):
        async with MockEngine() as engine, place.running():
            made = await place.client.call("create", spec={"url": engine.url})
            await until(lambda: ready(place, engine.url))
            leaving = await place.client.call("delete", id=made["id"])
            assert (leaving["status"], leaving["job_status"]["job_type"]) == ("draining", "remove_worker")
            await until(lambda: gone(place, engine.url), 2)

    async def test_drain_until_idle_a_busy_one_when_its_last_request_has_ended(self, place):
        async with MockEngine() as engine, place.running() as view:
            made = await place.client.call("create", spec={"url": engine.url})
            await until(lambda: ready(place, engine.url))
            slot = (await only(view)).slot
            place.region.inflight_add(1, slot, 1, 10)
            await place.client.call("delete", id=made["id"])
            await asyncio.sleep(0.4)
            assert await place.status(engine.url) == "draining"
            place.region.inflight_add(1, slot, -1, -10)
            await until(lambda: gone(place, engine.url), 2)

    async def test_whoever_wanted_it_it_stays_away_until_it_is_created_again(self, region, tmp_path):
        async with MockEngine() as engine:
            place = Place(region, tmp_path / "state", worker_urls=(engine.url,))
            async with place.running():
                await until(lambda: ready(place, engine.url))
                await place.client.call("delete", id=engine.url)
                await until(lambda: gone(place, engine.url))
            async with place.running():
                await asyncio.sleep(0.2)
                assert await place.fleet() == {}
                await place.client.call("create", spec={"url": engine.url})
                await until(lambda: ready(place, engine.url))

    async def test_one_that_is_leaving_goes_on_leaving_when_control_is_restarted(self, place):
        async with MockEngine() as engine:
            async with place.running() as view:
                made = await place.client.call("create", spec={"url": engine.url})
                await until(lambda: ready(place, engine.url))
                slot = (await only(view)).slot
                place.region.inflight_add(1, slot, 1, 0)
                await place.client.call("delete", id=made["id"])
            async with place.running():
                await asyncio.sleep(0.3)
                assert await place.status(engine.url) == "draining"
                place.region.inflight_add(1, slot, -1, 0)
                await until(lambda: gone(place, engine.url))

    async def test_one_that_is_leaving_can_be_created_again(self, place):
        async with MockEngine() as engine, place.running() as view:
            made = await place.client.call("create", spec={"url": engine.url})
            await until(lambda: ready(place, engine.url))
            place.region.inflight_add(1, (await only(view)).slot, 1, 0)
            await place.client.call("delete", id=made["id"])
            again = await place.client.call("create", spec={"url": engine.url, "priority": 1})
            assert (again["id"], again["priority"]) == (made["id"], 1)
            await until(lambda: ready(place, engine.url))


async def gone(place, url):
    return url not in await place.fleet()


async def test_engines_that_are_given_up_can_be_removed(region, tmp_path):
    flags = {"remove_unhealthy_workers": True, "health_failure_threshold": 1, "health_check_timeout_secs": 0.2}
    async with MockEngine() as engine:
        place = Place(region, tmp_path / "state", worker_urls=(engine.url,), **flags)
        async with place.running():
            await until(lambda: ready(place, engine.url))
            engine.script = Script(healthy=False, serving=False)
            region.worker_add(0, table.FAILURES, 1)
            await until(lambda: gone(place, engine.url))


async def test_workers_that_were_created_outlive_control(place):
    async with MockEngine() as engine:
        async with place.running():
            made = await place.client.call("create", spec={"url": engine.url, "labels": {"zone": "x"}})
            await until(lambda: ready(place, engine.url))
        async with place.running():
            await asyncio.sleep(0.2)
            found = await place.client.call("get", id=made["id"])
            assert (found["status"], found["origin"], found["labels"]["zone"]) == ("ready", "api", "x")


class TestFile:
    async def test_workers_come_change_and_go_with_the_file(self, region, tmp_path):
        file = tmp_path / "workers.yaml"
        file.write_text("workers: []")
        place = Place(region, tmp_path / "state", discovery_file=str(file))
        async with MockEngine() as one, MockEngine(model="b") as two, place.running():
            file.write_text(f"workers:\n- {one.url}\n- url: {two.url}\n  priority: 7\n  labels: {{zone: x}}\n")
            await until(lambda: ready(place, one.url))
            await until(lambda: ready(place, two.url))
            found = (await place.fleet())[two.url]
            assert (found["priority"], found["labels"]["zone"], found["origin"]) == (7, "x", "file")
            file.write_text("workers: [oh no")
            await asyncio.sleep(0.2)
            assert set(await place.fleet()) == {one.url, two.url}, "a file that is broken takes nothing away"
            file.write_text(f'{{"workers": [{{"url": "{two.url}", "cost": 4}}]}}')
            await until(lambda: gone(place, one.url))
            assert (await place.fleet())[two.url]["cost"] == 4


async def test_CF_01_several_models_come_from_the_flags_at_every_start(tmp_path):
    async with MockEngine(model="qwen") as a, MockEngine(model="llama") as b, MockEngine(model="qwen") as c:
        urls = (a.url, b.url, c.url)
        for number in range(2):
            region = table.Region.create(3, workers=4)
            place = Place(region, tmp_path / f"state{number}", worker_urls=urls)
            async with place.running() as view:
                await until(partial(all_ready, place, urls))
                serving = {worker["url"]: worker["models"] for worker in (await place.fleet()).values()}
                assert serving == {a.url: ["qwen"], b.url: ["llama"], c.url: ["qwen"]}
                await until(partial(serves, view, {"qwen", "llama"}))
            region.close()


async def serves(view, models):
    return {model.id for model in view.snapshot().models} == models


async def all_ready(place, urls):
    return all([await ready(place, url) for url in urls])


async def test_activate_event_readiness_is_published_and_never_before_a_probe(place):
    broken = Script(healthy=False)
    async with MockEngine(broken) as engine, place.running() as view:
        await place.client.call("create", spec={"url": engine.url})

        async def tried():
            return (await place.fleet())[engine.url]["reason"]

        await until(tried)
        assert await place.status(engine.url) == "pending"
        before = place.region.snapshot_version()
        engine.script = Script()
        await until(lambda: ready(place, engine.url))

        async def told():
            return place.region.snapshot_version() > before and (await only(view)).status == "ready"

        await until(told)


async def test_kv_threshold_polls_loads_are_known_whatever_the_policy(region, tmp_path):
    async with MockEngine(Script(token_usage=0.75, waiting=2)) as engine:
        place = Place(region, tmp_path / "state", worker_urls=(engine.url,), load_monitor_interval=0.05)
        async with place.running() as view:
            await until(lambda: ready(place, engine.url))
            slot = (await only(view)).slot

            async def polled():
                return region.worker_get(slot, table.USAGE) == 750_000

            await until(polled)
            assert (await place.fleet())[engine.url]["engine"]["kv_usage"] == 0.75


async def test_what_engines_have_computed_fades(region, tmp_path, monkeypatch):
    monkeypatch.setattr(loads, "COMPUTED_HALF_LIFE", 0.02)
    async with MockEngine() as engine:
        place = Place(region, tmp_path / "state", worker_urls=(engine.url,))
        async with place.running() as view:
            await until(lambda: ready(place, engine.url))
            slot = (await only(view)).slot
            region.worker_set(slot, table.COMPUTED, 64)

            async def faded():
                return region.worker_get(slot, table.COMPUTED) <= 1

            await until(faded)


async def test_an_engine_that_comes_back_starts_with_a_closed_breaker(region, tmp_path):
    async with MockEngine() as engine:
        place = Place(region, tmp_path / "state", worker_urls=(engine.url,), health_failure_threshold=1)
        async with place.running() as view:
            await until(lambda: ready(place, engine.url))
            slot = (await only(view)).slot
            breakers = Breakers(region, 1, 1, 60_000, 60_000)
            breakers.leave(slot, 0, FAILED)
            assert (await place.fleet())[engine.url]["breaker"] == "open"
            engine.script = Script(healthy=False, serving=False)
            region.worker_add(slot, table.FAILURES, 1)
            await until(lambda: is_(place, engine.url, "not_ready"))
            engine.script = Script()
            await until(lambda: ready(place, engine.url))
            assert (await place.fleet())[engine.url]["breaker"] == "closed"


async def only(view):
    """The only worker there is, once it is published."""

    async def published():
        return view.snapshot().workers

    return (await until(published))[0]


async def is_(place, url, status):
    return await place.status(url) == status


async def test_an_engine_that_tells_no_model_serves_any(place):
    async with MockEngine(model="") as engine, place.running() as view:
        await place.client.call("create", spec={"url": engine.url})
        await until(lambda: ready(place, engine.url))

        async def told():
            return (await only(view)).models == ["unknown"]

        await until(told)


async def test_info_of_an_engine_that_answers_badly_is_only_its_own_problem(place):
    fault = Fault(rpc="GetModelInfo")
    async with MockEngine(Script(faults=(fault,))) as bad, MockEngine() as good, place.running():
        for engine in (bad, good):
            await place.client.call("create", spec={"url": engine.url})
        await until(lambda: ready(place, good.url))
        assert await place.status(bad.url) == "pending"
