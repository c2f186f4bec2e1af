"""Audio and video in every contract's encoding, and from the official client to an engine (spec multimodal 9 to 12)."""

import base64
import sys
from pathlib import Path

import numpy as np
import openai
import pytest
from smg_grpc_proto import tokenspeed_scheduler_pb2, vllm_engine_pb2

from smg.core.backends import EngineRequest
from smg.core.errors import GatewayError
from smg.core.request import Limits, MediaPart, Sampling, TextPart
from smg.engine_server.mock import tokenizer as mock
from smg.engine_server.mock.engine import MockEngine
from smg.engines.table import adapter
from smg.pipeline.media import routing_ids
from smg.vision.audio.families import AudioConfig, Qwen3Asr
from smg.vision.config import parse_config
from smg.vision.normalise import to_bfloat16
from smg.vision.video.decode import VideoInfo
from smg.vision.video.families import Qwen2Video, Qwen3Video
from tests.media.models import Model, data_url, png
from tests.media.test_contracts import array, make
from tests.media.test_end_to_end import started

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vision" / "audio"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vision" / "video"))
from clips import encoded as clip
from recordings import encoded as recording
from recordings import tone
from video_cases import moving

__all__ = ["make"]

ASR = Model(
    "qwen3_asr",
    ("<|audio_start|>", "<|audio_end|>", "<|audio_pad|>"),
    "<|audio_start|><|audio_pad|><|audio_end|>",
    {"thinker_config": {"audio_token_id": mock.VOCAB_SIZE + 2, "audio_config": {"num_mel_bins": 128}}},
)
OMNI = Model(
    "qwen3_omni_moe",
    ("<|audio_pad|>", "<|image_pad|>"),
    "",
    {
        "thinker_config": {
            "audio_token_id": mock.VOCAB_SIZE,
            "image_token_id": mock.VOCAB_SIZE + 1,
            "audio_config": {"num_mel_bins": 128},
        }
    },
)
VIDEO_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|video_pad|>", "<|image_pad|>")
WRITTEN = "<|vision_start|><|video_pad|><|vision_end|>"
QWEN2 = Model("qwen2_5_vl", VIDEO_TOKENS, WRITTEN, {"video_token_id": mock.VOCAB_SIZE + 2})
QWEN3 = Model("qwen3_vl", VIDEO_TOKENS, WRITTEN, {"video_token_id": mock.VOCAB_SIZE + 2})
SPEECH = (tone(1.0), tone(0.7, seed=2))
FRAMES = moving(20, 96, 128)
FPS = 10


def speech(index):
    return MediaPart("audio", data=recording(SPEECH[index], subtype="FLOAT"))


def watched(family, frames=FRAMES):
    """Plan and patches of ``frames`` by the family itself."""
    plan = family.plan(VideoInfo(*frames.shape[:3], float(FPS)))
    out = np.empty(plan.shape, np.float32)
    for number, index in enumerate(plan.indices):
        family.fill(number, frames[index], plan, out)
    return plan, out


class TestAudio:
    async def test_tokenspeed_gets_each_recording_s_features(self, make):
        world = make(ASR)
        anchored, request = await world.ask("bfloat16", TextPart("a"), speech(0), speech(1), kind="audio")
        sent = tokenspeed_scheduler_pb2.GenerateRequest.FromString(adapter("tokenspeed").generate(request))
        family, pad = Qwen3Asr(AudioConfig()), ASR.id("<|audio_pad|>")
        tokens = [13, 9]
        for index, item in enumerate(sent.mm_inputs.items):
            samples = SPEECH[index]
            plan = family.plan(len(samples))
            # The shorter one is filled up, as in a batch of both; its mask tells where it ends.
            expected = np.zeros((1, 128, 100), np.uint16)
            expected[0, :, : plan.frames] = to_bfloat16(family.features(samples, plan))
            assert (item.modality, item.encoder_input.dtype) == (2, "bfloat16")
            np.testing.assert_array_equal(array(item.encoder_input, item.encoder_input.inline, np.uint16), expected)
            mask, lengths = (
                item.model_specific_tensors[name] for name in ("feature_attention_mask", "audio_feature_lengths")
            )
            assert array(mask, mask.inline, np.int64).sum() == plan.frames
            assert array(lengths, lengths.inline, np.int64).tolist() == [plan.frames]
            assert [one.length for one in item.placeholders] == [tokens[index]]
            assert (item.placeholder_token_id, len(item.content_hash)) == (pad, 32)
        assert request.ids.count(pad) == sum(tokens)
        assert anchored.count(pad) == 2

    async def test_another_rate_and_format_is_the_same_speech(self, make):
        world = make(ASR)
        stereo = np.stack([tone(1.0, 48_000)] * 2, axis=1)
        part = MediaPart("audio", url=data_url(recording(stereo, 48_000, "FLAC"), "audio/flac"))
        _, request = await world.ask("float32", part, kind="audio")
        _, exact = await world.ask("float32", speech(0), kind="audio")
        ours, theirs = request.media.tensor.pieces[0], exact.media.tensor.pieces[0]
        assert ours.shape == theirs.shape == (128, 100)
        assert np.median(np.abs(ours - theirs)) < 0.1

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            (b"no speech", "media_undecodable"),
            (recording(tone(2.0)), "media_too_large"),
            (recording(np.zeros(0, np.float32)), "media_undecodable"),
        ],
    )
    async def test_a_bad_recording_is_named(self, make, data, code):
        world = make(ASR, audio_max_secs=1.5)
        with pytest.raises(GatewayError) as caught:
            await world.ask("float32", speech(0), MediaPart("audio", data=data), kind="audio")
        assert (caught.value.code, caught.value.param) == (code, "messages[0].content[1]")


