"""Every family in every contract's encoding, from a chat request to the message (spec multimodal 6, 12, 18)."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from smg_grpc_proto import sglang_scheduler_pb2, tokenspeed_scheduler_pb2, trtllm_service_pb2, vllm_engine_pb2

from smg.config.settings import MediaSettings
from smg.core.backends import EngineRequest, Leg
from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest, Limits, MediaPart, Message, Sampling, TextPart
from smg.engine_server.mock import tokenizer as mock
from smg.engines.table import adapter
from smg.engines.vllm.names import UNPADDED, names
from smg.engines.zmq.frames import Told
from smg.engines.zmq.wire import VllmWire
from smg.text.native.kimi_k3 import KimiK3
from smg.text.prepare import prepare_now
from smg.text.registry import TextModel
from smg.vision.families.base import encode
from smg.vision.normalise import to_bfloat16
from smg.vision.service import Vision
from tests.engines.zmq.test_media import FEATURES, read
from tests.media.models import GOLDEN, QWEN, Model, picture, png

BUILD = Path(__file__).resolve().parents[2] / "build"
SIZES = ((224, 224), (300, 400))
IN_SGLANG = {"aspect_ratio_ids": "aspect_ratio_id"}
WORDS = "<|image_start|>", "<|image_end|>", "<|tile_x_separator|>", "<|tile_y_separator|>", "<|image|>", "<|patch|>"
HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
SQUARE = {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}

# The golden case of each, where its bytes are wholly determined.
MODELS: dict[str, tuple[Model, str | None]] = {
    "qwen2_5_vl": (QWEN, "qwen2_vl-fast"),
    "qwen3_vl": (
        Model(
            "qwen3_vl",
            QWEN.tokens,
            QWEN.written,
            QWEN.config,
            {
                "image_mean": [0.5] * 3,
                "image_std": [0.5] * 3,
                "size": {"shortest_edge": 65536, "longest_edge": 1 << 24},
            },
        ),
        "qwen3_vl-fast",
    ),
    "glm4v": (Model("glm4v", ("<|image|>",), "<|image|>"), "glm4v-fast"),
    "llava": (
        Model("llava", ("<image>",), "<image>", {}, SQUARE),
        "llava-fast",
    ),
    "llava_next": (
        Model(
            "llava_next", ("<image>",), "<image>", {}, {"size": {"shortest_edge": 336}, "crop_size": {"height": 336}}
        ),
        "llava_next-fast",
    ),
    "llava_onevision": (Model("llava_onevision", ("<image>",), "<image>"), "llava_onevision-fast"),
    "pixtral": (Model("pixtral", ("[IMG]", "[IMG_BREAK]", "[IMG_END]"), "[IMG]"), "pixtral-fast"),
    "mistral3": (Model("mistral3", ("[IMG]", "[IMG_BREAK]", "[IMG_END]"), "[IMG]"), None),
    "gemma3": (
        Model(
            "gemma3",
            ("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
            "<start_of_image>",
            {},
            {"size": {"height": 896, "width": 896}},
        ),
        "gemma3-fast",
    ),
    "internvl": (Model("internvl", ("<IMG_CONTEXT>", "<img>", "</img>"), "<IMG_CONTEXT>"), "internvl-fast"),
    "smolvlm": (
        Model(
            "smolvlm",
            ("<image>", "<fake_token_around_image>", "<global-img>"),
            "<image>",
            {"scale_factor": 4, "vision_config": {"image_size": 512, "patch_size": 16}},
            {"size": {"longest_edge": 512}, "max_image_size": {"longest_edge": 512}},
        ),
        None,
    ),
    "idefics3": (
        Model(
            "idefics3",
            ("<image>", "<fake_token_around_image>"),
            "<image>",
            {"vision_config": {"image_size": 364, "patch_size": 14}},
        ),
        "idefics3-fast",
    ),
    "llama4": (Model("llama4", WORDS, "<|image|>"), "llama4"),
    "kimi_k25": (Model("kimi_k25", ("<|media_pad|>",), "<|media_pad|>"), "kimi_k25"),
    "kimi_k3": (
        Model(
            "kimi_k3",
            ("<|media_pad|>", "<|media_begin|>", "<|media_content|>", "<|media_end|>", *KimiK3.controls),
            "<|media_pad|>",
        ),
        "kimi_k3",
    ),
    "inkling": (
        Model(
            "inkling_mm_model",
            ("<|content_image|>", "<|unused_200054|>"),
            "<|content_image|><|unused_200054|>",
            {"vision_config": {"decoder_dmodel": 8}},
        ),
        "inkling-fast",
    ),
    "siglip": (
        Model(
            "of_no_known_family",
            ("<image>",),
            "<image>",
            {
                "image_token_index": mock.VOCAB_SIZE,
                "vision_config": {"model_type": "siglip_vision_model", "patch_size": 14},
            },
            {"image_processor_type": "SiglipImageProcessor", "size": {"height": 384, "width": 384}},
        ),
        "siglip-fast",
    ),
    "mllama": (
        Model("mllama", ("<|image|>",), "<|image|>", {}, {"size": {"height": 280, "width": 280}}),
        "mllama-fast",
    ),
    "phi3_v": (Model("phi3_v", ("<|image|>",), "<|image|>", strings=True), None),
    "phi4mm": (Model("phi4mm", ("<|endoftext10|>",), "<|endoftext10|>"), None),
}


class World:
    """A model with its text and vision side."""

    def __init__(self, model: Model, directory: Path, **media: object) -> None:
        self.text = TextModel(model.write(directory))
        self.directory = directory
        self.vision = Vision(MediaSettings(**media), str(BUILD), 512 << 20, 256 << 20)

    async def ask(
        self, precision: str | None, *content: object, kind: str = "image"
    ) -> tuple[list[int], EngineRequest]:
        """The prompt before its media, all of one kind, and the request for an engine."""
        found = await self.vision.model(str(self.directory), "a-model", self.text.tokenizer, kind)
        assert found is not None
        message = Message("user", list(content))
        request = GenerationRequest("chat", "m", messages=[message], placeholders={kind: found.placeholder})
        anchored = prepare_now(self.text, request).ids
        ids, inputs = await self.vision.inputs([found], anchored, list(request.media()), precision)
        self.family = found.family(precision or "float32")
        return anchored, EngineRequest("id", ids, Sampling(), Limits(8), media=inputs)


@pytest.fixture
async def make(tmp_path):
    made = []

    def make(model, **media):
        made.append(World(model, tmp_path, **media))
        return made[-1]

    yield make
    for world in made:
        await world.vision.close()


def images(sizes=SIZES):
    return [MediaPart("image", data=png(*size)) for size in sizes]


def one_size(name):
    """Sizes that vLLM's contract can tell apart: of families without padding, all images have one."""
    return (SIZES[1], SIZES[1]) if name in UNPADDED else SIZES


