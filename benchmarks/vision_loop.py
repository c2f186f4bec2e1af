"""Do images hold up token streams? Gaps between tokens of paced streams, without and beside 12-megapixel images.

    python -m benchmarks.vision_loop [--json] [--images 8] [--size 4032x3024] [--tensors inline]

One gateway worker process with one vision thread and no cache of processed images. One engine sends 8 streams a token
every 20 ms; another takes images, 8 requests of one 4032 x 3024 JPEG at a time, each a little different. Engines, image
client and gateway are processes of their own; this one reads the streams. Windows of 15 seconds, three without and
three with images, alternating; the figures are medians over the windows, in milliseconds. The target is a p99 of 45 ms
beside images. ``passed`` and ``sent`` are as ``benchmarks.loop_gaps`` has them. ``waited`` is what the gateway's event
loop waited for a processor, in milliseconds per second.

The engine of the streams and this process run at real-time priority (standard error says if they may not): they stand
for machines whose clocks nothing holds up. The engine that sees images and who sends them are scheduled when nobody
else wants a processor, and so never take one from the gateway. The gateway has its own priorities.
"""

import argparse
import asyncio
import io
import json as json_module
import struct
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import httpx
import numpy as np
import uvloop
from PIL import Image

from benchmarks.loop_gaps import Engines, engines, medians, process, read_streams, spreads, waited
from benchmarks.priority import aside
from tests.gateway import Gateway, running, settings
from tests.media.models import data_url

PACE_SECS = 0.02
STREAMS = 8
WINDOW_SECS = 15.0
WINDOWS = 3
WARM_SECS = 5.0
SIZE = (4032, 3024)

Size: TypeAlias = tuple[int, int]  # width and height


def photo(size: Size = SIZE) -> bytes:
    """A JPEG about as detailed as a photograph."""
    random = np.random.default_rng(1)
    coarse = Image.fromarray(random.integers(0, 256, (size[1] // 32, size[0] // 32, 3), np.uint8))
    smooth = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC)).astype(np.int16)
    pixels = np.clip(smooth + random.integers(-6, 7, smooth.shape, np.int16), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=85)
    return out.getvalue()


def another(jpeg: bytes, number: int) -> bytes:
    """The same picture in other bytes: with a comment."""
    return jpeg[:2] + b"\xff\xfe" + struct.pack(">HQ", 10, number) + jpeg[2:]


# -- the sender, a process of its own


async def send_images(url: str, images: int, size: Size) -> None:
    """Keep so many image requests going until killed; prints a line for each answer."""
    aside()
    jpeg, numbers = photo(size), iter(range(1 << 30))

    async def one(client: httpx.AsyncClient) -> None:
        while True:
            image = {"type": "image_url", "image_url": {"url": data_url(another(jpeg, next(numbers)), "image/jpeg")}}
            message = {"role": "user", "content": [image, {"type": "text", "text": "what is this"}]}
            body = {"model": "seen", "messages": [message], "max_tokens": 1}
            answer = await client.post(f"{url}/v1/chat/completions", json=body)
            print(answer.status_code, flush=True)

    async with httpx.AsyncClient(timeout=120) as client:
        await asyncio.gather(*(one(client) for _ in range(images)))


# -- the measurement


def window(gateway: Gateway, of: Engines) -> dict[str, float]:
    """Measure one window; figures in milliseconds."""
    before = waited(gateway)
    found = uvloop.run(read_streams(gateway.url, of, STREAMS, WINDOW_SECS))
    lost = (waited(gateway) - before) / WINDOW_SECS
    late = sorted(found.late)[int(len(found.late) * 0.99)]
    return {**spreads(found.tokens), "reader_late_p99": round(late * 1000, 2), "waited": round(lost * 1000, 2)}


def beside_images(gateway: Gateway, of: Engines, sent: Sequence[str]) -> dict[str, float]:
    """Measure one window while images are sent (``sent``: flags that say which), with those answered per second."""
    with process("benchmarks.vision_loop", "--send", gateway.url, *sent) as sender:
        assert sender.stdout is not None
        first = sender.stdout.readline()
        time.sleep(WARM_SECS)
        before = gateway.metric("smg_router_requests_total")
        figures = window(gateway, of)
        images = gateway.metric("smg_router_requests_total") - before
        if first.strip() != "200":
            raise SystemExit(f"the image requests fail: {first}")
    return {**figures, "images_s": round(max(0.0, images - STREAMS) / WINDOW_SECS, 2)}


def run(transport: str, tensors: str, windows: int, sent: Sequence[str]) -> dict[str, dict[str, float]]:
    """All windows; returns the medians of those without (``alone``) and with images (``beside_images``)."""
    with engines(PACE_SECS) as both, tempfile.TemporaryDirectory() as state:
        flags = (
            "--log-level",
            "error",
            "--worker-urls",
            *both.urls,
            "--mm-pixel-cache-mb",
            "0",
            "--engine-transport",
            transport,
            "--multimodal-tensor-transport",
            tensors,
        )
        (Path(state) / "kernels").symlink_to(Path(__file__).resolve().parents[1] / "build" / "kernels")
        with running(settings(Path(state), *flags)) as gateway:
            beside_images(gateway, both, sent)  # loads the kernels
            alone, beside = [], []
            for _ in range(windows):
                alone.append(window(gateway, both))
                beside.append(beside_images(gateway, both, sent))
    return {"alone": medians(alone), "beside_images": medians(beside)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--engine-transport", choices=("auto", "grpcio", "native"), default="auto", help="as for smg-server"
    )
    parser.add_argument("--windows", type=int, default=WINDOWS, help="windows of each kind (default 3)")
    parser.add_argument("--tensors", choices=("inline", "auto"), default="inline", help="how they go to the engine")
    parser.add_argument("--images", type=int, default=8, help="requests with an image at a time (default 8)")
    parser.add_argument("--size", default="{}x{}".format(*SIZE), help="of each image (default 4032x3024)")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        width, _, height = given.size.partition("x")
        asyncio.run(send_images(given.send, given.images, (int(width), int(height))))
    else:
        sent = ("--images", str(given.images), "--size", given.size)
        figures = run(given.engine_transport, given.tensors, given.windows, sent)
        print(json_module.dumps(figures) if given.json else "\n".join(f"{k:14}{v}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
