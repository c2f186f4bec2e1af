"""CPU time per token of a whole worker process: engine stream in, server-sent events out, over each transport.

    python benchmarks/pump.py                  all streams at once, one token per message and stream each 5 ms
    python benchmarks/pump.py --step-ms 0      the engine runs ahead
    python benchmarks/pump.py --buffered       answers in one piece

Engine, gateways and client are processes of their own; the figures are the worker's user and system time, divided by
the tokens it passed on. Rounds alternate between the transports; medians are shown.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from pathlib import Path

import httpx

from tests.engines_for_tests import mock_process
from tests.gateway import Gateway, body, running, settings

TRANSPORTS = ("grpcio", "native")


def cpu(pid: int) -> float:
    """User and system time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def ask(client: httpx.AsyncClient, gateway: Gateway, options: argparse.Namespace) -> int:
    """Run one request; returns its tokens."""
    extra = {} if options.buffered else {"stream": True, "stream_options": {"include_usage": True}}
    data = body(model="mock-model", max_tokens=options.tokens, **extra)
    answer = (await client.post(f"{gateway.url}/v1/chat/completions", content=data)).raise_for_status()
    last = answer.text if options.buffered else answer.text.split("\n\n")[-3].removeprefix("data: ")
    return int(json.loads(last)["usage"]["completion_tokens"])


async def measure(gateways: dict[str, Gateway], options: argparse.Namespace) -> None:
    costs: dict[str, list[float]] = {name: [] for name in gateways}
    async with httpx.AsyncClient(timeout=300, limits=httpx.Limits(max_connections=options.streams)) as client:
        for turn in range(options.rounds + 1):
            for name, gateway in gateways.items():
                worker = gateway.child("worker-1")
                before = cpu(worker)
                tokens = sum(await asyncio.gather(*(ask(client, gateway, options) for _ in range(options.streams))))
                if turn:  # the first round connects
                    costs[name].append((cpu(worker) - before) / tokens * 1e6)
    print(f"{options.streams} streams of {options.tokens} tokens, step {options.step_ms} ms, {options.rounds} rounds")
    for name, values in costs.items():
        print(f"{name:8} {statistics.median(values):7.2f} us CPU per token")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=32, help="requests at a time (default 32)")
    parser.add_argument("--tokens", type=int, default=400, help="tokens of each (default 400)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per transport (default 5)")
    parser.add_argument("--step-ms", type=float, default=5.0, help="the engine's time per token (default 5)")
    parser.add_argument("--buffered", action="store_true", help="do not stream the answers")
    options = parser.parse_args()
    engine = ("--tokens", str(options.tokens), "--delay-token-ms", str(options.step_ms))
    with mock_process(*engine) as address, tempfile.TemporaryDirectory() as state:
        first, second = (
            running(settings(Path(state) / name, "--worker-urls", f"grpc://{address}", "--engine-transport", name))
            for name in TRANSPORTS
        )
        with first as grpcio, second as native:
            asyncio.run(measure({"grpcio": grpcio, "native": native}, options))


if __name__ == "__main__":
    main()
