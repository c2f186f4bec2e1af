"""What each family makes of an image's size: grids, token counts and prompts (spec multimodal 6 and 8; MM-03)."""

import numpy as np
import pytest

from smg.core.errors import GatewayError
from smg.vision.config import CLIP_MEAN, CLIP_STD, parse_config
from smg.vision.expand import runs
from smg.vision.families.base import encode
from smg.vision.families.gemma3 import Gemma3
from smg.vision.families.idefics3 import Idefics3, SmolVLM, longest_edge
from smg.vision.families.inkling import Inkling
from smg.vision.families.internvl import InternVL
from smg.vision.families.kimi import KimiK3, KimiK25
from smg.vision.families.llama4 import Llama4
from smg.vision.families.llava import Llava
from smg.vision.families.llava_next import LlavaNext, LlavaOnevision
from smg.vision.families.mllama import Mllama
from smg.vision.families.phi import Phi3Vision, Phi4Multimodal
from smg.vision.families.pixtral import Mistral3, Pixtral
from smg.vision.families.qwen_vl import Glm4V, Qwen2VL, Qwen3Omni, Qwen3VL, smart_resize
from smg.vision.families.siglip import Siglip
from smg.vision.families.table import FAMILIES, find_family


class Vocabulary:
    """Ids in the order in which tokens are asked for, from 1000 on; text is its code points."""

    def __init__(self, missing=()):
        self.ids = {}
        self.missing = missing

    def id(self, token):
        if token in self.missing:
            return None
        return self.ids.setdefault(token, 1000 + len(self.ids))

    def encode(self, text):
        return [ord(char) for char in text]

    def spell(self, ids):
        names = {number: token for token, number in self.ids.items()}
        return [names.get(one, one) for one in ids]


def made(kind, config=None, model=None, **options):
    return kind(parse_config(model or {}, config or {}), **options)


def blank(height, width):
    return np.zeros((height, width, 3), np.uint8)


# ---- Qwen


def test_images_of_different_sizes_keep_their_own_grids():
    got = encode(made(Qwen2VL), [blank(224, 224), blank(448, 448), blank(224, 448)])
    assert got.side["image_grid_thw"].tolist() == [[1, 16, 16], [1, 32, 32], [1, 16, 32]]
    assert got.tokens == [64, 256, 128]
    assert got.side["patches_per_image"].tolist() == [256, 1024, 512]
    assert got.tensor.shape == (256 + 1024 + 512, 1176)


@pytest.mark.parametrize(
    ("size", "factor", "budget", "expected"),
    [
        ((224, 224), 28, (3136, 1003520), (224, 224)),
        ((400, 400), 32, (1, 10**9), (384, 384)),  # 12.5 rounds to the even 12
        ((432, 432), 32, (1, 10**9), (448, 448)),  # 13.5 rounds to the even 14
        ((1080, 1920), 28, (3136, 1003520), (728, 1316)),
        ((3, 500), 28, (3136, 1003520), (28, 728)),  # rounds to nothing, so it is below the budget
        ((1, 1), 28, (3136, 1003520), (56, 56)),
        ((10, 2000), 28, (3136, 1003520), (28, 812)),  # so is this one
        ((15, 2000), 28, (3136, 1003520), (28, 1988)),
    ],
)
def test_smart_resize(size, factor, budget, expected):
    assert smart_resize(*size, factor, *budget) == expected


def test_a_strip_beyond_the_limit_is_the_clients_error():
    assert made(Qwen2VL).plan(10, 2000).tokens > 0
    with pytest.raises(GatewayError, match="too narrow") as caught:
        made(Qwen2VL).plan(10, 2001)
    assert caught.value.status == 400


def test_pixel_budgets_come_from_either_key():
    by_size = made(Qwen2VL, {"size": {"shortest_edge": 3136, "longest_edge": 100_000}})
    by_name = made(Qwen2VL, {"min_pixels": 3136, "max_pixels": 100_000})
    assert by_size.plan(1000, 1000) == by_name.plan(1000, 1000)
    assert by_size.plan(1000, 1000).grid == (1, 22, 22)


def test_qwen3_has_larger_patches():
    plan = made(Qwen3VL).plan(768, 1024)
    assert plan.grid == (1, 48, 64)
    assert plan.shape == (48 * 64, 1536)
    assert plan.tokens == 24 * 32


