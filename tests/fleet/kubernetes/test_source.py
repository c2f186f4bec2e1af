"""Following pods over the API: list, watch, and everything that goes wrong between (field case RL-07)."""

import asyncio
import contextlib
import logging

import pytest

from smg._native import region as table
from smg.config.settings import DiscoverySettings, Settings
from smg.fleet.kubernetes import api, source
from smg.fleet.kubernetes.api import PodsApi
from smg.fleet.kubernetes.pods import Rules
from smg.fleet.kubernetes.source import KubernetesSource
from smg.telemetry.metrics import Metrics
from tests.kubernetes_api import Cluster, pod


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(source, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(source, "_LONGEST_PAUSE", 0.1)


@pytest.fixture
async def cluster(tmp_path, monkeypatch):
    async with Cluster() as found:
        monkeypatch.setenv("KUBECONFIG", found.kubeconfig(tmp_path))
        yield found


class Followed:
    """What a source says, as a test waits for it."""

    def __init__(self, **discovery):
        self.region = table.Region.create(1, workers=4)
        given = DiscoverySettings(service_discovery=True, **({"selector": ("app=vllm",)} | discovery))
        rules, connected = Rules(Settings(discovery=given)), Metrics(self.region, 0).discovery_connected
        pods = PodsApi(given.service_discovery_namespace, rules.common)
        self.source = KubernetesSource(rules, pods, connected)
        self.lists = []

    async def follow(self):
        async for specs in self.source.watch():
            self.lists.append({spec.url: spec.held for spec in specs})

    async def until(self, wanted, seconds=20.0):
        async with asyncio.timeout(seconds):
            while not self.lists or self.lists[-1] != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    @property
    def connected(self):
        cells = {key: value for key, _, value in self.region.read_series()}
        return cells.get(b"smg_discovery_connected\0kubernetes")


@contextlib.asynccontextmanager
async def following(**discovery):
    found = Followed(**discovery)
    task = asyncio.create_task(found.follow())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found.region.close()


def watches(cluster):
    return [request for request in cluster.requests if "watch" in request]


def lists(cluster):
    return [request for request in cluster.requests if "watch" not in request]


async def test_what_is_there_and_what_comes(cluster):
    cluster.put(pod("w1", "10.0.0.1"))
    async with following() as found:
        await found.until({"10.0.0.1:80": ""})
        cluster.put(pod("w2", "10.0.0.2", ready=False))
        await found.until({"10.0.0.1:80": "", "10.0.0.2:80": "its pod is not ready"})
        cluster.put(pod("w2", "10.0.0.2"))
        await found.until({"10.0.0.1:80": "", "10.0.0.2:80": ""})
        assert found.connected == 1
    assert len(lists(cluster)) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda cluster: cluster.put(pod("w1", "10.0.0.1", labels={"app": "x"})), "unselected"),
        (lambda cluster: cluster.put(pod("w1", "10.0.0.9")), "address_changed"),
        (lambda cluster: cluster.put(pod("w1", "10.0.0.1", phase="Failed")), "finished"),
        (lambda cluster: cluster.put(pod("w1", "10.0.0.1", deletionTimestamp="now")), "terminating"),
        (lambda cluster: cluster.put(pod("w1", "10.0.0.1", annotations={"smg.ai/worker-ports": "x"})), "invalid"),
    ],
)
async def test_why_a_worker_has_left(cluster, change, why):
    cluster.put(pod("w1", "10.0.0.1"))
    async with following() as found:
        await found.until({"10.0.0.1:80": ""})
        change(cluster)
        await found.until({"10.0.0.9:80": ""} if why == "address_changed" else {})
        assert found.source.departure("10.0.0.1:80") == why


async def test_labels_that_the_API_does_not_select_by_are_looked_at_here(cluster):
    cluster.put(pod("w1", "10.0.0.1", labels={"role": "p"}))
    async with following(selector=(), prefill_selector=("role=p",), decode_selector=("role=d",)) as found:
        await found.until({"10.0.0.1:80": ""})
        assert "labelSelector" not in cluster.requests[0]
        cluster.put(pod("w1", "10.0.0.1", labels={"role": "x"}))
        await found.until({})
        assert found.source.departure("10.0.0.1:80") == "unselected"


async def test_only_the_wanted_namespace_and_labels_are_asked_for(cluster):
    async with following(service_discovery_namespace="llm", selector=("b=2", "a=1")) as found:
        await found.until({})
        await asyncio.sleep(0.05)
    for request in cluster.requests:
        assert request["path"] == "/api/v1/namespaces/llm/pods"
        assert request["labelSelector"] == "a=1,b=2"


async def test_pages_are_put_together(cluster, monkeypatch):
    monkeypatch.setattr(api, "PAGE", 2)
    for number in range(5):
        cluster.put(pod(f"w{number}", f"10.0.0.{number}"))
    async with following() as found:
        await found.until({f"10.0.0.{number}:80": "" for number in range(5)})
    assert [request.get("continue") for request in lists(cluster)] == [None, "2", "4"]


