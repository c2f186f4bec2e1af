"""What models hear: features as the processors make them, and how many tokens they are (spec multimodal 9).

WhisperFeatureExtractor is asked itself, in its NumPy form. Inkling's needs torch: golden.json is made by
generate_golden.py.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from recordings import tone

from smg.core.errors import GatewayError
from smg.vision.audio.families import AudioConfig, InklingAudio, Qwen3Asr, Qwen3Omni, find_family
from smg.vision.audio.mel import filters

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def whisper():
    assert "torch" not in sys.modules, "with torch the extractor computes in float32"
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(feature_size=128)


def features(family, samples):
    trimmed = family.trimmed(samples)
    plan = family.plan(len(trimmed))
    made = family.features(trimmed, plan)
    assert (made.dtype, made.shape) == (np.float32, plan.shape)
    return made


@pytest.mark.parametrize("seconds", [0.0125, 0.31, 1.0, 3.337])
def test_whisper_s_spectra(whisper, seconds, both):
    samples = tone(seconds)
    expected = whisper(samples, sampling_rate=16_000, padding="longest", truncation=False, return_tensors="np")
    made = features(Qwen3Omni(AudioConfig()), samples)
    np.testing.assert_allclose(made, expected["input_features"][0], rtol=0, atol=1e-6)


def test_long_recordings_are_made_in_pieces(whisper, both):
    samples = tone(45.0)
    expected = whisper(samples, sampling_rate=16_000, padding="longest", truncation=False, return_tensors="np")

    def split(rows, work):
        for start in range(0, rows, 1000):
            work(start, min(start + 1000, rows))

    family = Qwen3Omni(AudioConfig())
    made = family.features(samples, family.plan(len(samples)), split)
    np.testing.assert_allclose(made, expected["input_features"][0], rtol=0, atol=1e-6)


def test_the_filters_are_whisper_s(whisper):
    np.testing.assert_allclose(filters(128, 400, 16_000), whisper.mel_filters.T, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", GOLDEN)
def test_inkling_s_bins(name, both):
    case = GOLDEN[name]
    samples = tone(case["seconds"]) * np.float32(case["gain"])
    made = features(InklingAudio(AudioConfig()), samples)
    expected = np.array(case["bins"], np.float32)
    assert made.shape == expected.shape
    # Torch sums in float32: a value on the border between two bins may fall to either side.
    assert (made != expected).mean() < 0.002
    assert np.abs(made - expected).max() <= 1


def test_a_whisper_is_made_louder_for_inkling_but_silence_stays(both):
    family = InklingAudio(AudioConfig())
    quiet = tone(0.5) * np.float32(0.001)
    louder = quiet * np.float32(0.01 / np.sqrt(np.mean(np.square(quiet, dtype=np.float64))))
    np.testing.assert_array_equal(features(family, quiet), features(family, louder))
    # The floor under magnitudes, 1e-5, is in the third bin.
    assert features(family, np.zeros(4000, np.float32)).max() == 2


@pytest.mark.parametrize(
    ("frames", "tokens"), [(1, 1), (8, 1), (9, 2), (50, 7), (99, 13), (100, 13), (101, 14), (250, 33), (3000, 390)]
)
def test_qwen_s_tokens(frames, tokens):
    plan = Qwen3Omni(AudioConfig()).plan(frames * 160 + 159)
    assert (plan.frames, plan.tokens, plan.shape) == (frames, tokens, (128, frames))


def test_a_short_recording_is_filled_up_for_asr_and_refused_by_omni():
    short = tone(0.005)
    assert features(Qwen3Asr(AudioConfig()), short).shape == (128, 50)
    with pytest.raises(GatewayError, match="too short"):
        features(Qwen3Omni(AudioConfig()), short)


def test_the_model_s_files_decide():
    model = {"thinker_config": {"audio_token_id": 7, "audio_config": {"num_mel_bins": 80, "n_window": 100}}}
    family = Qwen3Omni(AudioConfig(model, {"truncation": True, "chunk_length": 1}))
    assert (family.bands, family.chunk, len(family.trimmed(tone(2.0)))) == (80, 200, 16_000)
    assert family.prompt(family.plan(16_000), None).ids == [7] * 13
    assert Qwen3Omni(AudioConfig(model, {"feature_size": 128})).bands == 128
    assert len(Qwen3Omni(AudioConfig(model, {"truncation": True, "n_samples": 50})).trimmed(tone(1.0))) == 50
    assert len(Qwen3Omni(AudioConfig(model, {"chunk_length": 1})).trimmed(tone(2.0))) == 32_000


def test_recordings_of_one_request_have_a_mask():
    family = Qwen3Omni(AudioConfig())
    side = family.side([family.plan(480), family.plan(800)])
    assert side["feature_attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert side["audio_feature_lengths"].tolist() == [3, 5]
    inkling = InklingAudio(AudioConfig())
    assert inkling.side([inkling.plan(801), inkling.plan(800)])["tokens_per_item"].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("name", "model", "family"),
    [
        ("x", {"model_type": "qwen3_asr"}, Qwen3Asr),
        ("x", {"model_type": "qwen3_omni_moe"}, Qwen3Omni),
        ("Org/Qwen3-ASR-1.7B", {}, Qwen3Asr),
        ("x", {"model_type": "inkling_mm_model", "audio_config": {"decoder_dmodel": 8}}, InklingAudio),
        ("x", {"model_type": "inkling_mm_model", "audio_config": {}}, None),
        ("qwen3-asr", {"model_type": "llama"}, None),
        ("x", {}, None),
    ],
)
def test_which_family(name, model, family):
    assert find_family(name, model) is family
