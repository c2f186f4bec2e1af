"""Images from the official client to engines of all contracts (cases MM-01 to MM-03; spec multimodal 12)."""

import base64
import contextlib
import hashlib
import io
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from aiohttp import web
from PIL import Image

from smg.engine_server.mock import tokenizer as mock
from smg.engine_server.mock.engine import MockEngine
from smg.vision.config import parse_config
from smg.vision.families.base import encode
from smg.vision.families.qwen_vl import Qwen2VL
from smg.vision.normalise import to_bfloat16
from tests.gateway import Gateway, running_async, settings
from tests.media.models import GOLDEN, QWEN, data_url, picture, png

ROOT = Path(__file__).resolve().parents[2]
PAD = QWEN.id("<|image_pad|>")
START, END = QWEN.id("<|vision_start|>"), QWEN.id("<|vision_end|>")
# MM-03: height, width and what becomes of it.
SIZES = ((224, 224), (448, 448), (224, 448))
TOKENS = (64, 256, 128)
GRIDS = [[1, 16, 16], [1, 32, 32], [1, 16, 32]]


@pytest.fixture
async def engine(request) -> AsyncIterator[MockEngine]:
    async with MockEngine(QWEN.script("seen"), contract=request.param) as engine:
        yield engine


def share_kernels(state):
    """Let a gateway with this state directory find the kernels that others have compiled."""
    compiled = ROOT / "build" / "kernels"
    compiled.mkdir(parents=True, exist_ok=True)
    (state / "kernels").symlink_to(compiled)


@contextlib.asynccontextmanager
async def started(engine, state, *flags):
    """A gateway before ``engine``; kernels are compiled once for all tests."""
    share_kernels(state)
    async with running_async(settings(state, "--worker-urls", engine.url, *flags)) as gateway:
        yield gateway


@pytest.fixture
async def gateway(engine, tmp_path) -> AsyncIterator[Gateway]:
    async with started(engine, tmp_path) as gateway:
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
async def test_MM_03_vllm_gets_one_batch_with_structural_ranges(gateway, engine):
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


@pytest.mark.parametrize("engine", ["sglang"], indirect=True)
async def test_MM_03_sglang_gets_one_batch_with_runs_of_patches(gateway, engine):
    await ask(gateway, *mixed())
    request = engine.requests[0].request
    assert list(request.tokenized.input_ids) == prompt()
    sent = request.mm_inputs
    assert (list(sent.modalities), sent.im_token_id) == (["image"], PAD)
    assert (list(sent.pixel_values.shape), sent.pixel_values.dtype) == ([1792, 1176], "float32")
    assert golden(sent.pixel_values.data) == EXPECTED
    assert ranges(sent.mm_placeholders) == expected_ranges()
    assert integers(sent.model_specific_tensors["image_grid_thw"], "data") == GRIDS
    assert not sent.image_data


@pytest.mark.parametrize("engine", ["tokenspeed"], indirect=True)
async def test_MM_03_tokenspeed_gets_an_item_for_each_image_in_half_the_bytes(gateway, engine):
    await ask(gateway, *mixed())
    request = engine.requests[0].request
    assert list(request.tokenized.input_ids) == prompt()
    items = request.mm_inputs.items
    assert [list(item.encoder_input.shape) for item in items] == [[256, 1176], [1024, 1176], [512, 1176]]
    for item, size, grid, place in zip(items, SIZES, GRIDS, expected_ranges(), strict=True):
        assert (item.modality, item.placeholder_token_id) == (1, PAD)
        assert item.encoder_input.dtype == "bfloat16"
        exact = encode(Qwen2VL(parse_config({})), [picture(*size)]).tensor
        assert hashlib.sha256(exact.tobytes()).hexdigest() in EXPECTED
        assert item.encoder_input.inline == to_bfloat16(exact).tobytes()
        assert ranges(item.placeholders) == [place]
        assert integers(item.model_specific_tensors["image_grid_thw"]) == [grid]
        assert len(item.content_hash) == 32
    assert len({item.content_hash for item in items}) == 3


