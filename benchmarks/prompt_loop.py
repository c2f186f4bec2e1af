"""Do long prompts hold up token streams? Case PF-01, as it is worded.

    python -m benchmarks.prompt_loop [--json] [--engine-transport native]

One gateway worker process. One engine sends 100 streams a token every 50 ms; another takes bursts: 8 chat requests of
128,000 tokens, ``/v1/tokenize`` of as many and an image of 12 megapixels, all sent at once, again and again with a
second between them, no text like another. Engines and the sender are processes of their own; this process reads the
streams and asks ``/health`` every 20 ms.

``calm`` are gaps between tokens before the bursts and between them, ``busy`` those that ended within one, from its
first byte to its last answer; medians over the windows, in milliseconds. The case wants the p99 to grow by 20 ms at
most, and a p99 of 20 ms of ``/health``. ``passed`` and ``sent`` are as ``benchmarks.loop_gaps`` has them: the gateway's
share, and the engine's own gaps. ``burst`` is how long a burst took; ``waited`` what the event loop waited for a
processor, in milliseconds per second. ``late`` counts the timers of the worker's loop that were more than that many
seconds late, of two in a second and over all windows.

The engine of the streams and this process run at real-time priority (standard error says if they may not): they stand
for machines whose clocks nothing holds up. The engine that takes the prompts is scheduled when nobody else wants a
processor, and so is the sender while it makes them; it sends them as an ordinary process, all at once, like a client
that had them ready. The gateway has its own priorities.
"""

import argparse
import asyncio
import json as json_module
import re
import statistics
import tempfile
import time
from pathlib import Path

import httpx
import msgspec
import uvloop

from benchmarks.loop_gaps import (
    Engines,
    Read,
    check_health,
    engines,
    medians,
    process,
    read_streams,
    spread,
    spreads,
    waited,
)
from benchmarks.priority import aside, ordinary
from benchmarks.vision_loop import another, photo
from tests.gateway import Gateway, running, settings
from tests.media.models import data_url

PACE_SECS = 0.05
STREAMS = 100
PROMPTS = 8
TOKENS = 128_000
WINDOWS = 3
WINDOW_SECS = 20.0
# So long the streams begin and are then left alone.
BEGIN_SECS = 3.0
CALM_SECS = 5.0
HEALTH_SECS = 0.02
WORDS = ("the", "time", "over", "their", "world", "first", "some", "other")


def texts(burst: int) -> list[str]:
    """Prompts that differ from their first word on."""
    return [f"{burst}.{number}:" + f" {WORDS[number % len(WORDS)]}" * TOKENS for number in range(PROMPTS + 1)]


async def send_bursts(url: str) -> None:
    """Send bursts until killed; prints when each began and ended."""
    aside()
    jpeg = photo()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        for burst in range(1 << 30):
            *prompts, counted = texts(burst)
            parts = [
                {"type": "image_url", "image_url": {"url": data_url(another(jpeg, burst), "image/jpeg")}},
                {"type": "text", "text": "what is this"},
            ]
            contents: list[object] = [*prompts, parts]
            bodies = [
                {"model": "seen", "messages": [{"role": "user", "content": content}], "max_tokens": 1}
                for content in contents
            ]
            sent = [("/v1/chat/completions", msgspec.json.encode(body)) for body in bodies]
            sent.append(("/v1/tokenize", msgspec.json.encode({"model": "seen", "prompt": counted})))
            ordinary()
            begin = time.perf_counter()
            answers = await asyncio.gather(*(client.post(path, content=content) for path, content in sent))
            end = time.perf_counter()
            aside()
            failed = [answer.text[:500] for answer in answers if answer.status_code != 200]
            print(json_module.dumps([begin, end, failed]), flush=True)
            await asyncio.sleep(1)


def late(gateway: Gateway) -> dict[str, float]:
    """How many timers of the worker's event loop were later than so many seconds."""
    page = gateway.get("/metrics").text
    counts = dict(re.findall(r'^smg_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)$', page, re.MULTILINE))
    return {bound: float(counts["+Inf"]) - float(count) for bound, count in counts.items() if bound != "+Inf"}


async def observe(gateway: Gateway, of: Engines) -> tuple[Read, list[tuple[float, float]], list[str]]:
    """One window: the streams, answers of ``/health``, and lines of the sender."""
    checks = asyncio.create_task(check_health(gateway.url, HEALTH_SECS))
    streams = asyncio.create_task(read_streams(gateway.url, of, STREAMS, BEGIN_SECS + CALM_SECS + WINDOW_SECS))
    await asyncio.sleep(BEGIN_SECS + CALM_SECS)
    with process("benchmarks.prompt_loop", "--send", gateway.url) as sender:
        found = await streams
        checks.cancel()
        sender.kill()
        assert sender.stdout is not None
        lines = sender.stdout.read().splitlines()
    return found, await checks, lines


def window(gateway: Gateway, of: Engines) -> dict[str, float]:
    """Measure one window; figures in milliseconds."""
    before, begin = waited(gateway), time.perf_counter()
    found, checks, lines = uvloop.run(observe(gateway, of))
    lost = (waited(gateway) - before) / (time.perf_counter() - begin)
    bursts = [(start, end) for start, end, failed in map(json_module.loads, lines) if not failed]
    if not bursts or len(bursts) < len(lines):
        raise SystemExit(f"the bursts fail: {lines}")

    def within(at: float) -> bool:
        return any(start <= at <= end for start, end in bursts)

    since = begin + BEGIN_SECS
    tokens = [token for token in found.tokens if token.at >= since]
    calm = spreads([token for token in tokens if token.at < bursts[0][0] - 1 or not within(token.at)])
    busy = spreads([token for token in tokens if within(token.at)])
    health = spread([took for at, took in checks if within(at)])
    quiet = spread([took for at, took in checks if at >= since and not within(at)])
    return {
        **{f"calm_{name}": value for name, value in calm.items()},
        **{f"busy_{name}": value for name, value in busy.items()},
        **{f"health_{name}": value for name, value in health.items()},
        **{f"calm_health_{name}": value for name, value in quiet.items()},
        "reader_late_p99": spread(found.late)["p99"],
        "growth_p99": round(busy["p99"] - calm["p99"], 2),
        "bursts": len(bursts),
        "burst": round(statistics.median(end - start for start, end in bursts) * 1000),
        "waited": round(lost * 1000, 1),
    }


def run(transport: str, windows: int) -> dict[str, float]:
    """All windows; returns the medians."""
    with engines(PACE_SECS) as both, tempfile.TemporaryDirectory() as state:
        flags = ("--log-level", "error", "--worker-urls", *both.urls, "--engine-transport", transport)
        (Path(state) / "kernels").symlink_to(Path(__file__).resolve().parents[1] / "build" / "kernels")
        with running(settings(Path(state), *flags)) as gateway:
            with process("benchmarks.prompt_loop", "--send", gateway.url) as sender:  # loads tokenizer and kernels
                assert sender.stdout is not None
                sender.stdout.readline()
            before = late(gateway)
            found = medians([window(gateway, both) for _ in range(windows)])
            return found | {f"late_{bound}": count - before[bound] for bound, count in late(gateway).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--engine-transport", choices=("auto", "grpcio", "native"), default="auto", help="as for smg-server"
    )
    parser.add_argument("--windows", type=int, default=WINDOWS, help="windows of half a minute (default 3)")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        asyncio.run(send_bursts(given.send))
    else:
        figures = run(given.engine_transport, given.windows)
        print(json_module.dumps(figures) if given.json else "\n".join(f"{k:18}{v}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
