"""A running gateway for tests: started like a user would, watched like an operator would."""

import asyncio
import contextlib
import os
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import msgspec
from openai import AsyncOpenAI, OpenAI

from smg import Server
from smg.config import Settings, load
from smg.server import RunningServer
from tests.transports import CHOSEN

WEIGHTS = Path(__file__).resolve().parent.parent / "build" / "test-weights"
MODEL = "smollm2-135m-instruct"


def settings(state: Path, *flags: str) -> Settings:
    """Settings as the command line gives them, on a free port of loopback and with the chosen transport."""
    # The quickest weights, expanded once for all tests: what is tested here is the gateway.
    engine = f"--weights q8 --state-dir {WEIGHTS}"
    listen = ("--host", "127.0.0.1", "--port", "0", "--shutdown-settle-secs", "0")
    fixed = (*listen, "--state-dir", str(state), "--embedded-args", engine)
    return load([*fixed, *flags], {"SMG_ENGINE_TRANSPORT": CHOSEN})


class Gateway:
    """Handle on a running gateway."""

    def __init__(self, server: RunningServer, certificate: str | None = None) -> None:
        self.tls = ssl.create_default_context(cafile=certificate) if certificate else None
        self.server = server
        self.url = server.url
        self.pid = server.pid

    def client(self, **options: object) -> OpenAI:
        http = httpx.Client(verify=self.tls or True)
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, http_client=http, **options)  # type: ignore[arg-type]

    def async_client(self, **options: object) -> AsyncOpenAI:
        http = httpx.AsyncClient(verify=self.tls or True)
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, http_client=http, **options)  # type: ignore[arg-type]

    def get(self, path: str) -> httpx.Response:
        # One connection per call: with several workers the kernel may choose another one each time.
        return httpx.get(self.url + path, timeout=10, verify=self.tls or True)

    def metric(self, name: str) -> float:
        """Sum of all series of one metric on the metrics page."""
        lines = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics").text, re.MULTILINE)
        return sum(map(float, lines))

    def ready(self) -> bool:
        try:
            return self.get("/readiness").status_code == 200
        except httpx.TransportError:
            return False

    def engine_running(self) -> int:
        """Requests the engine itself says it works on."""
        workers = self.get("/get_loads").json()["workers"]
        ranks = [rank for worker in workers for rank in worker.get("details", {}).get("loads", ())]
        return sum(rank["num_running_reqs"] + rank["num_waiting_reqs"] for rank in ranks)

    def child(self, role: str) -> int:
        """Process id of ``control``, ``worker-1`` … or ``engine``."""
        for pid in children(self.pid):
            if process_role(pid) == role:
                return pid
        raise LookupError(f"no {role} among {[process_role(pid) for pid in children(self.pid)]}")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def process_role(pid: int) -> str:
    with contextlib.suppress(OSError):
        if b"smg.cli.engine" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return "engine"
        return Path(f"/proc/{pid}/comm").read_text().strip().removeprefix("smg-")
    return ""


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait until ``condition`` holds; returns the seconds it took, fails after ``seconds``."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - start


@contextlib.contextmanager
def running(configured: Settings, ready: float = 60.0) -> Iterator[Gateway]:
    """Start a gateway, wait until it is ready, and stop it afterwards."""
    server = Server(configured).start()
    try:
        gateway = Gateway(server, configured.server.tls_cert_path)
        if ready:
            server.ready(ready)
        yield gateway
    finally:
        server.stop(timeout=20)
    assert not os.path.exists(f"/proc/{gateway.pid}"), "the supervisor outlived its stop"


@contextlib.asynccontextmanager
async def running_async(configured: Settings, ready: float = 60.0) -> AsyncIterator[Gateway]:
    """As ``running``, for a test whose event loop also serves the engine."""
    manager = running(configured, ready)
    gateway = await asyncio.to_thread(manager.__enter__)
    try:
        yield gateway
    finally:
        await asyncio.to_thread(manager.__exit__, *sys.exc_info())


def body(**extra: object) -> bytes:
    """A small chat request."""
    base: dict[str, object] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Tell me about the sea."}],
        "max_tokens": 64,
    }
    return msgspec.json.encode(base | extra)


async def until_async(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """As ``wait_for``, for a test whose event loop also serves the engine."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - other processes have no event
            await asyncio.sleep(0.05)
