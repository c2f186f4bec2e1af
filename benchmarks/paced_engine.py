"""An engine that sends tokens at a pace and notes when it sent each; another one that takes images and long prompts.

    python -m benchmarks.paced_engine ROLE --pace SECONDS --stamps FILE

Each stream of ``paced`` has a clock of its own: a token that was sent late delays none after it. ``seen`` is the mock
engine as it is. Both print their address and their priority.
"""

import argparse
import asyncio
import mmap
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import uvloop
from numpy.typing import NDArray
from smg_grpc_proto import vllm_engine_pb2 as pb

from benchmarks.priority import ahead, aside
from smg.engine_server import serve
from smg.engine_server.mock.contracts.vllm import Vllm
from smg.engine_server.mock.engine import MockEngine
from smg.engine_server.mock.pair import Pair
from smg.engine_server.mock.servicer import MockServicer
from smg.engine_server.mock.tokenizer import WORD_IDS
from tests.media.models import QWEN

WORD = "hello"
# Rows of streams, and tokens of one.
ROWS, TOKENS = 2048, 4096
_ROW = re.compile(rb"#(\d+)")


class Stamps:
    """When each token of each stream was sent (seconds of the monotonic clock), in a file that both sides map."""

    def __init__(self, path: Path) -> None:
        size = 8 * ROWS * TOKENS
        with path.open("a+b") as file:
            file.truncate(size)
            self._memory = mmap.mmap(file.fileno(), size)
        self.times: NDArray[np.float64] = np.frombuffer(self._memory, np.float64).reshape(ROWS, TOKENS)


class _Written:
    """A message that is serialized already, in the place of one that is not."""

    def __init__(self, message: Any) -> None:
        self._bytes = message.SerializeToString()

    def SerializeToString(self) -> bytes:  # noqa: N802 - as generated messages have it
        return bytes(self._bytes)


class _Paced(MockServicer):
    """Streams one word again and again; the prompt names the row for the times of sending as ``#ROW``."""

    def __init__(self, pace: float, stamps: Stamps) -> None:
        pair = Pair("regular", "127.0.0.1", 0, "")
        super().__init__(Vllm(), QWEN.script(""), "paced", 1 << 20, "", True, pair)
        self._pace = pace
        self._stamps = stamps
        chunk = pb.GenerateStreamChunk(token_ids=[WORD_IDS[f" {WORD}"]], prompt_tokens=1, completion_tokens=1)
        self._chunk = _Written(pb.GenerateResponse(chunk=chunk))

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802 - the name of the RPC
        named = _ROW.search(bytes(token for token in request.tokenized.input_ids if token < 256))
        assert named is not None, "the prompt names no row"
        times, begin = self._stamps.times[int(named[1])], time.perf_counter()
        for number in range(TOKENS):
            await asyncio.sleep(begin + number * self._pace - time.perf_counter())
            times[number] = time.perf_counter()
            yield self._chunk


async def _serve_paced(pace: float, stamps: Stamps) -> None:
    priority = ahead(threads=True)
    server = grpc.aio.server(options=serve.GRPC_OPTIONS)
    server.add_generic_rpc_handlers(_Paced(pace, stamps).handlers())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"grpc://127.0.0.1:{port}", priority, flush=True)
    await asyncio.Event().wait()


async def _serve_seen() -> None:
    aside()
    async with MockEngine(QWEN.script("seen"), model="seen", context_length=1 << 20) as served:
        print(served.url, "idle", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=("paced", "seen"))
    parser.add_argument("--pace", type=float, required=True, help="seconds between tokens")
    parser.add_argument("--stamps", type=Path, required=True, help="file for the times of sending")
    given = parser.parse_args()
    uvloop.run(_serve_paced(given.pace, Stamps(given.stamps)) if given.role == "paced" else _serve_seen())


if __name__ == "__main__":
    main()
