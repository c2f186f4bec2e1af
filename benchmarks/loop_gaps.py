"""What measurements of the event loop share: paced engines, readers of streams, and what a loop waited for.

An engine is a process of its own, started by ``process(__name__, "--engine", ROLE, "--pace", SECONDS)``: ``paced``
streams text at that pace; ``seen`` takes images and long prompts and steps aside, for it would be another machine.
Streams are read by a few lines on the socket, so that the reader's own work is not what is measured.
"""

import argparse
import asyncio
import contextlib
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec

from smg.engine_server.mock.engine import MockEngine
from tests.gateway import Gateway
from tests.media.models import QWEN

# What would be on other machines steps aside on this one.
ASIDE = 10
_TOKEN = re.compile(rb'"content": ?"[^"]')


def step_aside() -> None:
    """Leave the processors to the gateway and the measurement."""
    os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, ASIDE)
    # Where sessions are scheduled as groups, niceness counts inside of one only.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(ASIDE))


@contextlib.contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a module beside this process, killed at the end; its output is the handle's ``stdout``."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running_process:
        try:
            yield running_process
        finally:
            running_process.kill()


@contextlib.contextmanager
def engines(pace: float) -> Iterator[list[str]]:
    """Run both engines; yields their addresses."""
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(process("benchmarks.loop_gaps", "--engine", role, "--pace", str(pace)))
            for role in ("paced", "seen")
        ]
        yield [one.stdout.readline().strip() for one in both if one.stdout is not None]


async def serve(role: str, pace: float) -> None:
    """Serve the model ``paced`` or ``seen`` until killed; prints the address."""
    script = QWEN.script("hello " * 4000 if role == "paced" else "seen")
    if role == "paced":
        script = msgspec.structs.replace(script, chunk_delay=pace)
    else:
        step_aside()
    async with MockEngine(script, model=role, context_length=1 << 20) as served:
        print(served.url, flush=True)
        await asyncio.Event().wait()


class _Reader(asyncio.Protocol):
    """Reads one answer and notes when each read brought tokens, and how many."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.found: list[tuple[float, int]] = []
        self.failed: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if data.startswith(b"HTTP/") and b" 200 " not in data[:16]:
            self.failed = data
        if tokens := len(_TOKEN.findall(data)):
            self.found.append((now, tokens))

    def gaps(self) -> list[tuple[float, float]]:
        """When each token but the first came, and the seconds since the one before."""
        found = []
        for (last, _), (now, tokens) in zip(self.found, self.found[1:], strict=False):
            # Tokens that come together have waited for the first of them; the others' gaps are zero.
            found.extend([(now, now - last)] + [(now, 0.0)] * (tokens - 1))
        return found


async def read_streams(url: str, streams: int, seconds: float) -> list[tuple[float, float]]:
    """Read that many streams of the model ``paced`` for so long; returns time and gap of every token."""
    body = msgspec.json.encode(
        {"model": "paced", "messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 4000}
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(body)}\r\n\r\n"
    address, loop = urlsplit(url), asyncio.get_running_loop()
    opened = [
        await loop.create_connection(lambda: _Reader(head.encode() + body), address.hostname, address.port)
        for _ in range(streams)
    ]
    await asyncio.sleep(seconds)
    for transport, _ in opened:
        transport.abort()
    if failed := [reader.failed for _, reader in opened if reader.failed]:
        raise SystemExit(f"a stream failed: {failed[0][:500]!r}")
    return [gap for _, reader in opened for gap in reader.gaps()]


async def check_health(url: str, every: float) -> list[tuple[float, float]]:
    """Ask ``/health`` until cancelled; returns when each answer came and the seconds it took."""
    found: list[tuple[float, float]] = []
    async with httpx.AsyncClient(base_url=url) as client:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                begin = time.perf_counter()
                (await client.get("/health")).raise_for_status()
                found.append((time.perf_counter(), time.perf_counter() - begin))
                await asyncio.sleep(every)
    return found


def waited(gateway: Gateway) -> float:
    """Seconds so far in which the event loop's thread could run and did not."""
    worker = gateway.child("worker-1")
    return int(Path(f"/proc/{worker}/task/{worker}/schedstat").read_text().split()[1]) / 1e9


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    ordered = sorted(seconds)
    at = {name: ordered[int(len(ordered) * share)] for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
    return {name: round(value * 1000, 2) for name, value in {**at, "max": ordered[-1]}.items()}


def medians(windows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {name: statistics.median(one[name] for one in windows) for name in windows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("paced", "seen"), required=True)
    parser.add_argument("--pace", type=float, required=True, help="seconds between tokens")
    given = parser.parse_args()
    asyncio.run(serve(given.engine, given.pace))


if __name__ == "__main__":
    main()