def test_omni_has_the_thinker_s_ids_and_a_budget_of_its_own():
    omni = made(Qwen3Omni, model={"thinker_config": {"image_token_id": 77}})
    plan = omni.plan(64, 64)
    assert plan.grid == (1, 4, 4)
    assert omni.prompt(plan, Vocabulary()).ids == [77] * 4
    assert find_family("Qwen/Qwen3-Omni-30B", {"model_type": "qwen3_omni_moe"}) is Qwen3Omni


# ---- counts of the others


@pytest.mark.parametrize(
    ("family", "size", "tokens", "shape"),
    [
        (KimiK25, (100, 100), 16, (64, 3, 14, 14)),
        (KimiK25, (5000, 5000), 64 * 64, (128 * 128, 3, 14, 14)),
        (KimiK3, (100, 100), 16, (64, 3, 14, 14)),
        (KimiK3, (2000, 2500), 72 * 90, (144 * 180, 3, 14, 14)),
        (Llava, (300, 400), 576, (3, 336, 336)),
        (LlavaNext, (336, 672), 576 + 24 * 48 + 24, (3, 3, 336, 336)),
        (LlavaNext, (1000, 1000), 576 + 48 * 48 + 48, (5, 3, 336, 336)),
        (LlavaNext, (1000, 720), 576 + 48 * 34 + 48, (5, 3, 336, 336)),
        (LlavaOnevision, (384, 384), 729 + 27 * 27 + 27, (2, 3, 384, 384)),
        (Llama4, (336, 336), 144, (1, 3, 336, 336)),
        (Llama4, (672, 672), 5 * 144, (5, 3, 336, 336)),
        (Mllama, (900, 300), 1, (4, 3, 224, 224)),
        (Pixtral, (1024, 1024), 64 * 64, (3, 1024, 1024)),
        (Pixtral, (100, 33), 7 * 3, (3, 112, 48)),
        (Mistral3, (100, 33), 4 * 2, (3, 128, 64)),
        (Gemma3, (500, 70), 256, (1, 3, 224, 224)),
        (Glm4V, (100, 33), 5 * 2, (40, 1176)),
        (InternVL, (448, 448), 256, (1, 3, 448, 448)),
        (InternVL, (448, 896), 3 * 256, (3, 3, 448, 448)),
        (Idefics3, (364, 364), 17 * 30, (17, 3, 364, 364)),
        (Idefics3, (100, 1000), 5 * 30, (5, 3, 364, 364)),
        (Inkling, (80, 80), 2 * 3, (6, 2, 40, 40, 3)),
        (Inkling, (81, 79), 3 * 2, (6, 2, 40, 40, 3)),
        (Siglip, (300, 70), 14 * 14, (3, 224, 224)),
        (Phi3Vision, (336, 336), 17 * 144 + 1 + 5 * 12, (17, 3, 336, 336)),
        (Phi4Multimodal, (448, 448), 256 + 1 + 256 + 16 + 16, (2, 3, 448, 448)),
    ],
)
def test_tokens_and_shapes(family, size, tokens, shape):
    plan = made(family).plan(*size)
    assert plan.tokens == tokens
    assert plan.shape == shape
    assert (plan.height, plan.width) == size


@pytest.mark.parametrize("row", FAMILIES, ids=lambda row: row.family.name)
def test_every_family_fills_what_it_planned(row, either):
    family = made(row.family)
    images = [
        np.random.default_rng(i).integers(0, 256, size, np.uint8) for i, size in enumerate([(90, 130, 3), (200, 70, 3)])
    ]
    got = encode(family, images)
    assert got.tensor.dtype == np.float32
    assert np.isfinite(got.tensor).all()
    rows = [plan.shape[0] for plan in got.plans]
    assert len(got.tensor) == (sum(rows) if family.layout.kind == "flat" else 2)
    if family.layout.sizes:
        assert got.side[family.layout.sizes].tolist() == rows
    for name in family.keep_on_cpu:
        assert name in got.side
    for one, (image, plan) in enumerate(zip(images, got.plans, strict=True)):
        alone = encode(family, [image]).tensor
        start = sum(rows[:one])
        part = got.tensor[start : start + rows[one]] if family.layout.kind == "flat" else got.tensor[one]
        inside = alone if family.layout.kind == "flat" else alone[0]
        np.testing.assert_array_equal(part[tuple(map(slice, inside.shape))], inside)
        assert plan.tokens > 0


