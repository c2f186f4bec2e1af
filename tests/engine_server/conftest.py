"""Clients over the published stubs, for both engines."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc

SCALARS = {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0, "n": 1}


def generate_request(prompt, *, id="r-1", stream=True, **params):
    return pb.GenerateRequest(
        request_id=id,
        tokenized=pb.TokenizedInput(input_ids=prompt),
        sampling_params=pb.SamplingParams(**(SCALARS | params)),
        stream=stream,
    )


@asynccontextmanager
async def stub_of(address: str) -> AsyncIterator[vllm_engine_pb2_grpc.VllmEngineStub]:
    # A local subchannel pool: tests restart servers on the same port and must not inherit a back-off.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield vllm_engine_pb2_grpc.VllmEngineStub(channel)


@pytest.fixture
def request_of() -> Callable[..., pb.GenerateRequest]:
    return generate_request


@pytest.fixture
def connect() -> Callable:
    return stub_of


class Answer:
    """A drained Generate call: chunks and completes by choice, ids from chunks only (rule 1 of spec 2.1)."""

    def __init__(self) -> None:
        self.order: list[tuple[str, int]] = []
        self.chunks: dict[int, list[pb.GenerateStreamChunk]] = {}
        self.completes: dict[int, pb.GenerateComplete] = {}

    def add(self, message: pb.GenerateResponse) -> None:
        kind = message.WhichOneof("response")
        part = getattr(message, kind)
        self.order.append((kind, part.index))
        if kind == "chunk":
            self.chunks.setdefault(part.index, []).append(part)
        else:
            assert part.index not in self.completes
            self.completes[part.index] = part

    def ids(self, index: int = 0) -> list[int]:
        return [token for chunk in self.chunks.get(index, []) for token in chunk.token_ids]

    @property
    def complete(self) -> pb.GenerateComplete:
        assert list(self.completes) == [0]
        return self.completes[0]


@pytest.fixture
def drain() -> Callable:
    async def drain(call) -> Answer:
        answer = Answer()
        while (message := await call.read()) is not grpc.aio.EOF:
            answer.add(message)
        return answer

    return drain


@pytest.fixture
def settle() -> Callable:
    async def settle(probe, wanted, seconds=10.0) -> None:
        """Wait until ``probe()`` gives ``wanted``: an engine hears of a cancellation a moment after the client."""
        async with asyncio.timeout(seconds):
            while True:
                value = probe()
                if (await value if inspect.isawaitable(value) else value) == wanted:
                    return
                await asyncio.sleep(0.002)

    return settle


@pytest.fixture(scope="session")
def model():
    """The embedded engine's model, for what needs no scheduler; one slot."""
    from smg.engine_server.llama import default_model
    from smg.engine_server.llama.model import Model

    model = Model(default_model(), slots=2, context_length=512)
    yield model
    model.close()


@pytest.fixture(scope="session")
def text_of():
    """Text of the embedded engine's ids."""
    from smg.engine_server.llama import default_model, gguf_metadata, tokenizer_bundle

    return tokenizer_bundle.tokenizer(gguf_metadata.read(default_model())).decode
