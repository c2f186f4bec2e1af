"""A gateway of two processes in front of an engine over ZeroMQ: vLLM's engine core, TokenSpeed's scheduler."""

import io
import os
import signal
import zipfile

import pytest

from smg.engine_server.mock import tokenizer
from smg.engines.zmq.address import parse
from tests.engines.zmq.core import CLIENT, MockCore
from tests.engines.zmq.scheduler import MockScheduler
from tests.engines.zmq.test_zmq import free_url
from tests.gateway import Gateway, running_async, settings, until_async

pytestmark = pytest.mark.e2e
ROLES = ("worker-1", "worker-2", "control")
RUNTIMES = {MockCore: "vllm", MockScheduler: "tokenspeed"}
QUESTION = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize("engine", [MockCore, MockScheduler], ids=["vllm", "tokenspeed"])
async def test_chat_streams_and_processes_that_start_again(tmp_path, monkeypatch, engine):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    model = tmp_path / "mock-model"
    zipfile.ZipFile(io.BytesIO(tokenizer.archive(128))).extractall(model)
    url = free_url()
    flags = ("--worker-urls", url, "--model-path", str(model), "--workers", "2")
    words = [*tokenizer.encode_text("hello from the core"), tokenizer.EOS]
    async with (
        running_async(settings(tmp_path, *flags), ready=0) as gateway,
        engine(parse(url).handshake, lambda add: words) as core,
    ):
        await until_async(gateway.ready)
        async with gateway.async_client() as client:
            for _ in range(8):
                whole = await client.chat.completions.create(model="mock-model", messages=QUESTION)
                assert whole.choices[0].message.content == "hello from the core"
                stream = await client.chat.completions.create(model="mock-model", messages=QUESTION, stream=True)
                parts = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
                assert "".join(parts) == "hello from the core"
            if engine is MockCore:
                assert {add[CLIENT] for add in core.adds} <= {1, 2}
            assert {each["runtime_type"] for each in gateway.get("/workers").json()["workers"]} == {RUNTIMES[engine]}
            assert core.aborts == []
        # Their successors have the same sockets, and the engine finds them.
        for role in ROLES:
            os.kill(gateway.child(role), signal.SIGKILL)
        await until_async(lambda: complete(gateway) and gateway.ready())
        async with gateway.async_client() as client:
            for _ in range(4):
                whole = await client.chat.completions.create(model="mock-model", messages=QUESTION)
                assert whole.choices[0].message.content == "hello from the core"


def complete(gateway: Gateway) -> bool:
    """Whether all processes are there."""
    try:
        return all(gateway.child(role) for role in ROLES)
    except LookupError:
        return False
