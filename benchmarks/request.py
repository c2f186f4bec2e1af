"""What a short buffered request costs a worker: chat over 8 keep-alive connections, one request at a time on each.

    python benchmarks/request.py                                CPU time of the worker process
    python benchmarks/request.py --instructions --requests 200  instructions, which a busy machine hardly changes
    python benchmarks/request.py --model-path DIR               with another tokenizer than the mock engine's
    python benchmarks/request.py --stream --tools               with an answer that is streamed, with tools offered
    python benchmarks/request.py --tree DIR                     the gateway of another checkout, to compare with

Engine, gateway and client are processes of their own. ``--instructions`` needs valgrind and gcc and takes half a
minute; what was counted by function of the interpreter and of native code stays in files that begin with ``--keep``,
for callgrind_annotate. Python functions have no line of their own there: a profiler of Python shows them. What still
varies, by a few percent, is how many reads an answer arrives in.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.engines_for_tests import mock_process
from tests.gateway import children, process_role

# Runs under Valgrind: SIGRTMIN begins to count, the signal after it writes down what was counted since. Valgrind knows
# no pidfd, by which the supervisor watches its children; here none is to be watched.
COUNTED = """
import ctypes, os, runpy, signal, sys
counter = ctypes.CDLL(sys.argv.pop(1))
signal.signal(signal.SIGRTMIN, lambda *_: counter.begin())
signal.signal(signal.SIGRTMIN + 1, lambda *_: counter.dump())
os.pidfd_open = lambda pid: os.eventfd(0)
runpy.run_module("smg.cli.server", run_name="__main__")
"""
COUNTER = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void dump(void) { CALLGRIND_DUMP_STATS; }
"""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "tide",
            "description": "The height of the tide in a harbour.",
            "parameters": {
                "type": "object",
                "properties": {"harbour": {"type": "string"}, "hour": {"type": "integer"}},
                "required": ["harbour"],
            },
        },
    }
]
PROMPT = "Write a short note to the harbour master about the three boats that came in late last night. " * 3


def cpu(pid: int) -> float:
    """Time on a processor of all threads of a process, in seconds."""
    times = (path.read_text().split()[0] for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(map(int, times)) / 1e9


@contextlib.contextmanager
def gateway(engine: str, options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Run a gateway of one worker, under Valgrind if instructions are asked for: its host and port, the worker's id."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [sys.executable, "-m", "smg.cli.server"]
    if options.instructions:
        valgrind = ("valgrind", "-q", "--tool=callgrind", "--instr-atstart=no")
        counter = f"{options.keep}.so"
        build = ("gcc", "-x", "c", "-shared", "-fPIC", "-o", counter, "-")
        subprocess.run(build, input=COUNTER, text=True, check=True)
        command = [*valgrind, f"--callgrind-out-file={options.keep}.%p", sys.executable, "-c", COUNTED, counter]
    command += ["--workers", "1", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", f"grpc://{engine}"]
    command += ["--engine-transport", options.engine_transport, "--log-level", options.log_level]
    with (
        tempfile.TemporaryDirectory() as state,
        subprocess.Popen([*command, "--state-dir", state], cwd=options.tree, stderr=subprocess.DEVNULL) as process,
    ):
        try:
            wait_until_ready(f"http://127.0.0.1:{port}/readiness")
            worker = next(pid for pid in children(process.pid) if process_role(pid) == "worker-1")
            yield f"127.0.0.1:{port}", worker
        finally:
            # Its children go with it.
            process.kill()


def wait_until_ready(url: str) -> None:
    for _ in range(600):
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, timeout=60).status_code == 200:
                return
        time.sleep(0.2)
    raise TimeoutError("the gateway does not get ready")


async def ask(address: str, requests: int, options: argparse.Namespace) -> None:
    """Send ``requests`` requests over one connection, one after the other."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    messages = [{"role": "user", "content": PROMPT}]
    asked = {"model": "mock-model", "messages": messages, "max_tokens": options.tokens, "temperature": 0}
    if options.stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    if options.tools:
        asked["tools"] = TOOLS
    body = json.dumps(asked)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()
    for _ in range(requests):
        writer.write(request)
        top = await reader.readuntil(b"\r\n\r\n")
        # A stream that is over before any of it was sent has a length, too.
        size = re.search(rb"content-length: (\d+)", top, re.IGNORECASE)
        answer = await (reader.readexactly(int(size[1])) if size else reader.readuntil(b"\r\n0\r\n\r\n"))
        assert top.startswith(b"HTTP/1.1 200 "), answer
        assert b'"completion_tokens":%d,' % options.tokens in answer, answer
    writer.close()


async def load(address: str, requests: int, options: argparse.Namespace) -> None:
    await asyncio.gather(*(ask(address, requests // options.connections, options) for _ in range(options.connections)))


def count_time(address: str, worker: int, options: argparse.Namespace) -> None:
    rounds = []
    for turn in range(options.rounds + 1):
        before = cpu(worker)
        asyncio.run(load(address, options.requests, options))
        if turn:  # the first round warms up
            rounds.append((cpu(worker) - before) / options.requests * 1e6)
    print(f"{statistics.median(rounds):.0f} us CPU per request (least {min(rounds):.0f}), {options.rounds} rounds")


def count_instructions(address: str, worker: int, options: argparse.Namespace) -> None:
    warm = 10 * options.connections
    asyncio.run(load(address, warm, options))
    os.kill(worker, signal.SIGRTMIN)
    asyncio.run(load(address, options.requests, options))
    os.kill(worker, signal.SIGRTMIN + 1)
    dump, total = Path(f"{options.keep}.{worker}.1"), None
    while total is None:  # it takes a moment
        time.sleep(0.2)
        total = re.search(r"^totals: (\d+)", dump.read_text(), re.MULTILINE) if dump.exists() else None
    print(f"{int(total[1]) / options.requests / 1e3:.1f} thousand instructions per request ({dump})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="requests of a round (default 2000)")
    parser.add_argument("--connections", type=int, default=8, help="connections they come over (default 8)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of an answer (default 32)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5); Valgrind gets one")
    parser.add_argument(
        "--log-level", default="warn", help="of the gateway; info writes an access record (default warn)"
    )
    parser.add_argument("--engine-transport", default="native", help="of the gateway (default native)")
    parser.add_argument("--stream", action="store_true", help="stream the answers")
    parser.add_argument("--tools", action="store_true", help="offer a tool")
    parser.add_argument("--model-path", help="folder of a tokenizer; default: the mock engine's")
    parser.add_argument("--tree", help="run the gateway of this checkout; default: the current folder's")
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of time")
    parser.add_argument(
        "--keep", default="/tmp/request.callgrind", metavar="FILE", help="beginning of Valgrind's files"
    )
    options = parser.parse_args()
    bundle = ("--bundle", options.model_path) if options.model_path else ()
    with (
        mock_process("--tokens", str(options.tokens), *bundle) as engine,
        gateway(engine, options) as (address, worker),
    ):
        (count_instructions if options.instructions else count_time)(address, worker, options)


if __name__ == "__main__":
    main()