@pytest.mark.parametrize("row", FAMILIES, ids=lambda row: row.family.name)
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_short_floats_are_the_rounded_ones(row, precision, kernels):
    image = np.random.default_rng(3).integers(0, 256, (70, 90, 3), np.uint8)
    full = encode(made(row.family), [image]).tensor
    short = encode(made(row.family, precision=precision), [image]).tensor
    assert short.itemsize == 2
    from smg.vision.normalise import stored

    np.testing.assert_array_equal(short, stored(full, precision))


# ---- prompts


@pytest.mark.parametrize("row", FAMILIES, ids=lambda row: row.family.name)
def test_a_prompt_has_as_many_feature_tokens_as_the_plan_says(row):
    family, words = made(row.family), Vocabulary()
    plan = family.plan(700, 900)
    replacement = family.prompt(plan, words)
    assert sum(length for _, length in runs(replacement.ids, replacement.feature_id)) == plan.tokens


def test_llama4_separates_tiles_and_closes_with_the_whole():
    family, words = made(Llama4), Vocabulary()
    one = family.prompt(family.plan(300, 300), words)
    assert len(one.ids) == 147
    four = family.prompt(family.plan(672, 672), words)
    assert len(four.ids) == 727
    spelled = [token for token in words.spell(four.ids) if token != "<|patch|>"]
    line = ["<|tile_x_separator|>", "<|tile_y_separator|>"]
    assert spelled == ["<|image_start|>", *line, *line, "<|image|>", "<|image_end|>"]


def test_kimi_k3_tells_the_size_of_what_the_client_sent():
    family, words = made(KimiK3, {"media_proc_cfg": {"in_patch_limit": 4}}), Vocabulary()
    plan = family.plan(300, 400)
    assert (plan.tokens, plan.inner) == (2, (24, 32))
    ids = family.prompt(plan, words).ids
    text = [ord(char) for char in "image 400x300"]
    pads = ["<|media_pad|>"] * plan.tokens
    assert words.spell(ids) == ["<|media_begin|>", *text, "<|media_content|>", *pads, "<|media_end|>"]


def test_kimi_k3_lays_what_is_transparent_on_a_chessboard():
    nothing = np.zeros((28, 28, 4), np.uint8)
    board = encode(made(KimiK3), [nothing]).tensor[:, 0].reshape(2, 2, 14, 14)
    rows = board.transpose(0, 2, 1, 3).reshape(28, 28)
    white, grey = np.float32(1), (np.float32(180) / np.float32(255) - np.float32(0.5)) * 2
    assert (rows[0, 0], rows[0, 8], rows[8, 0], rows[8, 8], rows[7, 7]) == (white, grey, grey, white, white)
    for pattern, value in {"white": 1, "black": -1, "anything else": -1}.items():
        plain = made(KimiK3, {"transparent_bg_config": {"pattern": pattern}})
        assert set(encode(plain, [nothing]).tensor.ravel()) == {np.float32(value)}


@pytest.mark.parametrize(
    ("options", "size", "inner"),
    [
        ({}, (300, 400), (300, 400)),
        ({"rescale_image_frac": 2.0}, (300, 401), (600, 802)),
        ({"rescale_image_frac": 2.0}, (900, 1500), (1229, 2048)),  # 1228.8
        ({"rescale_image_frac": 2.0}, (2100, 3000), (2100, 3000)),  # beyond the cap already
        ({"rescale_image_frac": 2.0, "rescale_image_max_upscaled_long_edge": None}, (900, 1500), (1800, 3000)),
        ({"rescale_image_frac": 0.5}, (1, 401), (1, 201)),
        ({"rescale_image_frac": "much"}, (300, 400), (300, 400)),
    ],
)
def test_inkling_enlarges_up_to_a_cap(options, size, inner):
    assert made(Inkling, options).plan(*size).inner == inner


