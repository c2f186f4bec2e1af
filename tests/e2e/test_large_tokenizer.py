"""A tokenizer of 150,000 tokens is added while streams run: nobody waits for it, and no death leaves half of it."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, children, running, settings, wait_for
from tests.text.large import write_large

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PACE = 0.02
# The library holds the GIL for seconds when it loads such a tokenizer; what a busy machine adds to 20 ms is less.
STALL = 0.5


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    return write_large(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("state")
    pace = ("--tokens", "20000", "--delay-token-ms", str(round(PACE * 1000)))
    with (
        mock_process(*pace) as address,
        running(settings(state, "--workers", "1", "--worker-urls", f"grpc://{address}")) as started,
    ):
        started.prepared = state / "tokenizers" / "prepared"
        yield started


def variant(large: Path, directory: Path) -> Path:
    """The same tokenizer under another key."""
    directory.mkdir()
    os.link(large / "tokenizer.json", directory / "tokenizer.json")
    config = json.loads((large / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps(config | {"name": directory.name}))
    return directory


def add(gateway: Gateway, name: str, source: Path) -> str:
    answer = httpx.post(f"{gateway.url}/v1/tokenizers", json={"name": name, "source": str(source)}, timeout=30)
    return answer.json()["id"]


def completed(gateway: Gateway, id: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        status = httpx.get(f"{gateway.url}/v1/tokenizers/{id}/status", timeout=30).json().get("status")
        assert status != "failed"
        return status == "completed"
    return False


def makers(gateway: Gateway) -> list[int]:
    """The processes that prepare tokenizers for this gateway."""
    with contextlib.suppress(LookupError, OSError):
        pids = children(gateway.child("control"))
        return [pid for pid in pids if b"smg.text.mapped" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return []


def processor_secs(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Stream:
    """A stream whose chunks are timed, in a thread of its own."""

    def __init__(self, gateway: Gateway) -> None:
        self.gaps: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(gateway.url,))

    def __enter__(self) -> "Stream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self, url: str) -> None:
        content = body(model="mock-model", stream=True, max_tokens=20000)
        with httpx.stream("POST", f"{url}/v1/chat/completions", content=content, timeout=60) as response:
            last = time.monotonic()
            for line in response.iter_lines():
                if self._stop.is_set():
                    return
                if line.startswith("data: "):
                    self.gaps.append(time.monotonic() - last)
                    last = time.monotonic()


def test_no_stream_waits_for_it(gateway, large):
    worker = gateway.child("worker-1")
    with Stream(gateway) as stream:
        wait_for(lambda: len(stream.gaps) > 50, 30, "a stream under way")
        stream.gaps.clear()
        before = processor_secs(worker)
        id = add(gateway, "large", large)
        wait_for(lambda: completed(gateway, id), 120, "the tokenizer is there")
        request = {"model": "large", "prompt": "hello <|im_end|> e\u0301"}
        answer = httpx.post(f"{gateway.url}/v1/tokenize", json=request, timeout=30).json()
        spent = processor_secs(worker) - before
        chunks = len(stream.gaps)
    assert 150_002 in answer["tokens"]
    assert max(stream.gaps) < STALL, sorted(stream.gaps)[-5:]
    # Two seconds and more when it loads the tokenizer itself; the stream's part is small.
    assert spent < 1 + 0.003 * chunks
    [file] = [path for path in gateway.prepared.iterdir() if path.stat().st_size > 10_000_000]
    assert str(file) in Path(f"/proc/{worker}/maps").read_text()
    page = gateway.get("/metrics").text
    late = [line for line in page.splitlines() if line.startswith("smg_event_loop_lag_seconds_bucket")]
    counts = {line.split('le="')[1].split('"')[0]: float(line.split()[-1]) for line in late}
    assert counts["0.5"] == counts["+Inf"] > 0


@pytest.mark.parametrize("victim", ["control", "maker"])
def test_a_death_while_it_is_made_leaves_no_half_file(gateway, large, tmp_path, victim):
    source = variant(large, tmp_path / f"without {victim}")
    before = {path.name for path in gateway.prepared.iterdir()}
    id = add(gateway, source.name, source)
    wait_for(lambda: bool(makers(gateway)), 30, "the process that prepares it")
    [maker] = makers(gateway)
    os.kill(maker if victim == "maker" else gateway.child("control"), signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{maker}").exists() or maker not in makers(gateway), 20, "the process has gone")
    assert {path.name for path in gateway.prepared.iterdir()} == before
    if victim == "control":
        # The next control process goes on with what was begun.
        wait_for(lambda: completed(gateway, id), 120, "the tokenizer is there after all")
    else:
        status = f"{gateway.url}/v1/tokenizers/{id}/status"
        wait_for(lambda: httpx.get(status, timeout=30).json()["status"] == "failed", 20, "it is told")
        id = add(gateway, source.name, source)
        wait_for(lambda: completed(gateway, id), 120, "the second try")
    assert len([path for path in gateway.prepared.iterdir() if path.suffix == ".tokenizer"]) == len(before) + 1
