"""A mock of TokenSpeed's scheduler: dials the first address it is told, and answers in columns."""

import asyncio
from typing import Any

import msgspec
import zmq

from tests.engines.zmq.core import MockCore

VERSION = "tokenspeed-1.0"
READY = {"max_model_len": 128, "num_gpu_blocks": 64, "dtype": "bfloat16", "vllm_version": VERSION, "max_num_seqs": 8}
# Positions of a request's fields and of its sampling parameters.
RID, IDS, PARAMS, LOGPROB, MEDIA = 1, 4, 5, 6, 22
MAX_TOKENS, STOP_IDS = 0, 2


class MockScheduler(MockCore):
    """As ``MockCore``. ``ends`` replaces the reason of every end; ``tail`` is what a message has behind its columns. It
    is the data-parallel rank ``rank`` of ``ranks``."""

    def __init__(self, handshake: str, *args: Any, rank: int = 0, ranks: int = 1) -> None:
        super().__init__(handshake, *args)
        self.ends = ""
        self.identity = rank.to_bytes(2, "little")
        self.ready = READY | {"data_parallel_size": ranks, "data_parallel_rank": rank}
        self.tail: list[Any] = [rank, 1, 3, 100, 400, "of a later version"]

    async def __aenter__(self) -> "MockScheduler":
        greeting = self._socket(zmq.DEALER, self._handshake)
        await greeting.send(msgspec.msgpack.encode({"status": "HELLO", "local": True, "headless": True}))
        self.addresses = msgspec.msgpack.decode(await greeting.recv())["addresses"]
        await greeting.send(msgspec.msgpack.encode({"status": "READY"}))
        socket = self._socket(zmq.DEALER, self.addresses["inputs"][0])
        await socket.send(msgspec.msgpack.encode(self.ready))
        self.outputs = [self._socket(zmq.PUSH, self.addresses["outputs"][0])]
        self._tasks += [asyncio.create_task(self._listen(socket)), asyncio.create_task(self._step_for_ever())]
        greeting.close(linger=100)
        return self

    async def _listen(self, socket: Any) -> None:
        while True:
            kind, payload, *behind = await socket.recv_multipart()
            value = msgspec.msgpack.decode(payload, ext_hook=lambda code, data: bytes(data))
            if kind == b"\x01":
                self.aborts += value
                for rid in value:
                    self._running.pop(rid, None)
                continue
            assert value[0] == "TokenizedGenerateReqInput"
            assert (len(value), len(value[PARAMS])) in ((11, 29), (MEDIA + 1, 29))
            self.behind.append(behind)
            self.adds.append(value)
            self._running[value[RID]] = value
            self._left[value[RID]] = list(self.tokens(value))[: value[PARAMS][MAX_TOKENS]]

    async def _step_for_ever(self) -> None:
        """Every step brings one token of each running request, all in one message."""
        while True:
            await asyncio.sleep(self.delay or 0.001)
            if self.stall or not self._running:
                continue
            columns: list[list[Any]] = [[] for _ in range(8)]
            for rid, request in list(self._running.items()):
                for column, value in zip(columns, self._row(rid, request), strict=True):
                    column.append(value)
            await self.send(0, ["BatchTokenIDOutSlim", *columns, *self.tail])

    def _row(self, rid: str, request: list[Any]) -> list[Any]:
        left, params = self._left[rid], request[PARAMS]
        fresh = [left.pop(0)] if left else []
        stopped = bool(fresh) and fresh[0] in params[STOP_IDS]
        over = stopped or not left
        whole = len(list(self.tokens(request))) < params[MAX_TOKENS]
        reason = (self.ends or ("stop" if stopped or whole else "length")) if over else ""
        if over:
            self._running.pop(rid, None)
        logprobs = ([-0.5] * len(fresh), fresh) if request[LOGPROB] else ([], [])
        return [rid, fresh, reason, len(request[IDS]), 99, 1, *logprobs]
