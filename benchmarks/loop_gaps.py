"""What measurements of the event loop share: paced engines, readers of streams, and what a loop waited for.

An engine is a process of its own (``benchmarks.paced_engine``): ``paced`` streams tokens at a pace and notes when it
sent each; ``seen`` takes images and long prompts. Who reads the streams looks that up, so that a late token is known to
be the engine's (``sent``: gaps between the times of sending), the gateway's (``passed``: seconds from sending to
reading, with what gRPC takes in the engine and the kernel between them) or the reader's (``reader_late``: how late its
own timers are).

``benchmarks.priority`` says why these are fair: ``paced`` and the reader run ahead of everything, which costs the
gateway what they take of the processors; ``seen`` and senders take what is left. The gateway runs as always.
"""

import asyncio
import contextlib
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from benchmarks.paced_engine import TOKENS, WORD, Stamps
from benchmarks.priority import ahead, ordinary
from tests.gateway import Gateway

_WORD = WORD.encode()
# How often the reader looks at its own timers.
_WATCH_SECS = 0.005


class Token(msgspec.Struct):
    """One token as it was read, at ``at``; ``gap`` is that since the one before it, ``sent`` the same at the engine.

    All in seconds of the monotonic clock.
    """

    at: float
    gap: float
    sent: float
    passed: float


@contextlib.contextmanager
def process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a module beside this process, killed at the end; its output is the handle's ``stdout``."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running_process:
        try:
            yield running_process
        finally:
            running_process.kill()


class Engines(msgspec.Struct):
    """Both engines' addresses, what ``paced`` notes, and the numbers of rows nobody has taken yet."""

    urls: list[str]
    stamps: Stamps
    rows: Iterator[int]


@contextlib.contextmanager
def engines(pace: float) -> Iterator[Engines]:
    """Run both engines; tells on standard error at what priority those run that measure."""
    shared = Path("/dev/shm")
    with contextlib.ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=shared if shared.exists() else None)), "stamps")
        stamps = Stamps(path)
        urls = []
        for role in ("paced", "seen"):
            arguments = (role, "--pace", str(pace), "--stamps", str(path))
            engine = stack.enter_context(process("benchmarks.paced_engine", *arguments))
            assert engine.stdout is not None
            url, _, priority = engine.stdout.readline().strip().partition(" ")
            urls.append(url)
            print(f"engine {role}: {priority}", file=sys.stderr)
        yield Engines(urls, stamps, itertools.count())


class _Reader(asyncio.Protocol):
    """Reads one answer and notes when each read brought tokens, and how many."""

    def __init__(self, url: str, row: int) -> None:
        body = msgspec.json.encode(
            {
                "model": "paced",
                "messages": [{"role": "user", "content": f"#{row}"}],
                "stream": True,
                "max_tokens": TOKENS,
            }
        )
        self._request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._request += body
        self._rest = b""
        self.row = row
        self.found: list[tuple[float, int]] = []
        self.failed: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if data.startswith(b"HTTP/") and b" 200 " not in data[:16]:
            self.failed = data
        # A read may end within a word.
        data = self._rest + data
        self._rest = data[1 - len(_WORD) :]
        if tokens := data.count(_WORD):
            self.found.append((now, tokens))

    def tokens(self, stamps: Stamps) -> list[Token]:
        """Every token but the first."""
        sent = stamps.times[self.row].tolist()
        out: list[Token] = []
        last, at = 0.0, 0
        for now, count in self.found:
            for number in range(at, at + count):
                # Tokens that come together have waited for the first of them; the others' gaps are zero.
                gap = now - last if number == at else 0.0
                if number:
                    out.append(Token(now, gap, sent[number] - sent[number - 1], now - sent[number]))
            last, at = now, at + count
        return out


class Read(msgspec.Struct):
    """All tokens of some streams, and how late the reader's own timers were (seconds)."""

    tokens: list[Token]
    late: list[float]
    priority: str


async def read_streams(url: str, of: Engines, streams: int, seconds: float) -> Read:
    """Read that many streams of the model ``paced`` for so long, ahead of everything else."""
    address, loop = urlsplit(url), asyncio.get_running_loop()
    priority, late = ahead(threads=False), list[float]()
    opened = []
    for row in itertools.islice(of.rows, streams):

        def reader(row: int = row) -> _Reader:
            return _Reader(url, row)

        opened.append(await loop.create_connection(reader, address.hostname, address.port))
    end = loop.time() + seconds
    while (due := loop.time() + _WATCH_SECS) < end:
        await asyncio.sleep(_WATCH_SECS)
        late.append(max(0.0, loop.time() - due))
    for transport, _ in opened:
        transport.abort()
    ordinary()
    if failed := [each.failed for _, each in opened if each.failed]:
        raise SystemExit(f"a stream failed: {failed[0][:500]!r}")
    return Read([token for _, each in opened for token in each.tokens(of.stamps)], late, priority)


class _Check(asyncio.Protocol):
    """Asks ``/health`` on one connection."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[bytes] | None = None

    def data_received(self, data: bytes) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(data)


async def check_health(url: str, every: float) -> list[tuple[float, float]]:
    """Ask ``/health`` until cancelled; returns when each answer came and the seconds it took."""
    found: list[tuple[float, float]] = []
    address, loop = urlsplit(url), asyncio.get_running_loop()
    transport, check = await loop.create_connection(_Check, address.hostname, address.port)
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            begin = time.perf_counter()
            check.answered = loop.create_future()
            transport.write(b"GET /health HTTP/1.1\r\nhost: gateway\r\n\r\n")
            answer = await check.answered
            if not answer.startswith(b"HTTP/1.1 200 "):
                raise SystemExit(f"/health fails: {answer[:500]!r}")
            found.append((time.perf_counter(), time.perf_counter() - begin))
            await asyncio.sleep(every)
    transport.abort()
    return found


def waited(gateway: Gateway) -> float:
    """Seconds so far in which the event loop's thread could run and did not."""
    worker = gateway.child("worker-1")
    return int(Path(f"/proc/{worker}/task/{worker}/schedstat").read_text().split()[1]) / 1e9


def spread(seconds: Iterable[float]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    ordered = sorted(seconds)
    at = {name: ordered[int(len(ordered) * share)] for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
    return {name: round(value * 1000, 2) for name, value in {**at, "max": ordered[-1]}.items()}


def spreads(tokens: Sequence[Token]) -> dict[str, float]:
    """Percentiles of the gaps in milliseconds, of what is the gateway's and of what is the engine's."""
    out = spread(token.gap for token in tokens)
    out |= {f"passed_{name}": value for name, value in spread(token.passed for token in tokens).items()}
    return out | {"sent_p99": spread(token.sent for token in tokens)["p99"]}


def medians(windows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {name: round(statistics.median(one[name] for one in windows), 2) for name in windows[0]}