def content(sizes=SIZES):
    first, second = images(sizes)
    return TextPart("a"), first, TextPart("b"), second, TextPart("c")


def array(tensor, data, dtype):
    return np.frombuffer(data, dtype).reshape(list(tensor.shape))


def parts(world, expected, pixels):
    """Each image's own part of a batch, without padding."""
    if world.family.layout.kind == "flat":
        return np.split(pixels, np.cumsum([plan.shape[0] for plan in expected.plans])[:-1])
    corners = (tuple(slice(size) for size in plan.shape) for plan in expected.plans)
    return [np.ascontiguousarray(entry[corner]) for entry, corner in zip(pixels, corners, strict=True)]


@pytest.mark.parametrize("name", MODELS)
async def test_a_batch_reaches_vllm_and_sglang_as_the_processor_makes_it(name, make):
    model, golden = MODELS[name]
    world, sizes = make(model), one_size(name)
    anchored, request = await world.ask("float32", *content(sizes))
    expected = encode(world.family, [picture(*size) for size in sizes])
    called = names(request.media)
    vllm = vllm_engine_pb2.GenerateRequest.FromString(adapter("vllm").generate(request))
    sglang = sglang_scheduler_pb2.GenerateRequest.FromString(adapter("sglang").generate(request))
    for sent, data in ((vllm, vllm.mm_inputs.pixel_values.inline), (sglang, sglang.mm_inputs.pixel_values.data)):
        assert sent.request_id == "id"
        assert list(sent.tokenized.input_ids) == request.ids
        assert sent.mm_inputs.pixel_values.dtype == "float32"
        pixels = array(sent.mm_inputs.pixel_values, data, np.float32)
        if name == "mllama" and sent is sglang:
            # Its model there takes a batch of requests.
            assert len(pixels) == 1
            pixels = pixels[0]
        np.testing.assert_array_equal(pixels, expected.tensor)
    for tensor_name, side in expected.side.items():
        told = sglang.mm_inputs.model_specific_tensors[IN_SGLANG.get(tensor_name, tensor_name)]
        around = (1,) if name == "mllama" else ()
        np.testing.assert_array_equal(array(told, told.data, side.dtype), side.reshape(*around, *side.shape))
    assert len(sglang.mm_inputs.model_specific_tensors) == len(expected.side)
    if golden is not None:
        for part, (height, width) in zip(parts(world, expected, pixels), sizes, strict=True):
            assert hashlib.sha256(part.tobytes()).hexdigest() == GOLDEN[golden][f"{height}x{width}"]["sha256"]
    for tensor_name, side in expected.side.items():
        sent_side = vllm.mm_inputs.model_specific_tensors[called.get(tensor_name, tensor_name)]
        assert sent_side.dtype == side.dtype.name
        np.testing.assert_array_equal(array(sent_side, sent_side.inline, side.dtype), side)
    told = replace(request, leg=Leg("decode", kv_params=b"{}", described=True))
    described = vllm_engine_pb2.GenerateRequest.FromString(adapter("vllm").generate(told)).mm_inputs
    assert not described.HasField("pixel_values")
    rows = world.family.layout.rows
    assert sorted(described.batched_keys) == sorted(called.get(one, one) for one in expected.side if one not in rows)
    assert dict(described.flat_keys) == dict.fromkeys(rows, world.family.layout.sizes)
    for same in ("mm_hashes", "mm_placeholders", "model_specific_tensors", "im_token_id"):
        assert getattr(described, same) == getattr(vllm.mm_inputs, same)
    keys = [*vllm.mm_inputs.batched_keys, *vllm.mm_inputs.flat_keys]
    assert sorted(keys) == sorted(called.get(one, one) for one in (*expected.side, "pixel_values"))
    assert vllm.mm_inputs.encoder_input_key == called.get("pixel_values", "")
    told = set(vllm.mm_inputs.model_specific_tensors)
    # InternVL is told its token for all images at once: neither by image nor by row.
    assert told == {called.get(one, one) for one in expected.side} | (
        {"image_token_id"} if name == "internvl" else set()
    )
    assert set(vllm.mm_inputs.flat_keys.values()) <= told
    # Llama 3.2 looks at images from beside the prompt.
    assert (len(request.ids) > len(anchored)) is (name != "mllama")


