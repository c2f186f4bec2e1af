"""Images from the official client to engines of all contracts (cases MM-01 to MM-03; spec multimodal 12)."""

import hashlib
from collections.abc import AsyncIterator

import numpy as np
import openai
import pytest
from blake3 import blake3

from smg.engine_server.mock import tokenizer as mock
from smg.engine_server.mock.engine import MockEngine
from smg.engine_server.mock.script import Script
from smg.vision.normalise import from_bfloat16
from tests.gateway import Gateway, running_async, settings
from tests.media.models import GOLDEN, QWEN, data_url, png

PAD = QWEN.id("<|image_pad|>")
START, END = QWEN.id("<|vision_start|>"), QWEN.id("<|vision_end|>")
# MM-03: height, width and what becomes of it.
SIZES = ((224, 224), (448, 448), (224, 448))
TOKENS = (64, 256, 128)
GRIDS = [[1, 16, 16], [1, 32, 32], [1, 16, 32]]


@pytest.fixture
async def engine(request) -> AsyncIterator[MockEngine]:
    async with MockEngine(Script.text("seen"), contract=request.param) as engine:
        yield engine


@pytest.fixture
async def gateway(engine, tmp_path) -> AsyncIterator[Gateway]:
    directory = QWEN.write(tmp_path / "model")
    flags = ("--worker-urls", engine.url, "--tokenizer-path", str(directory))
    async with running_async(settings(tmp_path, *flags)) as gateway:
        yield gateway


def image(url, **options):
    return {"type": "image_url", "image_url": {"url": url, **options}}


def text(value):
    return {"type": "text", "text": value}


async def ask(gateway, *parts):
    async with gateway.async_client() as client:
        return await client.chat.completions.create(
            model="mock-model", messages=[{"role": "user", "content": list(parts)}], max_tokens=8
        )


def mixed():
    """Three images of different sizes among text."""
    urls = [data_url(png(*size)) for size in SIZES]
    return [text("a"), image(urls[0]), text("b"), image(urls[1], detail="high"), image(urls[2]), text("c")]


def prompt(pads=TOKENS):
    """The ids of ``mixed``, with so many pads for each image."""
    first, second, third = ([START, *[PAD] * count, END] for count in pads)
    head = mock.encode_text("<|im_start|>user\na")
    tail = mock.encode_text("c<|im_end|>\n<|im_start|>assistant\n")
    return [*head, *first, *b"b", *second, *third, *tail]


def ranges(found):
    return [(one.offset, one.length) for one in found]


def expected_ranges():
    ids, out = prompt(), []
    for position, token in enumerate(ids):
        if token == START:
            out.append((position + 1, ids.index(END, position) - position - 1))
    return out


def golden(data):
    """The digests of each image's part of the bytes of a float32 tensor."""
    rows = [4 * 1176 * tokens * 4 for tokens in TOKENS]
    ends = np.cumsum(rows)
    return [hashlib.sha256(data[end - size : end]).hexdigest() for end, size in zip(ends, rows, strict=True)]


EXPECTED = [GOLDEN["qwen2_vl-fast"][f"{height}x{width}"]["sha256"] for height, width in SIZES]


def integers(tensor, field="inline"):
    assert tensor.dtype == "int64"
    return np.frombuffer(getattr(tensor, field), np.int64).reshape(tensor.shape).tolist()


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_vllm_gets_one_batch_with_structural_ranges(gateway, engine):
    answer = await ask(gateway, *mixed())
    assert answer.choices[0].message.content == "seen"
    assert answer.usage.prompt_tokens == len(prompt())
    request = engine.requests[0].request
    assert list(request.tokenized.input_ids) == prompt()
    sent = request.mm_inputs
    assert (sent.modality, sent.im_token_id) == (1, PAD)
    assert list(sent.pixel_values.shape) == [1792, 1176]
    assert sent.pixel_values.dtype == "float32"
    assert golden(sent.pixel_values.inline) == EXPECTED
    assert ranges(sent.mm_placeholders) == expected_ranges()
    assert {name: integers(side) for name, side in sent.model_specific_tensors.items()} == {
        "image_grid_thw": GRIDS,
        "patches_per_image": [256, 1024, 512],
    }
    assert dict(sent.flat_keys) == {"pixel_values": "patches_per_image"}
    assert sorted(sent.batched_keys) == ["image_grid_thw", "patches_per_image"]
    assert list(sent.keep_on_cpu_keys) == ["image_grid_thw"]
    assert len(set(sent.mm_hashes)) == 3
    assert all(len(bytes.fromhex(one)) == 32 for one in sent.mm_hashes)