@pytest.mark.parametrize("engine", ["trtllm"], indirect=True)
async def test_trtllm_gets_the_images_themselves_and_one_placeholder_for_each(gateway, engine):
    answer = await ask(gateway, *mixed())
    request = engine.requests[0].request
    assert list(request.multimodal_input.image_data) == [png(*size) for size in SIZES]
    assert list(request.tokenized.input_token_ids) == prompt((1, 1, 1))
    assert answer.usage.prompt_tokens == len(prompt())


@pytest.mark.parametrize("engine", ["mlx"], indirect=True)
async def test_mlx_takes_no_images_and_is_not_asked(gateway, engine):
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(gateway, *mixed())
    assert caught.value.code == "multimodal_not_supported"
    assert caught.value.param == "messages[0].content[1]"
    assert "mlx" in caught.value.message
    assert not engine.requests


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_generate_takes_images_for_the_placeholders_of_its_prompt(gateway, engine):
    body = {
        "text": "hello<|vision_start|><|image_pad|><|vision_end|>",
        "image_data": base64.b64encode(png(224, 224)).decode(),
        "sampling_params": {"max_new_tokens": 4},
    }
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{gateway.url}/generate", json=body)
        assert answer.status_code == 200, answer.text
        ids = [*mock.encode_text("hello"), START, PAD, END]
        both = {**body, "text": None, "input_ids": [ids, [1, 2]], "image_data": [data_url(png(224, 448)), None]}
        assert (await client.post(f"{gateway.url}/generate", json=both)).status_code == 200
        less = await client.post(f"{gateway.url}/generate", json={**body, "text": "no placeholder"})
    sent = [entry.request for entry in engine.requests]
    assert list(sent[0].tokenized.input_ids) == [*mock.encode_text("hello"), START, *[PAD] * 64, END]
    lengths = {len(one.tokenized.input_ids): list(one.mm_inputs.pixel_values.shape) for one in sent[1:]}
    assert lengths == {len(ids) - 1 + 128: [512, 1176], 2: []}
    assert less.status_code == 400
    assert less.json()["error"]["code"] == "multimodal_prompt_contract_mismatch"


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_MM_01_MM_02_broken_and_forbidden_images_are_told_by_their_part_and_no_engine_is_asked(gateway, engine):
    jpeg = io.BytesIO()
    Image.fromarray(np.asarray(picture(224, 224))).save(jpeg, "JPEG")
    cases = {
        data_url(jpeg.getvalue()[:-128], "image/jpeg"): "media_undecodable",
        "data:image/png;base64,bm90IGFuIGltYWdl": "media_undecodable",
        "https://no-such-host.invalid/a.png": "media_unreachable",
        "iVBORw0KGgo=": "invalid_value",
        "http://169.254.169.254/latest/meta-data/": "media_not_allowed",
        f"http://127.0.0.1:{engine.address.rpartition(':')[2]}/workers": "media_not_allowed",
        "http://10.0.0.1/a.png": "media_not_allowed",
        "file:///etc/passwd": "media_not_allowed",
    }
    for url, code in cases.items():
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(gateway, text("look"), image(url))
        assert (caught.value.code, caught.value.param) == (code, "messages[0].content[1]"), url
        assert caught.value.type == "invalid_request_error"
    assert not engine.requests
    assert gateway.get("/readiness").status_code == 200


