"""Do images hold up token streams? Gaps between tokens of paced streams, without and beside 12-megapixel images.

    python -m benchmarks.vision_loop [--json]

One gateway worker process with one vision thread and no cache of processed images. One engine sends 8 streams a token
every 20 ms; another takes images, 8 requests of one 4032 x 3024 JPEG at a time, each a little different. Engines, image
client and gateway are processes of their own; this one reads the streams. Windows of 15 seconds, three without and
three with images, alternating; the figures are medians over the windows, in milliseconds. The target is a p99 of 45 ms
beside images. ``waited`` is what the gateway's event loop waited for a processor, in milliseconds per second: a busy
machine shows there, and what ``alone`` has of it is not the images' doing.
"""

import argparse
import asyncio
import contextlib
import io
import json as json_module
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import numpy as np
from PIL import Image

from smg.engine_server.mock.engine import MockEngine
from tests.gateway import Gateway, running, settings
from tests.media.models import QWEN, data_url

PACE_SECS = 0.02
STREAMS = IMAGES = 8
WINDOW_SECS = 15.0
WINDOWS = 3
WARM_SECS = 5.0
SIZE = (3024, 4032)
# What would be on other machines steps aside on this one.
ASIDE = 10


def photo() -> bytes:
    """A JPEG of 12 megapixels, about as detailed as a photograph."""
    random = np.random.default_rng(1)
    coarse = Image.fromarray(random.integers(0, 256, (SIZE[0] // 32, SIZE[1] // 32, 3), np.uint8))
    smooth = np.asarray(coarse.resize((SIZE[1], SIZE[0]), Image.Resampling.BICUBIC)).astype(np.int16)
    pixels = np.clip(smooth + random.integers(-6, 7, smooth.shape, np.int16), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=85)
    return out.getvalue()


def another(jpeg: bytes, number: int) -> bytes:
    """The same picture in other bytes: with a comment."""
    return jpeg[:2] + b"\xff\xfe" + struct.pack(">HQ", 10, number) + jpeg[2:]


# -- the processes of their own


def step_aside() -> None:
    """Leave the processors to the gateway and this benchmark."""
    os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, ASIDE)
    # Where sessions are scheduled as groups, niceness counts inside of one only.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(ASIDE))


async def engine(role: str) -> None:
    """Serve the model ``paced`` (text) or ``seen`` (images) until killed; prints the address."""
    script = QWEN.script("hello " * 4000 if role == "paced" else "seen")
    script = msgspec.structs.replace(script, chunk_delay=PACE_SECS)
    if role == "seen":
        step_aside()
    async with MockEngine(script, model=role, context_length=1 << 20) as served:
        print(served.url, flush=True)
        await asyncio.Event().wait()


async def send_images(url: str) -> None:
    """Keep ``IMAGES`` image requests going until killed; prints a line for each answer."""
    step_aside()
    jpeg, numbers = photo(), iter(range(1 << 30))

    async def one(client: httpx.AsyncClient) -> None:
        while True:
            image = {"type": "image_url", "image_url": {"url": data_url(another(jpeg, next(numbers)), "image/jpeg")}}
            message = {"role": "user", "content": [image, {"type": "text", "text": "what is this"}]}
            body = {"model": "seen", "messages": [message], "max_tokens": 1}
            answer = await client.post(f"{url}/v1/chat/completions", json=body)
            print(answer.status_code, flush=True)

    async with httpx.AsyncClient(timeout=120) as client:
        await asyncio.gather(*(one(client) for _ in range(IMAGES)))


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.vision_loop", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running_process:
        try:
            yield running_process
        finally:
            running_process.kill()


# -- the measurement


async def gaps(gateway: Gateway, seconds: float) -> list[float]:
    """Seconds between tokens of all streams, for about ``seconds``; each stream's first token is left out."""
    found: list[float] = []
    end = time.perf_counter() + seconds

    async def stream(client: httpx.AsyncClient) -> None:
        body = {"model": "paced", "messages": [{"role": "user", "content": "hello"}], "stream": True}
        async with client.stream("POST", f"{gateway.url}/v1/chat/completions", json=body) as answer:
            last = None
            async for chunk in answer.aiter_raw():
                now = time.perf_counter()
                # Tokens that come together have waited for the first of them; the others' gaps are zero.
                tokens = chunk.count(b'"content":"') + chunk.count(b'"content": "')
                if last is not None and tokens:
                    found.extend([now - last] + [0.0] * (tokens - 1))
                last = now
                if now > end:
                    return

    async with httpx.AsyncClient(timeout=60) as client:
        await asyncio.gather(*(stream(client) for _ in range(STREAMS)))
    return found


def waited(gateway: Gateway) -> float:
    """Seconds so far in which the event loop's thread could run and did not."""
    worker = gateway.child("worker-1")
    return int(Path(f"/proc/{worker}/task/{worker}/schedstat").read_text().split()[1]) / 1e9


def window(gateway: Gateway) -> dict[str, float]:
    """Measure one window; figures in milliseconds."""
    before = waited(gateway)
    ordered = sorted(asyncio.run(gaps(gateway, WINDOW_SECS)))
    lost = (waited(gateway) - before) / WINDOW_SECS
    at = {name: ordered[int(len(ordered) * share)] for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
    return {name: round(value * 1000, 2) for name, value in {**at, "max": ordered[-1], "waited": lost}.items()}


def beside_images(gateway: Gateway) -> dict[str, float]:
    """Measure one window while images are sent, with the images answered per second."""
    with process("--send", gateway.url) as sender:
        assert sender.stdout is not None
        first = sender.stdout.readline()
        time.sleep(WARM_SECS)
        before = gateway.metric("smg_router_requests_total")
        figures = window(gateway)
        images = gateway.metric("smg_router_requests_total") - before
        if first.strip() != "200":
            raise SystemExit(f"the image requests fail: {first}")
    return {**figures, "images_s": round(max(0.0, images - STREAMS) / WINDOW_SECS, 2)}


def run(transport: str) -> dict[str, dict[str, float]]:
    """All windows; returns the medians of those without (``alone``) and with images (``beside_images``)."""
    with (
        process("--engine", "paced") as paced,
        process("--engine", "seen") as seen,
        tempfile.TemporaryDirectory() as state,
    ):
        urls = [one.stdout.readline().strip() for one in (paced, seen) if one.stdout is not None]
        flags = (
            "--log-level",
            "error",
            "--worker-urls",
            *urls,
            "--mm-pixel-cache-mb",
            "0",
            "--engine-transport",
            transport,
        )
        (Path(state) / "kernels").symlink_to(Path(__file__).resolve().parents[1] / "build" / "kernels")
        with running(settings(Path(state), *flags)) as gateway:
            beside_images(gateway)  # loads the kernels
            alone, beside = [], []
            for _ in range(WINDOWS):
                alone.append(window(gateway))
                beside.append(beside_images(gateway))
    return {"alone": _median(alone), "beside_images": _median(beside)}


def _median(windows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in windows) for name in windows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--engine-transport", choices=("grpcio", "native"), default="grpcio", help="as for smg-server")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--send", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        asyncio.run(engine(given.engine))
    elif given.send:
        asyncio.run(send_images(given.send))
    else:
        figures = run(given.engine_transport)
        print(json_module.dumps(figures) if given.json else "\n".join(f"{k:14}{v}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
