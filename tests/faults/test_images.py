"""A burst of huge images against real processes: other streams go on, a small image is not kept waiting, and afterwards
the memory is back (spec multimodal 18)."""

import asyncio
import io
import itertools
import re
import struct
import time
from pathlib import Path

import httpx
import msgspec
import pytest
from PIL import Image

from tests.engines_for_tests import mock_processes
from tests.gateway import body, running, settings, until_async, wait_for
from tests.media.models import QWEN, data_url, png
from tests.media.test_end_to_end import share_kernels

pytestmark = pytest.mark.e2e

# Pixels, of which the model takes a million.
HUGE = (6000, 6000)
MODEL = msgspec.structs.replace(QWEN, preprocessor={"min_pixels": 3136, "max_pixels": 1003520})
BURST, OF_EACH, STREAMS = 3, 2, 4
# Holes that decoders leave in the heap, and what a first image loads.
SPARE = 96 << 20


@pytest.fixture(scope="module")
def jpeg() -> bytes:
    """It is quickly sent, and takes long to decode."""
    out = io.BytesIO()
    Image.new("RGB", HUGE, (50, 100, 200)).save(out, "JPEG", quality=50)
    return out.getvalue()


def another(jpeg: bytes, number: int) -> str:
    """The same picture in other bytes: with a comment."""
    return data_url(jpeg[:2] + b"\xff\xfe" + struct.pack(">HQ", 10, number) + jpeg[2:], "image/jpeg")


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) << 10


async def ask(client: httpx.AsyncClient, *urls: str) -> float:
    """Ask the engine that sees about images; returns when the answer was there."""
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    messages = [{"role": "user", "content": content}]
    answer = await client.post(
        "/v1/chat/completions", content=body(model="mock-model", messages=messages, max_tokens=1)
    )
    assert answer.status_code == 200, answer.text
    return time.monotonic()


async def follow(client: httpx.AsyncClient, stop: asyncio.Event) -> list[float]:
    """Times at which tokens of the other engine came, until ``stop``."""
    times = []
    asked = body(model="writer", stream=True, max_tokens=500, ignore_eos=True)
    async with client.stream("POST", "/v1/chat/completions", content=asked) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                assert '"error"' not in line, line
                times.append(time.monotonic())
                if stop.is_set():
                    return times
    raise AssertionError("the stream ended before the images were answered")


async def test_a_burst_of_huge_images(tmp_path, jpeg):
    share_kernels(tmp_path)
    sees = ("--bundle", str(MODEL.write(tmp_path / "model")))
    writes = ("--model", "writer", "--tokens", "500", "--delay-token-ms", "40")
    with mock_processes(sees, writes) as facts:
        urls = [f"grpc://{each['ready']}" for each in facts]
        flags = ("--worker-urls", *urls, "--engine-transport", "native", "--mm-pixel-cache-mb", "0")
        with running(settings(tmp_path, *flags)) as gateway:
            worker = gateway.child("worker-1")
            async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
                await ask(client, another(jpeg, 0))
                before = resident(worker)
                stop = asyncio.Event()
                streams = [asyncio.create_task(follow(client, stop)) for _ in range(STREAMS)]
                began = time.monotonic()
                numbers = itertools.count(1)
                images = [[another(jpeg, next(numbers)) for _ in range(OF_EACH)] for _ in range(BURST)]
                burst = [asyncio.create_task(ask(client, *each)) for each in images]
                await until_async(lambda: gateway.metric("smg_mm_decode_seconds_count") > 1)
                # It waits for its turn, not for all that came before it.
                answered = await ask(client, data_url(png(224, 224)))
                ended = await asyncio.gather(*burst)
                stop.set()
                followed = await asyncio.gather(*streams)
            over = max(ended)
            assert answered < over
            for times in followed:
                gaps = [b - a for a, b in itertools.pairwise(times) if began <= a and b <= over]
                # How short they are is a benchmark's to say, on a machine with nothing else to do.
                assert len(gaps) > 10
                assert max(gaps) < (over - began) / 2
            await asyncio.to_thread(wait_for, lambda: resident(worker) < before + SPARE, 10, "the memory is back")
            assert gateway.child("worker-1") == worker
            assert gateway.metric("smg_mm_items_total") == 1 + BURST * OF_EACH + 1
            active = "smg_worker_requests_active"
            await asyncio.to_thread(wait_for, lambda: gateway.metric(active) == 0, 10, "nothing is counted any more")