@contextlib.asynccontextmanager
async def image_server():
    """Serves a picture, what is none, and redirects; yields its address and what it was asked."""
    asked = []

    async def handle(request):
        asked.append(request.path)
        match request.path:
            case "/a.png":
                return web.Response(body=png(224, 224), content_type="image/png")
            case "/away":
                return web.Response(status=302, headers={"Location": "http://10.0.0.1/a.png"})
            case "/here":
                return web.Response(status=302, headers={"Location": "/a.png"})
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", asked
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_MM_02_an_opened_network_is_fetched_from_and_every_hop_is_judged(engine, tmp_path):
    async with (
        image_server() as (url, asked),
        started(engine, tmp_path, "--allowed-media-networks", "127.0.0.1") as gateway,
    ):
        await ask(gateway, image(f"{url}/here"), image(f"{url}/a.png"))
        for path, code in (("/away", "media_not_allowed"), ("/404.png", "media_unreachable")):
            with pytest.raises(openai.BadRequestError) as caught:
                await ask(gateway, text("a"), image(url + path))
            assert (caught.value.code, caught.value.param) == (code, "messages[0].content[1]")
    assert sorted(asked) == ["/404.png", "/a.png", "/a.png", "/away", "/here"]
    [request] = [entry.request for entry in engine.requests]
    assert request.mm_inputs.mm_hashes[0] == request.mm_inputs.mm_hashes[1]
    assert list(request.mm_inputs.pixel_values.shape) == [512, 1176]


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_streams_carry_images_too_and_limits_hold(engine, tmp_path):
    flags = ("--image-max-pixels", "60000", "--image-max-input-bytes", "200000", "--media-max-items", "2")
    small, large, heavy = data_url(png(224, 224)), data_url(png(300, 400)), data_url(b"x" * 200_001)
    async with started(engine, tmp_path, *flags) as gateway:
        async with gateway.async_client() as client:
            messages = [{"role": "user", "content": [image(small), text("a")]}]
            stream = await client.chat.completions.create(model="mock-model", messages=messages, stream=True)
            chunks = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(chunks) == "seen"
        cases = (
            ([large], "media_too_large", 0),
            ([small, heavy], "media_too_large", 1),
            ([small, small, small], "invalid_multimodal_request", 2),
        )
        for urls, code, place in cases:
            with pytest.raises(openai.BadRequestError) as caught:
                await ask(gateway, *map(image, urls))
            assert (caught.value.code, caught.value.param) == (code, f"messages[0].content[{place}]")
    assert len(engine.requests) == 1


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_text_alone_loads_nothing_for_images(gateway, engine):
    def loaded():
        maps = Path(f"/proc/{gateway.child('worker-1')}/maps").read_text()
        return [name for name in ("llvmlite", "PIL") if f"/{name}/" in maps]

    await ask(gateway, text("hello"))
    assert loaded() == []
    await ask(gateway, image(data_url(png(224, 224))))
    assert loaded()


def as_messages(*parts):
    """A body of Messages with ``parts`` of chat."""

    def block(part):
        if part["type"] == "text":
            return part
        kind, data = part["image_url"]["url"].removeprefix("data:").split(";base64,")
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}

    content = [block(part) for part in parts]
    return {"model": "mock-model", "max_tokens": 8, "messages": [{"role": "user", "content": content}]}


def as_responses(*parts):
    """The same for Responses."""

    def part_of(part):
        if part["type"] == "text":
            return {"type": "input_text", "text": part["text"]}
        return {"type": "input_image", "image_url": part["image_url"]["url"]}

    return {"model": "mock-model", "input": [{"role": "user", "content": [part_of(part) for part in parts]}]}


DIALECTS = {
    "messages": ("/v1/messages", as_messages, "messages.0.content.1: "),
    "responses": ("/v1/responses", as_responses, "input[0].content[1]"),
}


@pytest.mark.parametrize(("path", "body", "place"), DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
async def test_MM_03_every_dialect_carries_images(gateway, engine, path, body, place):
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        answer = await client.post(path, json=body(*mixed()))
        assert answer.status_code == 200, answer.text
        request = engine.requests[0].request
        assert list(request.tokenized.input_ids) == prompt()
        assert golden(request.mm_inputs.pixel_values.inline) == EXPECTED
        assert ranges(request.mm_inputs.mm_placeholders) == expected_ranges()
        assert answer.json()["usage"]["input_tokens"] == len(prompt())
        count = "/count_tokens" if path.endswith("messages") else "/input_tokens"
        counted = await client.post(path + count, json=body(*mixed()))
        assert counted.json()["input_tokens"] == len(prompt())
        broken = await client.post(path, json=body(text("a"), image(data_url(b"no image"))))
        told = broken.json()["error"]
        assert broken.status_code == 400
        assert (told["message"] if path.endswith("messages") else told["param"]).startswith(place)
    assert len(engine.requests) == 1