def test_inkling_ends_its_images_with_what_no_pixel_is():
    """41 x 80 pixels: two rows of patches, one row of pixels in the second; three columns, nothing in the third."""
    family = made(Inkling)
    got = encode(family, [blank(41, 80)])
    patches = got.tensor.reshape(2, 3, 2, 40, 40, 3)
    black, outside = family.table[:, 0], (np.float32(-1) / 255 - np.array(CLIP_MEAN)) / np.array(CLIP_STD)
    assert (patches[0, :2] == black).all()
    assert (patches[1, :2, :, 0] == black).all()
    for ended in (patches[1, :2, :, 1:], patches[:, 2]):
        np.testing.assert_allclose(ended, np.broadcast_to(outside, ended.shape), rtol=1e-5)
    replacement = family.prompt(got.plans[0], Vocabulary())
    assert (replacement.ids, replacement.prefix) == ([1000] * 6, 1)


def test_llama_3_2_numbers_its_grids_and_keeps_one_token():
    family, words = made(Mllama), Vocabulary()
    sizes = [(100, 100), (200, 400), (400, 200), (448, 448), (200, 900), (900, 200)]
    got = encode(family, [blank(*size) for size in sizes])
    assert [plan.tiles for plan in got.plans] == [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1)]
    assert got.side["aspect_ratio_ids"].tolist() == [1, 2, 5, 6, 4, 8]
    assert got.side["aspect_ratio_mask"].sum(axis=1).tolist() == [1, 2, 2, 4, 4, 4]
    # Black is -1 and no tile is 0.
    assert (got.tensor[0, 0] == -1).all()
    assert not got.tensor[0, 1:].any()
    assert words.spell(family.prompt(got.plans[3], words).ids) == ["<|image|>"]


def test_pixtral_breaks_lines():
    family, words = made(Pixtral), Vocabulary()
    ids = family.prompt(family.plan(32, 48), words).ids
    line = ["[IMG]"] * 3
    assert words.spell(ids) == [*line, "[IMG_BREAK]", *line, "[IMG_END]"]


def test_gemma3_wraps_its_features():
    family, words = made(Gemma3, model={"mm_tokens_per_image": 2}), Vocabulary()
    ids = family.prompt(family.plan(32, 48), words).ids
    soft = "<image_soft_token>"
    assert words.spell(ids) == [10, 10, "<start_of_image>", soft, soft, "<end_of_image>", 10, 10]


SMOL = {"scale_factor": 4, "vision_config": {"image_size": 512, "patch_size": 16}}


def test_smolvlm_names_the_place_of_each_tile_and_separates_lines():
    config = {"size": {"longest_edge": 1024}, "max_image_size": {"longest_edge": 512}}
    family, words = made(SmolVLM, config, SMOL), Vocabulary()
    plan = family.plan(300, 400)
    assert plan.tokens == 5 * 64
    around = "<fake_token_around_image>"
    spelled = [one for one in words.spell(family.prompt(plan, words).ids) if one != "<image>"]
    first = [around, "<row_1_col_1>", around, "<row_1_col_2>", 10]
    second = [around, "<row_2_col_1>", around, "<row_2_col_2>", 10, 10]
    assert spelled == [*first, *second, around, "<global-img>", around]


def test_an_image_that_fits_one_tile_is_the_whole_only():
    family, words = made(Idefics3, {"size": {"longest_edge": 364}}), Vocabulary(missing={"<global-img>"})
    plan = family.plan(300, 400)
    assert (plan.rows, plan.columns, plan.tokens) == (0, 0, 30)
    spelled = [one for one in words.spell(family.prompt(plan, words).ids) if one != "<image>"]
    marker = [ord(char) for char in "<global-img>"]
    assert spelled == ["<fake_token_around_image>", *marker, "<fake_token_around_image>"]


@pytest.mark.parametrize(
    ("size", "target", "expected"),
    [
        ((300, 400), 1456, (1092, 1456)),
        ((37, 911), 1456, (60, 1456)),  # 59 is odd
        ((1, 4000), 1456, (1, 1456)),
        ((100, 1000), 5000, (409, 4096)),
        ((1000, 100), 5000, (4096, 409)),
    ],
)
def test_the_longer_side_decides(size, target, expected):
    assert longest_edge(*size, target) == expected


def test_configured_ids_win_and_missing_tokens_are_told():
    family = made(Qwen2VL, model={"image_token_id": 0})
    assert family.prompt(family.plan(56, 56), Vocabulary()).ids == [0] * 4
    with pytest.raises(GatewayError, match="image_pad") as caught:
        made(Qwen2VL).feature_id(Vocabulary(missing={"<|image_pad|>"}))
    assert caught.value.code == "invalid_multimodal_request"