async def test_a_dropped_watch_goes_on_where_it_was(cluster):
    cluster.put(pod("w1", "10.0.0.1"))
    async with following() as found:
        await found.until({"10.0.0.1:80": ""})
        for number in (2, 3):
            cluster.drop()
            cluster.put(pod("w1", f"10.0.0.{number}"))
            await found.until({f"10.0.0.{number}:80": ""})
    assert len(lists(cluster)) == 1
    versions = [int(request["resourceVersion"]) for request in watches(cluster)]
    assert versions == sorted(versions)
    assert versions[-1] > versions[0]
    assert all(request["allowWatchBookmarks"] in ("true", "True") for request in watches(cluster))


async def test_bookmarks_move_the_place_to_go_on_from(cluster):
    cluster.put(pod("w1", "10.0.0.1"))
    async with following() as found:
        await found.until({"10.0.0.1:80": ""})
        # Nothing of interest, but time passes, and the API forgets.
        cluster.put(pod("other", "10.1.0.1", labels={"app": "x"}))
        await asyncio.sleep(0.1)
        cluster.expire()
        cluster.drop()
        cluster.put(pod("w2", "10.0.0.2"))
        await found.until({"10.0.0.1:80": "", "10.0.0.2:80": ""})
    assert len(lists(cluster)) == 1


@pytest.mark.parametrize("late", [False, True])
async def test_an_expired_version_is_listed_anew(cluster, late):
    """As the status of the answer, or as an event of it."""
    cluster.late_expiry = late
    cluster.put(pod("w1", "10.0.0.1"))
    cluster.put(pod("w2", "10.0.0.2"))
    async with following() as found:
        await found.until({"10.0.0.1:80": "", "10.0.0.2:80": ""})
        await cluster.stop()
        cluster.delete("w1")
        cluster.expire()
        await cluster.start()
        await found.until({"10.0.0.2:80": ""})
        assert found.source.departure("10.0.0.1:80") == "deleted"
    assert len(lists(cluster)) == 2


async def test_while_the_API_is_away_workers_stay_and_it_is_said(cluster, caplog):
    caplog.set_level(logging.INFO, "smg.fleet")
    cluster.put(pod("w1", "10.0.0.1"))
    async with following() as found:
        await found.until({"10.0.0.1:80": ""})
        await cluster.stop()
        await until(lambda: found.connected == 0)
        await asyncio.sleep(0.3)
        assert found.lists == [{"10.0.0.1:80": ""}]
        await cluster.start()
        await until(lambda: found.connected == 1)
        cluster.put(pod("w2", "10.0.0.2"))
        await found.until({"10.0.0.1:80": "", "10.0.0.2:80": ""})
    told = [record.message for record in caplog.records if "Kubernetes" in record.message]
    assert told[0] == "the Kubernetes API cannot be followed; known workers stay"
    assert told[-1] == "the Kubernetes API is followed again"
    assert len(told) <= 4, "once for each error that differs, not for each attempt"


async def test_a_refusal_is_told_in_the_API_s_own_words(cluster, caplog):
    why = "pods is forbidden: User 'gateway' cannot list resource 'pods'"
    cluster.refuse = (403, why)
    async with following() as found:
        await until(lambda: found.connected == 0 and caplog.records)
        assert not found.lists
        cluster.refuse = None
        await found.until({})
    assert caplog.records[0].error == f"403 Forbidden {why}"


async def test_a_new_token_is_taken_from_its_file(cluster, tmp_path):
    cluster.put(pod("w1", "10.0.0.1"))
    async with following() as found:
        await found.until({"10.0.0.1:80": ""})
        cluster.token = "second"
        cluster.drop()
        await until(lambda: found.connected == 0)
        cluster.hand_out(tmp_path)
        cluster.put(pod("w2", "10.0.0.2"))
        await found.until({"10.0.0.1:80": "", "10.0.0.2:80": ""})


@pytest.mark.parametrize("content", ["{}", "[", "users: 7", None])
async def test_a_configuration_of_no_use_is_told(tmp_path, monkeypatch, caplog, content):
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    async with following():
        await until(lambda: caplog.records)
    assert str(path) in next(record.error for record in caplog.records if hasattr(record, "error"))


async def test_in_a_pod_the_service_account_is_used(tmp_path, monkeypatch):
    """The certificate is no real one, so that the connection fails; what counts is who is asked, and how."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name, content in (("TOKEN", "secret\n"), ("CERT", "certificate")):
        (tmp_path / name).write_text(content)
        monkeypatch.setattr(f"kubernetes_asyncio.config.incluster_config.SERVICE_{name}_FILENAME", str(tmp_path / name))
    found = await asyncio.to_thread(api._configuration)
    assert (found.host, found.api_key) == ("https://[fd00::1]:443", {"BearerToken": "Bearer secret"})


async def test_of_two_pods_with_one_address_the_ready_one_counts(cluster):
    cluster.put(pod("a", "10.0.0.1", ready=False))
    cluster.put(pod("b", "10.0.0.1"))
    cluster.put(pod("c", "10.0.0.1", ready=False))
    async with following() as found:
        await found.until({"10.0.0.1:80": ""})


async def until(condition, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
