"""A gateway before encode, prefill and decode engine processes: images, kill -9 of encode engines, nothing left behind.

Spec engine-contract 5.4, routing 5.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from smg.core.shared_memory import DIRECTORY
from tests.engines_for_tests import mock_processes
from tests.gateway import Gateway, body, running, settings, wait_for
from tests.media.models import QWEN, data_url, png

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
TEXT = "an answer about three images"
ROLES = {"e1": "encode", "e2": "encode", "p1": "prefill", "d1": "decode"}
SIZES = ((56, 56), (56, 84), (84, 56), (84, 84), (56, 112), (112, 56))


class Fleet:
    """Process ids and URLs of the engines, by name."""

    def __init__(self, gateway: Gateway, pids: dict[str, int], urls: dict[str, str]) -> None:
        self.gateway = gateway
        self.pids = pids
        self.urls = urls

    def kill(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGKILL)

    def roles(self) -> dict[str, str]:
        """Role by URL of the engines that are ready."""
        workers = self.gateway.get("/workers").json()["workers"]
        return {each["url"]: each["worker_type"] for each in workers if each["status"] == "ready"}

    def blamed(self) -> dict[str, int]:
        lines = re.findall(r'smg_pd_leg_failures_total{.*leg="(\w+)".*} (\d+)', self.gateway.get("/metrics").text)
        return {leg: int(count) for leg, count in lines}

    def idle(self) -> bool:
        counted = self.gateway.metric("smg_requests_inflight") + self.gateway.metric("smg_worker_requests_active")
        return counted == 0 and self.gateway.engine_running() == 0

    def files(self) -> list[Path]:
        """Tensors in shared memory that the gateway has not removed."""
        found = DIRECTORY.glob(f"smg-mm-g*-{self.gateway.child('worker-1')}-*")
        return [path for path in found if not path.name.endswith("owner")]

    async def ask(self, client: httpx.AsyncClient, images: int, *, stream: bool = False) -> httpx.Response:
        parts = [{"type": "image_url", "image_url": {"url": data_url(png(*size))}} for size in SIZES[:images]]
        content = [*parts, {"type": "text", "text": "what is it"}]
        messages = [{"role": "user", "content": content}]
        return await client.post(
            f"{self.gateway.url}/v1/chat/completions",
            content=body(model="mock-model", messages=messages, stream=stream),
        )

    async def ask_many(self, count: int) -> set[str]:
        """Texts of buffered and streamed answers, or what else came."""
        async with httpx.AsyncClient(timeout=30) as client:
            answers = await asyncio.gather(
                *(self.ask(client, len(SIZES), stream=bool(number % 2)) for number in range(count))
            )
        return {_text(answer) for answer in answers}


def _text(answer: httpx.Response) -> str:
    if answer.status_code != 200:
        return answer.text
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return answer.json()["choices"][0]["message"]["content"]
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    if events[-1] != "[DONE]":
        return events[-1]
    chunks = [json.loads(event) for event in events[:-1]]
    return "".join(each["delta"].get("content") or "" for chunk in chunks for each in chunk["choices"])


@contextlib.contextmanager
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Encode engines that take their time, so that a kill finds items on them."""
    bundle = str(QWEN.write(tmp_path / "model"))
    common = ("--contract", "tokenspeed", "--bundle", bundle, "--text", TEXT, "--delay-first-ms", "300")
    (tmp_path / "kernels").symlink_to(_kernels())
    with mock_processes(*((*common, "--role", role) for role in ROLES.values())) as facts:
        urls = {name: f"grpc://{each['ready']}" for name, each in zip(ROLES, facts, strict=True)}
        named = [word for name, role in ROLES.items() for word in (f"--{role}", urls[name])]
        shared = ("--multimodal-tensor-transport", "auto", "--multimodal-shm-min-bytes", "1")
        flags = ("--worker-header", "--epd-disaggregation", *shared, *named)
        with running(settings(tmp_path, *flags)) as gateway:
            made = Fleet(gateway, {name: each["pid"] for name, each in zip(ROLES, facts, strict=True)}, urls)
            wait_for(lambda: made.roles() == {urls[name]: role for name, role in ROLES.items()}, 20, "four engines")
            yield made


def _kernels() -> Path:
    """Compiled once for all tests."""
    compiled = ROOT / "build" / "kernels"
    compiled.mkdir(parents=True, exist_ok=True)
    return compiled


async def test_images_by_encode_engines_and_kill_9_of_both(tmp_path):
    with fleet(tmp_path) as made:
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await made.ask(client, len(SIZES))
            text = await made.ask(client, 0)
        assert _text(answer) == _text(text) == TEXT
        # All went by shared memory: pixels and grid of each image.
        counted = re.findall(r'smg_mm_tensors_total{path="(\w+)".*} (\S+)', made.gateway.get("/metrics").text)
        assert {path for path, _ in counted} == {"shm"}
        assert sum(float(count) for _, count in counted) >= 2 * len(SIZES)
        workers = {each["id"]: each["url"] for each in made.gateway.get("/workers").json()["workers"]}
        used = answer.headers["x-smg-encode-worker"].split(",")
        assert {workers[name] for name in used} <= {made.urls["e1"], made.urls["e2"]}
        assert workers[answer.headers["x-smg-prefill-worker"]] == made.urls["p1"]
        assert "x-smg-encode-worker" not in text.headers
        assert made.gateway.metric("smg_pd_encode_duration_seconds_count") == len(SIZES)
        assert await made.ask_many(6) == {TEXT}
        wait_for(made.idle, 5, "nothing is counted or running any more")
        assert made.gateway.metric("smg_worker_retries_total") == 0

        load = asyncio.create_task(made.ask_many(6))
        # Nobody has been sent a token yet, so nobody may lose anything.
        await asyncio.sleep(0.2)
        made.kill("e1")
        assert await load == {TEXT}
        assert await made.ask_many(4) == {TEXT}
        assert set(made.blamed()) == {"encode"}
        wait_for(made.idle, 5, "nothing is counted or running any more")
        wait_for(lambda: len(made.roles()) == 3, 40, "the dead engine is out, and it alone")

        made.kill("e2")
        wait_for(lambda: len(made.roles()) == 2, 40, "no encode engine is left")
        async with httpx.AsyncClient(timeout=30) as client:
            answer = await made.ask(client, 2)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_available_workers")
            assert "no encode engine" in answer.json()["error"]["message"]
            # What needs none of them goes on.
            assert _text(await made.ask(client, 0)) == TEXT
        wait_for(made.idle, 5, "nothing is counted or running any more")
        wait_for(lambda: not made.files(), 5, "no tensor is left in shared memory")