@pytest.mark.parametrize("name", MODELS)
async def test_ranges_cover_exactly_the_features(name, make):
    model, _ = MODELS[name]
    world, sizes = make(model), one_size(name)
    anchored, request = await world.ask("float32", *content(sizes))
    ids, media = request.ids, request.media
    vllm = vllm_engine_pb2.GenerateRequest.FromString(adapter("vllm").generate(request)).mm_inputs
    sglang = sglang_scheduler_pb2.GenerateRequest.FromString(adapter("sglang").generate(request)).mm_inputs
    plans = encode(world.family, [picture(*size) for size in sizes]).plans
    written = [ids[one.offset + at] for one in sglang.mm_placeholders for at in range(one.length)]
    assert written == [media.token_id] * sum(plan.tokens for plan in plans)
    rest, at = [], 0
    for one in vllm.mm_placeholders:
        rest += [*ids[at : one.offset], "image"]
        at = one.offset + one.length
    search = model.id(world.family.placeholder)
    # What belongs to an image although the template has written it.
    marker = model.id("<|content_image|>") if name == "inkling" else None
    assert [*rest, *ids[at:]] == ["image" if one == search else one for one in anchored if one != marker]
    assert (vllm.im_token_id, sglang.im_token_id) == (media.token_id, media.token_id)
    assert len(vllm.mm_hashes) == 2


@pytest.mark.parametrize("name", MODELS)
async def test_tokenspeed_gets_each_image_s_own_part_in_bfloat16(name, make):
    model, _ = MODELS[name]
    world = make(model)
    _, request = await world.ask("bfloat16", *content())
    sent = tokenspeed_scheduler_pb2.GenerateRequest.FromString(adapter("tokenspeed").generate(request))
    whole = encode(world.family, [picture(*size) for size in SIZES])
    flat = world.family.layout.kind == "flat"
    owns = parts(world, whole, whole.tensor) if flat else np.split(whole.tensor, 2)
    for index, (item, part) in enumerate(zip(sent.mm_inputs.items, owns, strict=True)):
        assert item.encoder_input.dtype == "bfloat16"
        np.testing.assert_array_equal(array(item.encoder_input, item.encoder_input.inline, np.uint16), part)
        for tensor_name, side in whole.side.items():
            own = item.model_specific_tensors[tensor_name]
            entry = slice(index, index + 1)
            if tensor_name in world.family.layout.rows:
                start = sum(plan.shape[0] for plan in whole.plans[:index])
                entry = slice(start, start + whole.plans[index].shape[0])
            np.testing.assert_array_equal(array(own, own.inline, side.dtype), side[entry])
        assert sum(one.length for one in item.placeholders) == whole.plans[index].tokens
    assert len(sent.mm_inputs.items) == 2


