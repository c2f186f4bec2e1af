"""CPU time per token of the transports, read as the gateway reads them: GenerateResponse bytes in, TokenBatch out.

    python benchmarks/transport.py                  the engine runs ahead
    python benchmarks/transport.py --step-ms 10     every token of every stream is a tick of its own

The engine is a process of its own that sends frames made beforehand, so the figures are the reader's alone: user and
system time of this process, divided by the tokens it got. Rounds alternate between the transports; medians are shown.
"""

import argparse
import asyncio
import resource
import socket
import statistics
import subprocess
import sys
from typing import Any

import uvloop
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.core.backends import EngineRequest
from smg.core.context import RequestContext
from smg.core.request import Limits, Sampling
from smg.engines.driver import GrpcDriver
from smg.engines.transport.table import TRANSPORTS
from smg.engines.vllm.adapter import VllmAdapter

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# :status 200, content-type application/grpc; grpc-status 0: literals without a table.
ANSWER = b"\x88\x0f\x10\x10application/grpc"
TRAILERS = b"\x00\x0bgrpc-status\x010"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def data(message: Any) -> tuple[bytes, bytes]:
    """A DATA frame with one message, without its stream id: what goes before it and what after."""
    payload = message.SerializeToString()
    whole = frame(0, 0, 0, b"\0" + len(payload).to_bytes(4, "big") + payload)
    return whole[:5], whole[9:]


class Flood(asyncio.Protocol):
    """One connection of the engine: every request is answered with ``tokens`` chunks, one per tick and stream."""

    def __init__(self, tokens: int, step: float) -> None:
        chunks = [
            pb.GenerateStreamChunk(token_ids=[1000 + n], prompt_tokens=9, completion_tokens=1) for n in range(tokens)
        ]
        self.frames = [data(pb.GenerateResponse(chunk=chunk)) for chunk in chunks]
        self.frames.append(data(pb.GenerateResponse(complete=pb.GenerateComplete(finish_reason="stop"))))
        self.step = step
        self.input = b""
        self.window = 65535
        self.running: dict[int, int] = {}
        self.wake = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=4 << 20)
        self.task = asyncio.get_running_loop().create_task(self.run())

    def connection_lost(self, exc: Exception | None) -> None:
        self.task.cancel()

    def data_received(self, received: bytes) -> None:
        self.input += received
        if self.input.startswith(PREFACE):
            self.input = self.input[len(PREFACE) :]
            # SETTINGS, and a window on the connection that no run of requests uses up.
            self.transport.write(frame(4, 0, 0, b"") + frame(8, 0, 0, (1 << 30).to_bytes(4, "big")))
        while len(self.input) >= 9:
            size = int.from_bytes(self.input[:3], "big")
            if len(self.input) < 9 + size:
                break
            kind, flags, stream = self.input[3], self.input[4], int.from_bytes(self.input[5:9], "big")
            payload, self.input = self.input[9 : 9 + size], self.input[9 + size :]
            if kind == 4 and not flags:
                self.transport.write(frame(4, 1, 0, b""))
            elif kind == 6 and not flags:
                self.transport.write(frame(6, 1, 0, payload))
            elif kind == 8 and stream == 0:
                self.window += int.from_bytes(payload, "big")
            elif kind == 0 and flags & 1:
                self.transport.write(frame(1, 4, stream, ANSWER))
                self.running[stream] = 0
            self.wake.set()

    async def run(self) -> None:
        while True:
            self.wake.clear()
            out = []
            for stream, place in list(self.running.items()):
                front, back = self.frames[place]
                if len(back) > self.window:
                    break
                self.window -= len(back)
                out += [front, stream.to_bytes(4, "big"), back]
                self.running[stream] = place + 1
                if place + 1 == len(self.frames):
                    out.append(frame(1, 5, stream, TRAILERS))
                    del self.running[stream]
            self.transport.write(b"".join(out))
            if not out:
                await self.wake.wait()
            else:
                await asyncio.sleep(self.step)


async def serve(tokens: int, step: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Flood(tokens, step), "127.0.0.1", 0)
    sock: socket.socket = server.sockets[0]
    print(sock.getsockname()[1], flush=True)
    await server.serve_forever()


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def generate(driver: GrpcDriver, number: int) -> tuple[int, int]:
    """Run one generation; the tokens and the batches it took."""
    request = EngineRequest(id=f"r{number}", ids=[1, 2, 3], sampling=Sampling(), limits=Limits())
    source = await driver.open(RequestContext(request_id=request.id), request)
    tokens = batches = 0
    while arrived := await source.next():
        batches += len(arrived)
        tokens += sum(len(batch.ids) for batch in arrived)
    return tokens, batches


async def measure(url: str, options: argparse.Namespace) -> None:
    drivers = {name: GrpcDriver(url, VllmAdapter(), connect(url)) for name, connect in TRANSPORTS.items()}
    costs: dict[str, list[float]] = {name: [] for name in drivers}
    sizes: dict[str, float] = {}
    for turn in range(options.rounds + 1):
        for name, driver in drivers.items():
            before = cpu()
            got = await asyncio.gather(*(generate(driver, number) for number in range(options.streams)))
            tokens, batches = (sum(column) for column in zip(*got, strict=True))
            assert tokens == options.streams * options.tokens, "tokens were lost"
            if turn:  # the first round connects
                costs[name].append((cpu() - before) / tokens * 1e6)
                sizes[name] = tokens / batches
    medians = {name: statistics.median(values) for name, values in costs.items()}
    print(f"{options.streams} streams of {options.tokens} tokens, step {options.step_ms} ms, {options.rounds} rounds")
    for name, cost in medians.items():
        ratio = cost / medians["grpcio"]
        print(f"{name:8} {cost:7.2f} us CPU per token  {ratio:6.3f} of grpcio  {sizes[name]:6.1f} tokens per batch")
    for driver in drivers.values():
        await driver.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=32, help="generations at a time (default 32)")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of each (default 256)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds per transport (default 15)")
    parser.add_argument("--step-ms", type=float, default=0.0, help="the engine's time per token (default 0)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.tokens, options.step_ms / 1000))
        return
    command = [sys.executable, __file__, "--serve", "--tokens", str(options.tokens), "--step-ms", str(options.step_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        try:
            uvloop.run(measure(f"grpc://127.0.0.1:{int(engine.stdout.readline())}", options))
        finally:
            engine.kill()


if __name__ == "__main__":
    main()
