"""A gateway in front of two prefill and two decode engine processes: answers, kill -9 of each, nothing left behind.

Spec routing 5 and 12 ("PD leg failure"); field case PD-01.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.engines_for_tests import mock_processes
from tests.gateway import Gateway, body, running, settings, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TEXT = "an answer of some length from the decode engine"
# By their flags, and whether they are given as prefill and decode engines or tell so themselves.
CASES = {
    "sglang": (("--contract", "sglang"), False),
    "tokenspeed": (("--contract", "tokenspeed"), True),
    "vllm": (("--contract", "vllm"), True),
    "mooncake": (("--contract", "vllm", "--kv-connector", "MooncakeConnector"), False),
}
ROLES = {"p1": "prefill", "p2": "prefill", "d1": "decode", "d2": "decode"}


class Fleet:
    """Process ids and URLs of the engines, by name."""

    def __init__(self, gateway: Gateway, pids: dict[str, int], urls: dict[str, str]) -> None:
        self.gateway = gateway
        self.pids = pids
        self.urls = urls

    def kill(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGKILL)

    def post(self, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.gateway.url}/v1/chat/completions", content=body(model="mock-model"), **options)

    def blamed(self) -> dict[str, int]:
        """Failed attempts by the leg that is to blame."""
        lines = re.findall(r'smg_pd_leg_failures_total{.*leg="(\w+)".*} (\d+)', self.gateway.get("/metrics").text)
        return {leg: int(count) for leg, count in lines}

    def roles(self) -> dict[str, str]:
        """Role by URL of the engines that are ready."""
        workers = self.gateway.get("/workers").json()["workers"]
        return {each["url"]: each["worker_type"] for each in workers if each["status"] == "ready"}

    def idle(self) -> bool:
        counted = self.gateway.metric("smg_requests_inflight") + self.gateway.metric("smg_worker_requests_active")
        return counted == 0 and self.gateway.engine_running() == 0

    async def ask(self, client: httpx.AsyncClient, *, stream: bool) -> tuple[int, str]:
        content = body(model="mock-model", stream=stream)
        answer = await client.post(f"{self.gateway.url}/v1/chat/completions", content=content)
        if answer.status_code != 200:
            return answer.status_code, answer.json()["error"]["code"]
        if not stream:
            return 200, answer.json()["choices"][0]["message"]["content"]
        events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
        if events[-1] != "[DONE]":
            return 200, msgspec.json.decode(events[-1])["error"]["code"]
        chunks = [msgspec.json.decode(event) for event in events[:-1]]
        return 200, "".join(each["delta"].get("content") or "" for chunk in chunks for each in chunk["choices"])

    async def ask_many(self, count: int) -> list[tuple[int, str]]:
        async with httpx.AsyncClient(timeout=20) as client:
            return await asyncio.gather(*(self.ask(client, stream=bool(number % 2)) for number in range(count)))


@contextlib.contextmanager
def fleet(tmp_path: Path, case: str) -> Iterator[Fleet]:
    """Two engines of each kind that take their time, so that a kill finds requests waiting for their first token."""
    contract, told = CASES[case]
    pace = ("--delay-first-ms", "150", "--delay-token-ms", "5")
    flags = [(*contract, "--role", role, "--text", TEXT, *pace) for role in ROLES.values()]
    with mock_processes(*flags) as facts:
        urls = {name: f"grpc://{each['ready']}" for name, each in zip(ROLES, facts, strict=True)}
        named: list[str] = []
        for (name, role), each in zip(ROLES.items(), facts, strict=True):
            port = [str(each["bootstrap_port"])] if role == "prefill" else []
            named += ["--worker-urls", urls[name]] if told else [f"--{role}", urls[name], *port]
        with running(settings(tmp_path, "--worker-header", *named)) as gateway:
            made = Fleet(gateway, {name: each["pid"] for name, each in zip(ROLES, facts, strict=True)}, urls)
            wait_for(lambda: made.roles() == {urls[name]: role for name, role in ROLES.items()}, 20, "four engines")
            yield made


@pytest.mark.parametrize("case", CASES)
async def test_PD_01_answers_from_pairs_and_kill_9_of_one_engine_after_the_other(tmp_path, case):
    with fleet(tmp_path, case) as made:
        assert set(await made.ask_many(24)) == {(200, TEXT)}
        headers = made.post().headers
        workers = {each["id"]: each["url"] for each in made.gateway.get("/workers").json()["workers"]}
        assert workers[headers["x-smg-worker"]] in (made.urls["d1"], made.urls["d2"])
        assert workers[headers["x-smg-prefill-worker"]] in (made.urls["p1"], made.urls["p2"])
        wait_for(made.idle, 5, "nothing is counted or running any more")
        assert made.gateway.metric("smg_pd_ttft_seconds_count") == 25
        assert made.gateway.metric("smg_pd_prefill_duration_seconds_count") == 25
        assert made.gateway.metric("smg_pd_fallback_total") == made.gateway.metric("smg_worker_retries_total") == 0

        for left, victim in ((3, "p1"), (2, "d1")):
            before = made.blamed()
            load = asyncio.create_task(made.ask_many(16))
            # Nobody has been sent a token yet, so nobody may lose anything.
            await asyncio.sleep(0.08)
            made.kill(victim)
            assert set(await load) == {(200, TEXT)}
            assert set(await made.ask_many(4)) == {(200, TEXT)}
            assert {leg for leg, count in made.blamed().items() if count > before.get(leg, 0)} == {ROLES[victim]}
            wait_for(made.idle, 5, "nothing is counted or running any more")
            wait_for(lambda left=left: len(made.roles()) == left, 40, "the dead engine is out, and it alone")

        made.kill("p2")
        wait_for(lambda: len(made.roles()) == 1, 40, "no prefill engine is left")
        answer = made.post()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_available_workers")
        assert "no prefill engine" in answer.json()["error"]["message"]
        assert answer.headers["retry-after"]
        assert made.gateway.get("/readiness").status_code == 503
        assert made.gateway.engine_running() == 0


async def test_PD_01_pairs_of_http_engines_and_kill_9_of_one_of_each(tmp_path):
    pace = ("--delay-token-ms", "20")
    flags = [("--contract", "sglang-http", "--role", role, "--text", TEXT, *pace) for role in ROLES.values()]
    with mock_processes(*flags) as facts:
        urls = {name: f"http://{each['ready']}" for name, each in zip(ROLES, facts, strict=True)}
        named = [word for name, role in ROLES.items() for word in (f"--{role}", urls[name])]
        with running(settings(tmp_path, "--worker-header", "--pd-disaggregation", *named)) as gateway:
            made = Fleet(gateway, {name: each["pid"] for name, each in zip(ROLES, facts, strict=True)}, urls)
            wait_for(lambda: made.roles() == {urls[name]: role for name, role in ROLES.items()}, 20, "four engines")
            assert set(await made.ask_many(16)) == {(200, TEXT)}
            headers = made.post().headers
            workers = {each["id"]: each["url"] for each in gateway.get("/workers").json()["workers"]}
            assert workers[headers["x-smg-worker"]] in (urls["d1"], urls["d2"])
            assert workers[headers["x-smg-prefill-worker"]] in (urls["p1"], urls["p2"])
            scored = {"model": "mock-model", "text": "x", "return_logprob": True}
            async with httpx.AsyncClient() as client:
                generated = (await client.post(f"{gateway.url}/generate", json=scored)).json()
            assert generated["meta_info"]["input_token_logprobs"] == [[-0.5, 1, None]]
            wait_for(made.idle, 5, "nothing is counted or running any more")
            assert gateway.metric("smg_worker_retries_total") == 0
            made.kill("p1")
            made.kill("d1")
            assert set(await made.ask_many(16)) == {(200, TEXT)}
            wait_for(made.idle, 5, "nothing is counted or running any more")
            wait_for(lambda: set(made.roles()) == {urls["p2"], urls["d2"]}, 40, "the dead engines are out")
