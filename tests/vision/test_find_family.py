"""Which family serves a model, and what its files say under one name each (spec multimodal 5, 6)."""

import pytest

from smg.vision.config import CLIP_MEAN, parse_config
from smg.vision.families.idefics3 import Idefics3, SmolVLM
from smg.vision.families.inkling import Inkling
from smg.vision.families.kimi import KimiK3, KimiK25
from smg.vision.families.llama4 import Llama4
from smg.vision.families.llava import Llava
from smg.vision.families.llava_next import LlavaNext
from smg.vision.families.mllama import Mllama
from smg.vision.families.phi import Phi3Vision
from smg.vision.families.pixtral import Mistral3
from smg.vision.families.qwen_vl import Qwen2VL, Qwen3VL
from smg.vision.families.siglip import Siglip, sees_with_siglip
from smg.vision.families.table import find_family


@pytest.mark.parametrize(
    ("model", "config", "family"),
    [
        ("any", {"model_type": "qwen2_5_vl"}, Qwen2VL),
        ("any", {"model_type": "qwen3_vl_moe"}, Qwen3VL),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {}, Qwen2VL),
        ("Qwen/Qwen3-VL-8B", {}, Qwen3VL),
        ("llava-hf/llava-v1.6-mistral-7b-hf", {}, LlavaNext),
        ("llava-hf/llava-1.5-7b-hf", {}, Llava),
        ("my-model", {"model_type": "llava"}, Llava),
        ("meta-llama/Llama-4-Scout", {}, Llama4),
        ("moonshotai/Kimi-K2.5", {}, KimiK25),
        ("any", {"model_type": "inkling_mm_model", "vision_config": {"decoder_dmodel": 8}}, Inkling),
        ("inkling", {"vision_config": {"decoder_dmodel": 8}}, Inkling),
        ("any", {"model_type": "inkling_mm_model", "vision_config": {}}, None),
        ("inkling", {}, None),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", {}, Mllama),
        ("any", {"model_type": "mllama"}, Mllama),
        ("moonshotai/Kimi-K3", {}, KimiK3),
        ("any", {"model_type": "kimi_k3"}, KimiK3),
        ("moonshotai/Kimi-K2-Instruct", {"model_type": "kimi_k2"}, None),
        ("microsoft/Phi-3-vision-128k-instruct", {}, Phi3Vision),
        ("any", {"model_type": "mistral3"}, Mistral3),
        ("any", {"model_type": "idefics3"}, Idefics3),
        ("HuggingFaceTB/SmolVLM-500M-Instruct", {}, SmolVLM),
        ("Qwen/Qwen3-8B", {"model_type": "qwen3"}, None),
        ("llava-in-name-only", {"model_type": "llama"}, None),
        ("SmolLM2", {}, None),
    ],
)
def test_find_family(model, config, family):
    assert find_family(model, config) is family


SEES = {"model_type": "new", "image_token_index": 7, "vision_config": {"model_type": "siglip_vision_model"}}


@pytest.mark.parametrize(
    ("model", "preprocessor", "expected"),
    [
        (SEES, {"image_processor_type": "SiglipImageProcessor"}, True),
        (SEES, {"image_processor_type": "SiglipImageProcessorFast"}, True),
        (SEES, {"image_processor_type": "LlavaNextImageProcessor"}, False),
        (SEES, {}, False),
        ({**SEES, "image_token_index": None}, {"image_processor_type": "SiglipImageProcessor"}, False),
        ({**SEES, "vision_config": {"model_type": "clip"}}, {"image_processor_type": "SiglipImageProcessor"}, False),
        ({}, {"image_processor_type": "SiglipImageProcessor"}, False),
    ],
)
def test_models_of_no_known_family_may_see_with_siglip(model, preprocessor, expected):
    assert sees_with_siglip(parse_config(model, preprocessor)) is expected


@pytest.mark.parametrize(
    ("model", "options", "tokens"),
    [
        ({"vision_config": {"patch_size": 14}}, {"size": {"height": 448, "width": 224}}, 32 * 16),
        ({"text_config": {"num_image_tokens": 100}}, {}, 100),
        ({"mm_tokens_per_image": 64}, {}, 64),
        ({"mm_tokens_per_image": 64}, {"image_seq_length": 1024}, 1024),
        ({"mm_tokens_per_image": "x"}, {"image_seq_length": True}, 196),
    ],
)
def test_siglip_has_the_tokens_that_a_file_tells(model, options, tokens):
    assert Siglip(parse_config(model, options)).plan(10, 10).tokens == tokens


# ---- configuration files


def test_aliases_and_nesting():
    config = parse_config(
        {"model_type": "x"},
        {
            "norm_mean": [0.1, 0.2, 0.3],
            "resampling": 1,
            "patch_size": {"height": 16, "width": 16},
            "size": 378,
            "crop_size": 300,
        },
    )
    assert config.image_mean == (0.1, 0.2, 0.3)
    assert config.resample == "lanczos"
    assert config.patch_size == 16
    assert config.size == {"shortest_edge": 378}
    assert config.crop_size == {"height": 300, "width": 300}


def test_a_processor_file_is_read_where_the_older_one_says_nothing():
    processor = {"image_processor": {"patch_size": 14, "merge_size": 3}}
    config = parse_config({}, {"patch_size": 16}, processor)
    assert (config.patch_size, config.merge_size) == (16, 3)


def test_kimis_nested_section():
    config = parse_config({}, {"media_proc_cfg": {"patch_size": 14, "merge_kernel_size": 4, "image_mean": [0.5] * 3}})
    assert (config.patch_size, config.merge_size, config.image_mean) == (14, 4, (0.5, 0.5, 0.5))


@pytest.mark.parametrize("bad", [None, "x", -1, 0, True, [1], 1.5])
def test_values_of_a_wrong_type_count_as_absent(bad):
    config = parse_config({}, {"patch_size": bad, "image_mean": bad, "rescale_factor": "x", "size": {"height": bad}})
    assert config.patch_size is None
    assert config.image_mean is None
    assert config.rescale_factor == 1 / 255
    assert "height" not in config.size
    assert Llava(parse_config({}, {})).image_mean == CLIP_MEAN
