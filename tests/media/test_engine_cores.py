"""Images from the official client to engines over ZeroMQ: vLLM's engine core, TokenSpeed's scheduler."""

import contextlib

import msgspec
import numpy as np
import pytest

from smg.engine_server.mock import tokenizer as mock
from smg.engines.zmq.address import parse
from smg.vision.config import parse_config
from smg.vision.families.base import encode
from smg.vision.families.qwen_vl import Qwen2VL
from smg.vision.normalise import to_bfloat16
from tests.engines.zmq.core import PROMPT, MockCore
from tests.engines.zmq.scheduler import IDS, MEDIA, MockScheduler
from tests.engines.zmq.test_media import FEATURES
from tests.engines.zmq.test_zmq import free_url
from tests.gateway import running_async, settings, until_async
from tests.media.models import QWEN, data_url, picture, png
from tests.media.test_end_to_end import END, PAD, START, image, share_kernels, text

pytestmark = pytest.mark.e2e
WORDS = [*mock.encode_text("seen"), mock.EOS]
SIZES = ((56, 56), (84, 140))
TOKENS = (4, 15)
# So small that both fit into the engine's context.
BUDGET = {"min_pixels": 784, "max_pixels": 1 << 20}


@contextlib.asynccontextmanager
async def started(tmp_path, monkeypatch, kind):
    """A gateway of two processes, and the engine that has connected to it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    url, model = free_url(), msgspec.structs.replace(QWEN, preprocessor=BUDGET).write(tmp_path / "mock-model")
    share_kernels(tmp_path)
    flags = ("--worker-urls", url, "--model-path", str(model), "--workers", "2")
    async with (
        running_async(settings(tmp_path, *flags), ready=0) as gateway,
        kind(parse(url).handshake, lambda add: WORDS) as engine,
    ):
        await until_async(gateway.ready)
        async with gateway.async_client() as client:
            yield engine, client


def pixels(size):
    """The image's patches, as bits of bfloat16."""
    family = Qwen2VL(parse_config({"model_type": QWEN.type}, BUDGET))
    return to_bfloat16(encode(family, [np.asarray(picture(*size))]).tensor)


async def ask(client, *parts, **more):
    return await client.chat.completions.create(
        model="mock-model", messages=[{"role": "user", "content": list(parts)}], max_tokens=8, **more
    )


@pytest.mark.parametrize("kind", [MockCore, MockScheduler], ids=["vllm", "tokenspeed"])
async def test_images_reach_the_engine_as_tensors(tmp_path, monkeypatch, kind):
    async with started(tmp_path, monkeypatch, kind) as (engine, client):
        parts = [text("a"), *(image(data_url(png(*size))) for size in SIZES)]
        answer = await ask(client, *parts)
        assert answer.choices[0].message.content == "seen"
        stream = await ask(client, *parts, stream=True)
        pieces = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
        assert "".join(pieces) == "seen"
        assert engine.behind == [[pixels(size).tobytes() for size in SIZES]] * 2
        ids = engine.adds[0][PROMPT if kind is MockCore else IDS]
        runs = [START, *[PAD] * TOKENS[0], END, START, *[PAD] * TOKENS[1], END]
        at = ids.index(START)
        assert ids[at : at + len(runs)] == runs
        if kind is MockCore:
            features = engine.adds[0][FEATURES]
            places = [(feature["mm_position"]["offset"], feature["mm_position"]["length"]) for feature in features]
        else:
            places = [(run[0][0], run[0][1] - run[0][0] + 1) for run in (item[3] for item in engine.adds[0][MEDIA][0])]
        assert places == [(at + 1, TOKENS[0]), (at + TOKENS[0] + 3, TOKENS[1])]