class TestVideo:
    @pytest.mark.parametrize("model", [QWEN2, QWEN3], ids=lambda model: model.type)
    async def test_vllm_and_tokenspeed_get_the_patches(self, make, model):
        world = make(model)
        part = MediaPart("video", data=clip(FRAMES, FPS))
        _, request = await world.ask("float32", TextPart("a"), part, TextPart("b"), kind="video")
        kind = Qwen2Video if model is QWEN2 else Qwen3Video
        plan, expected = watched(kind(parse_config({}, {})))
        sent = vllm_engine_pb2.GenerateRequest.FromString(adapter("vllm").generate(request)).mm_inputs
        np.testing.assert_array_equal(array(sent.pixel_values, sent.pixel_values.inline, np.float32), expected)
        assert (sent.modality, dict(sent.flat_keys)) == (3, {"pixel_values": "patches_per_video"})
        assert list(sent.keep_on_cpu_keys) == ["video_grid_thw"]
        grid = sent.model_specific_tensors["video_grid_thw"]
        assert array(grid, grid.inline, np.int64).tolist() == [list(plan.grid)]
        [whole] = sent.mm_placeholders
        tokens = list(request.ids[whole.offset : whole.offset + whole.length])
        assert tokens.count(model.id("<|video_pad|>")) == plan.tokens
        if model is QWEN3:
            start, end = model.id("<|vision_start|>"), model.id("<|vision_end|>")
            assert bytes(tokens[: tokens.index(start)]) == f"<{plan.seconds[0]:.1f} seconds>".encode()
            assert tokens.count(start) == tokens.count(end) == plan.grid[0]
        other = tokenspeed_scheduler_pb2.GenerateRequest.FromString(adapter("tokenspeed").generate(request))
        [item] = other.mm_inputs.items
        assert item.modality == 3
        assert sum(one.length for one in item.placeholders) == plan.tokens
        assert set(item.model_specific_tensors) == {"video_grid_thw", "patches_per_video", "video_second_per_grid"}

    async def test_several_videos_keep_their_own_grids_and_places(self, make):
        world = make(QWEN2)
        other = moving(8, 64, 64)
        parts = [MediaPart("video", data=clip(frames, FPS)) for frames in (FRAMES, other)]
        _, request = await world.ask("float32", parts[0], TextPart("a"), parts[1], kind="video")
        family = Qwen2Video(parse_config({}, {}))
        made = [watched(family), watched(family, other)]
        sent = vllm_engine_pb2.GenerateRequest.FromString(adapter("vllm").generate(request)).mm_inputs
        pixels = array(sent.pixel_values, sent.pixel_values.inline, np.float32)
        np.testing.assert_array_equal(pixels, np.concatenate([patches for _, patches in made]))
        grids, counts = (sent.model_specific_tensors[name] for name in ("video_grid_thw", "patches_per_video"))
        assert array(grids, grids.inline, np.int64).tolist() == [list(plan.grid) for plan, _ in made]
        assert array(counts, counts.inline, np.int64).tolist() == [len(patches) for _, patches in made]
        assert [one.length for one in sent.mm_placeholders] == [plan.tokens for plan, _ in made]
        assert len(set(sent.mm_hashes)) == 2

    async def test_a_video_that_becomes_too_much_is_refused_before_it_is_decoded(self, make):
        world = make(QWEN2, video_max_decoded_bytes=1000)
        with pytest.raises(GatewayError) as caught:
            await world.ask("float32", MediaPart("video", data=clip(FRAMES, FPS)), kind="video")
        assert (caught.value.code, caught.value.param) == ("media_too_large", "messages[0].content[0]")


