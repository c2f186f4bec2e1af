"""Pods that come, change and go under a running gateway (field case RL-07)."""

import asyncio
import contextlib
import os
import re
import signal

import httpx
import pytest

from smg.engine_server.mock import MockEngine, Script, encode_text
from tests.gateway import Gateway, body, running_async, settings, wait_for
from tests.kubernetes_api import Cluster, pod

pytestmark = pytest.mark.e2e

ANSWER = " one two day over time there"
# What the case allows between an event and its effect, and what a machine that stands still may take of it, in seconds.
WITHIN = 1.0
STANDSTILL = 4.0


class Place:
    """A gateway that follows ``cluster``; its pods are engines on addresses of loopback with one port."""

    def __init__(self, gateway: Gateway, cluster: Cluster, engines: dict[str, MockEngine], port: int) -> None:
        self.gateway = gateway
        self.cluster = cluster
        self.engines = engines
        self._port = port

    async def workers(self) -> dict[str, str]:
        """Status by address."""
        async with httpx.AsyncClient() as client:
            listed = (await client.get(f"{self.gateway.url}/workers")).json()["workers"]
        return {worker["url"].removesuffix(f":{self._port}"): worker["status"] for worker in listed}

    async def until(self, **wanted: str | None) -> None:
        """Wait until workers (by the last part of their address, as ``w1``) have a status, or are not there: None."""
        async with asyncio.timeout(WITHIN + STANDSTILL):
            while True:
                workers = await self.workers()
                if all(workers.get(f"127.0.0.{name[1:]}") == status for name, status in wanted.items()):
                    return
                await asyncio.sleep(0.02)

    async def asked(self, count: int = 6) -> set[str]:
        """Which engines answer ``count`` requests."""
        for engine in self.engines.values():
            engine.requests.clear()
        async with httpx.AsyncClient(timeout=20) as client:
            for _ in range(count):
                answer = await client.post(f"{self.gateway.url}/v1/chat/completions", content=body(model="mock-model"))
                assert answer.status_code == 200, answer.text
        return {f"w{address.rpartition('.')[2]}" for address, engine in self.engines.items() if engine.requests}


@contextlib.asynccontextmanager
async def followed(tmp_path, monkeypatch, addresses, *flags: str, pods=(), script: Script | None = None):
    async with contextlib.AsyncExitStack() as stack:
        engines, port = {}, 0
        for address in addresses:
            engine = MockEngine(script or Script(), port, host=address)
            port = int((await engine.start()).rpartition(":")[2])
            stack.push_async_callback(engine.stop)
            engines[address] = engine
        cluster = await stack.enter_async_context(Cluster())
        monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig(tmp_path))
        for each in pods:
            cluster.put(each)
        given = ("--service-discovery", "--selector", "app=vllm", "--service-discovery-port", str(port))
        quiet = ("--policy", "round_robin", "--log-level", "error", "--health-check-interval-secs", "0.2")
        configured = settings(tmp_path, *given, *quiet, *flags)
        gateway = await stack.enter_async_context(running_async(configured))
        yield Place(gateway, cluster, engines, port)


ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.9")


async def test_RL_07_ready_and_matching_or_out(tmp_path, monkeypatch):
    before = [pod("w3", "127.0.0.3"), pod("w4", "127.0.0.4")]
    async with followed(tmp_path, monkeypatch, ADDRESSES, pods=before) as place:
        cluster = place.cluster
        await place.until(w3="ready", w4="ready")

        cluster.put(pod("w1", "127.0.0.1"))
        await place.until(w1="ready")
        assert await place.asked() == {"w1", "w3", "w4"}

        cluster.put(pod("w1", "127.0.0.1", labels={"app": "other"}))
        await place.until(w1=None)
        assert await place.asked() == {"w3", "w4"}

        cluster.put(pod("w2", "127.0.0.2"))
        await place.until(w2="ready")
        cluster.put(pod("w2", "127.0.0.2", ready=False))
        await place.until(w2="pending")
        assert await place.asked() == {"w3", "w4"}
        cluster.put(pod("w2", "127.0.0.2"))
        await place.until(w2="ready")
        assert await place.asked() == {"w2", "w3", "w4"}

        cluster.put(pod("w3", "127.0.0.9"))
        await place.until(w3=None, w9="ready")
        assert await place.asked() == {"w2", "w4", "w9"}

        cluster.delete("w4")
        await place.until(w4=None)
        assert await place.asked() == {"w2", "w9"}

        page = await asyncio.to_thread(lambda: place.gateway.get("/metrics").text)
        gone = dict(re.findall(r'deregistrations_total{reason="(\w+)",source="kubernetes"} (\S+)', page))
        assert gone == {"unselected": "1.0", "address_changed": "1.0", "terminating": "1.0"}
        assert 'smg_discovery_connected{source="kubernetes"} 1' in page
        assert 'smg_discovery_workers_discovered{source="kubernetes"} 2' in page
        assert 'smg_discovery_registrations_total{result="added",source="kubernetes"} 5' in page


async def test_streams_of_a_pod_that_goes_finish_and_its_removal_waits_for_them(tmp_path, monkeypatch):
    slow = Script(tokens=encode_text(ANSWER), chunk_delay=0.3)
    pods = [pod("w1", "127.0.0.1")]
    async with followed(tmp_path, monkeypatch, ADDRESSES[:2], pods=pods, script=slow) as place:
        await place.until(w1="ready")
        asked = body(model="mock-model", stream=True)
        async with (
            httpx.AsyncClient(timeout=20) as client,
            client.stream("POST", f"{place.gateway.url}/v1/chat/completions", content=asked) as answer,
        ):
            lines = answer.aiter_lines()
            text = await anext(lines)
            place.cluster.delete("w1")
            place.cluster.put(pod("w2", "127.0.0.2"))
            await place.until(w1="draining", w2="ready")
            assert await place.asked(1) == {"w2"}
            text += "".join([line async for line in lines])
        assert "".join(re.findall(r'"content":"([^"]*)"', text)) == ANSWER
        assert text.endswith("data: [DONE]")
        await place.until(w1=None)


async def test_known_pods_serve_while_the_API_and_control_are_away(tmp_path, monkeypatch):
    pods = [pod("w1", "127.0.0.1"), pod("w2", "127.0.0.2")]
    async with followed(tmp_path, monkeypatch, ADDRESSES[:2], pods=pods) as place:
        await place.until(w1="ready", w2="ready")
        await place.cluster.stop()
        os.kill(place.gateway.child("control"), signal.SIGKILL)
        assert await place.asked() == {"w1", "w2"}
        await asyncio.to_thread(
            wait_for, lambda: place.gateway.metric("smg_process_restarts_total") == 1, 10, "restart"
        )
        # The new control process has never seen the API, and probes those it was left all the same.
        await place.engines["127.0.0.2"].kill()
        await place.until(w1="ready", w2="not_ready")
        await place.engines["127.0.0.2"].start()
        await place.until(w2="ready")
        place.cluster.delete("w2")
        await place.cluster.start()
        async with asyncio.timeout(20):
            while await place.workers() != {"127.0.0.1": "ready"}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert await place.asked() == {"w1"}