@pytest.mark.parametrize("name", sorted(UNPADDED))
async def test_MM_03_what_fills_up_a_batch_never_reaches_vllm(name, make):
    world = make(MODELS[name][0])
    _, request = await world.ask("float32", *content())
    with pytest.raises(GatewayError, match="if they have one size") as caught:
        adapter("vllm").generate(request)
    assert (caught.value.status, caught.value.code) == (400, "invalid_multimodal_request")
    # An engine core gets each image by itself, as large as it is.
    frames = VllmWire().add(request, 0, 1, Told(1 << 20, "float32"))
    primary = names(request.media).get("pixel_values", "pixel_values")
    for feature, size in zip(read(frames)[FEATURES], SIZES, strict=True):
        alone = encode(world.family, [picture(*size)]).tensor
        np.testing.assert_array_equal(feature["data"][primary]["data"], alone[0])


async def test_an_engine_core_is_told_the_rows_of_a_mask_as_those_of_the_pixels(make):
    world = make(MODELS["idefics3"][0])
    _, request = await world.ask("float32", *content())
    frames = VllmWire().add(request, 0, 1, Told(1 << 20, "float32"))
    for feature in read(frames)[FEATURES]:
        told = feature["data"]
        pixels, mask, count = told["pixel_values"], told["pixel_attention_mask"], told["num_patches"]
        assert mask["field"] == pixels["field"]
        assert mask["field"][0] == "flat"
        assert mask["data"].shape == (count["data"].item(), 364, 364)
        assert mask["data"].dtype == np.bool_
        assert mask["data"].all()


async def test_bfloat16_is_the_float32_value_rounded(make):
    world = make(QWEN)
    _, exact = await world.ask("float32", *content())
    _, half = await world.ask("bfloat16", *content())
    [one, *_], [two, *_] = exact.media.tensor.pieces, half.media.tensor.pieces
    np.testing.assert_array_equal(to_bfloat16(one), two)


async def test_trtllm_expands_by_itself_also_behind_a_part_that_was_generated(make):
    world = make(QWEN)
    anchored, request = await world.ask(None, *content())
    request.ids = [*request.ids, 7, 8]
    sent = trtllm_service_pb2.GenerateRequest.FromString(adapter("trtllm").generate(request))
    assert list(sent.tokenized.input_token_ids) == [*anchored, 7, 8]
    assert list(sent.multimodal_input.image_data) == [png(*size) for size in SIZES]
    with pytest.raises(GatewayError):
        adapter("vllm").generate(request)


async def test_a_template_of_strings_has_images_in_front_and_a_typed_placeholder_stays_text(make):
    model, _ = MODELS["phi3_v"]
    world = make(model)
    first, second = images()
    anchored, _ = await world.ask("float32", TextPart("a<|image|>"), first, TextPart("b"), second)
    image = model.id("<|image|>")
    start = mock.encode_text("<|im_start|>user\n")
    assert anchored[: len(start) + 5] == [*start, image, *b"\n", image, *b"\na"]
    assert anchored.count(image) == 2
    assert bytes(anchored[len(start) + 5 : len(start) + 14]) == b"<|image|>"


async def test_digests_follow_bytes_and_settings(make):
    worlds = [make(QWEN), make(QWEN, resample="pillow"), make(QWEN, ignore_orientation=True)]
    first, second = images()
    digests = []
    for world in worlds:
        _, request = await world.ask("float32", first, second, first)
        found = [item.digest for item in request.media.items]
        assert found[0] == found[2]
        digests += found[:2]
    assert len(set(digests)) == 6


async def test_a_prompt_whose_placeholders_do_not_fit_is_refused_before_anything_is_fetched(make):
    world = make(QWEN)
    found = await world.vision.model(str(world.directory), "m", world.text.tokenizer)
    part = MediaPart("image", url="http://127.0.0.1:1/never")
    with pytest.raises(GatewayError) as caught:
        await world.vision.inputs([found], [1, found.search_id, found.search_id], [("messages", part)], "float32")
    assert caught.value.code == "multimodal_prompt_contract_mismatch"
