"""A mock of vLLM's engine core: dials the gateway, speaks its frames, and answers as scripted."""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import zmq
import zmq.asyncio

READY = {"max_model_len": 128, "num_gpu_blocks": 64, "block_size": 16, "dtype": "bfloat16", "vllm_version": "0.11"}
# Positions of an ADD's fields.
ID, PROMPT, PARAMS, CLIENT = 0, 1, 3, 11


class MockCore:
    """``tokens(add)`` gives the ids of a request; ``delay`` is in seconds per step; ``stall`` answers nothing.

    ``adds``, ``aborts`` and ``calls`` are what was asked, ``behind`` the frames of tensors that came with each add.
    """

    identity = b"\x00\x00"

    def __init__(self, handshake: str, tokens: Callable[[list[Any]], list[int]] = lambda add: [5, 6, 7]) -> None:
        self.tokens = tokens
        self.delay = 0.0
        self.stall = False
        self.finish = 0
        self.aux = False
        self.adds: list[list[Any]] = []
        self.behind: list[list[bytes]] = []
        self.aborts: list[str] = []
        self.calls: list[Any] = []
        self.addresses: dict[str, Any] = {}
        self._handshake = handshake
        self._context = zmq.asyncio.Context()
        self._inputs: list[zmq.asyncio.Socket] = []
        self.outputs: list[zmq.asyncio.Socket] = []
        self._running: dict[str, list[Any]] = {}
        self._left: dict[str, list[int]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._numbers = itertools.count()

    async def __aenter__(self) -> "MockCore":
        greeting = self._socket(zmq.DEALER, self._handshake)
        await greeting.send(msgspec.msgpack.encode({"status": "HELLO", "local": True, "headless": True}))
        self.addresses = msgspec.msgpack.decode(await greeting.recv())["addresses"]
        await greeting.send(msgspec.msgpack.encode({"status": "READY"}))
        for endpoint in self.addresses["inputs"]:
            socket = self._socket(zmq.DEALER, endpoint)
            await socket.send(msgspec.msgpack.encode(READY))
            self._inputs.append(socket)
            self._tasks.append(asyncio.create_task(self._listen(socket)))
        self.outputs = [self._socket(zmq.PUSH, endpoint) for endpoint in self.addresses["outputs"]]
        self._tasks.append(asyncio.create_task(self._step_for_ever()))
        greeting.close(linger=100)
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._context.destroy(linger=0)

    def _socket(self, kind: int, endpoint: str) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.IDENTITY, self.identity)
        socket.setsockopt(zmq.RECONNECT_IVL, 10)
        socket.connect(endpoint)
        return socket

    async def _listen(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            kind, payload, *behind = await socket.recv_multipart()
            value = msgspec.msgpack.decode(payload, ext_hook=lambda code, data: bytes(data))
            if kind == b"\x00":
                assert len(value) == 20
                self.behind.append(behind)
                self.adds.append(value)
                self._running[value[ID]] = value
                self._left[value[ID]] = list(self.tokens(value))[: value[PARAMS]["max_tokens"]]
            elif kind == b"\x01":
                self.aborts += value
                for name in value:
                    self._running.pop(name, None)
            else:
                self.calls.append(value)
                client, number, method, _ = value
                answer = [number, "no such method", None] if method == "nope" else [number, None, True]
                await self.send(client, [0, [], None, time.time(), answer])

    async def _step_for_ever(self) -> None:
        """Every step brings one token of each running request, all of a client in one message."""
        while True:
            await asyncio.sleep(self.delay or 0.001)
            if self.stall or not self._running:
                continue
            by_client: dict[int, list[Any]] = {}
            frames: list[bytes] = []
            for name, add in list(self._running.items()):
                by_client.setdefault(add[CLIENT], []).append(self._output(name, add, frames))
            stats = {"num_running_reqs": len(self._running), "num_waiting_reqs": 3, "kv_cache_usage": 0.5}
            for client, outputs in by_client.items():
                await self.send(client, [0, outputs, stats, time.time()], frames)

    def _output(self, name: str, add: list[Any], frames: list[bytes]) -> list[Any]:
        left = self._left[name]
        fresh = [left.pop(0)] if left else []
        params, first = add[PARAMS], len(left) + len(fresh) == len(self.tokens(add)[: add[PARAMS]["max_tokens"]])
        stopped = fresh and fresh[0] in params["stop_token_ids"]
        over = stopped or not left
        reason = (
            (self.finish or (0 if stopped or len(self.tokens(add)) < params["max_tokens"] else 1)) if over else None
        )
        output = [name, fresh, None, None, None, reason, fresh[0] if stopped else None]
        if "logprobs" in params:
            output[2] = self._logprobs(fresh, params["logprobs"], frames)
        if "prompt_logprobs" in params and first:
            output[3] = self._logprobs(add[PROMPT][1:], params["prompt_logprobs"], frames)
        if first:
            stats = {"num_prompt_tokens": len(add[PROMPT]), "num_cached_tokens": 1}
            output += [None, None, None, None, stats]
        if over:
            self._running.pop(name, None)
        return output

    def _logprobs(self, ids: list[int], top: int, frames: list[bytes]) -> list[Any]:
        tokens = np.array([[token, *range(token, token + top)] for token in ids], "<i8")
        values = np.array([[-0.5, *(-0.5 - place for place in range(top))] for _ in ids], "<f4")
        return [self._tensor(tokens, frames), self._tensor(values, frames), None, None]

    def _tensor(self, array: Any, frames: list[bytes]) -> list[Any]:
        if not self.aux:
            return [array.dtype.str, list(array.shape), msgspec.msgpack.Ext(3, array.tobytes())]
        frames.append(array.tobytes())
        return [array.dtype.str, list(array.shape), len(frames)]

    async def send(self, client: int, message: Any, frames: list[bytes] | None = None) -> None:
        data = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
        await self.outputs[client].send_multipart([data, *(frames or [])])