class TestSeveralKinds:
    async def test_tokenspeed_gets_each_item_as_what_it_is_in_the_order_of_the_prompt(self, make):
        world = make(OMNI)
        media = [
            await world.vision.model(str(world.directory), "m", world.text.tokenizer, k) for k in ("audio", "image")
        ]
        sound, picture = OMNI.id("<|audio_pad|>"), OMNI.id("<|image_pad|>")
        wanted = [
            ("a", speech(0)),
            ("b", MediaPart("image", data=png(64, 96))),
            ("c", speech(1)),
        ]
        ids, inputs = await world.vision.inputs(media, [1, sound, 2, picture, 3, sound, 4], wanted, "float32")
        request = EngineRequest("id", ids, Sampling(), Limits(8), media=inputs)
        sent = tokenspeed_scheduler_pb2.GenerateRequest.FromString(adapter("tokenspeed").generate(request))
        items = sent.mm_inputs.items
        assert [(item.modality, item.placeholder_token_id) for item in items] == [(2, sound), (1, picture), (2, sound)]
        assert ids == [1, *[sound] * 13, 2, *[picture] * 6, 3, *[sound] * 9, 4]
        assert [(one.offset, one.length) for item in items for one in item.placeholders] == [(1, 13), (15, 6), (22, 9)]
        assert list(items[1].encoder_input.shape) == [4 * 6, 1536]
        assert set(items[1].model_specific_tensors) == {"image_grid_thw", "patches_per_image"}
        assert routing_ids(ids, inputs)[1] != sound

    async def test_all_kinds_together_have_one_limit_and_anchors_of_their_own(self, make):
        world = make(OMNI)
        media = [
            await world.vision.model(str(world.directory), "m", world.text.tokenizer, k) for k in ("audio", "image")
        ]
        sound, picture = OMNI.id("<|audio_pad|>"), OMNI.id("<|image_pad|>")
        wanted = [("a", speech(0)), ("b", MediaPart("image", data=png(64, 96)))]
        with pytest.raises(GatewayError, match="0 image placeholders for 1"):
            await world.vision.inputs(media, [sound, 2], wanted, "float32")
        world.vision._max_tensor_bytes = 150_000
        with pytest.raises(GatewayError) as caught:
            await world.vision.inputs(media, [sound, picture], wanted, "float32")
        assert caught.value.code == "media_too_large"


@pytest.mark.e2e
class TestFromTheClient:
    async def test_speech_to_tokenspeed(self, tmp_path):
        async with (
            MockEngine(ASR.script("heard"), contract="tokenspeed") as engine,
            started(engine, tmp_path) as gateway,
            openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k") as client,
        ):
            audio = {"data": base64.b64encode(recording(SPEECH[0])).decode(), "format": "wav"}
            answer = await client.chat.completions.create(
                model="mock-model",
                messages=[{"role": "user", "content": [{"type": "input_audio", "input_audio": audio}]}],
            )
            assert answer.choices[0].message.content == "heard"
            [item] = engine.requests[0].request.mm_inputs.items
            assert list(item.encoder_input.shape) == [1, 128, 100]
            page = (await client._client.get(f"{gateway.url}/metrics")).text
            assert 'smg_mm_items_total{kind="audio"} 1' in page
            assert 'smg_mm_processed_total{kind="audio"} 1' in page
            assert 'smg_mm_decode_seconds_count{kind="audio"} 1' in page

    async def test_video_to_vllm_and_speech_refused_by_name(self, tmp_path):
        async with (
            MockEngine(QWEN3.script("seen"), contract="vllm") as engine,
            started(engine, tmp_path) as gateway,
            openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k") as client,
        ):
            video = {"type": "video_url", "video_url": {"url": data_url(clip(FRAMES, FPS), "video/mp4")}}
            answer = await client.chat.completions.create(
                model="mock-model", messages=[{"role": "user", "content": [{"type": "text", "text": "?"}, video]}]
            )
            assert answer.choices[0].message.content == "seen"
            assert engine.requests[0].request.mm_inputs.modality == 3
            audio = {"type": "audio_url", "audio_url": {"url": data_url(recording(SPEECH[0]), "audio/wav")}}
            for content, words in (
                ([audio], r"engines of this model \(vllm\) do not support audio"),
                ([video, audio], r"\(vllm\) do not support video and audio inputs in one request"),
            ):
                with pytest.raises(openai.BadRequestError, match=words):
                    await client.chat.completions.create(
                        model="mock-model", messages=[{"role": "user", "content": content}]
                    )
            assert len(engine.requests) == 1
            page = (await client._client.get(f"{gateway.url}/metrics")).text
            assert 'smg_mm_refused_total{kind="audio",reason="multimodal_not_supported"} 1' in page
