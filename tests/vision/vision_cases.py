"""Images and configurations that the golden fixtures are made of; shared by their generator and their test.

Imports neither this project nor a processor, so that the generator runs where only the processors are installed.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np


@lru_cache(maxsize=32)
def picture(height: int, width: int) -> np.ndarray:
    """A deterministic image uint8[H, W, 3]: gradients, hard edges and hashed noise, the same on every machine."""
    y, x, c = np.meshgrid(
        np.arange(height, dtype=np.uint32),
        np.arange(width, dtype=np.uint32),
        np.arange(3, dtype=np.uint32),
        indexing="ij",
    )
    noise = (x * np.uint32(374761393) + y * np.uint32(668265263) + c * np.uint32(2246822519)).astype(np.uint32)
    noise = (noise ^ (noise >> np.uint32(13))) * np.uint32(1274126177)
    noise = (noise ^ (noise >> np.uint32(16))) & np.uint32(0xFF)
    smooth = (x * np.uint32(3) + y * np.uint32(2) + c * np.uint32(50)) & np.uint32(0xFF)
    checks = np.where((x // np.uint32(24) + y // np.uint32(17)) % np.uint32(2) == 0, smooth, np.uint32(255) - smooth)
    # A third of the rows is pure noise: weights and rounding show nowhere better.
    image = np.where(y % np.uint32(96) < 32, noise, checks).astype(np.uint8)
    image.flags.writeable = False
    return image


@lru_cache(maxsize=32)
def translucent(height: int, width: int) -> np.ndarray:
    """``picture`` with opacity, uint8[H, W, 4]: wholly transparent and opaque areas, hard edges, and all between."""
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    slope = (x * 5 + y * 3) % 256
    opacity = np.where((x // 40 + y // 30) % 3 == 0, 0, np.where((x // 40 + y // 30) % 3 == 1, 255, slope))
    image = np.concatenate([picture(height, width), opacity[:, :, None].astype(np.uint8)], axis=2)
    image.flags.writeable = False
    return image


# (height, width): the sizes of MM-03, single pixels, thin strips, sizes that are aligned already or one pixel off,
# enlarging, shrinking, one of each, half-way roundings, and both sides of Pillow's rule for the order of the passes.
SIZES = [
    (224, 224),
    (448, 448),
    (224, 448),
    (1, 1),
    (30, 30),
    (5, 700),
    (37, 911),
    (911, 137),
    (300, 400),
    (400, 300),
    (336, 336),
    (335, 337),
    (640, 481),
    (400, 1600),
    (768, 1024),
    (1300, 900),
]
LARGE = [(1080, 1920), (2100, 1300)]
# As long as Qwen's family takes them: 200 times as long as wide.
LONGEST = [(4, 800), (1200, 6)]
# Phi makes up to 17 or 37 tiles of every image, so it takes fewer of them.
PHI_SIZES = [(224, 224), (37, 911), (911, 137), (300, 400), (448, 448), (640, 481), (1080, 1920)]


class Case(NamedTuple):
    """``family`` is ours, ``processor`` and ``options`` construct theirs, ``config`` is the same as our file.

    ``alpha``: the images are translucent.
    """

    name: str
    family: str
    processor: str
    options: dict[str, Any]
    config: dict[str, Any]
    flavour: str
    sizes: list[tuple[int, int]]
    primary: str = "pixel_values"
    alpha: bool = False


_HALF = [0.5, 0.5, 0.5]
_QWEN3 = {
    "patch_size": 16,
    "image_mean": _HALF,
    "image_std": _HALF,
    "size": {"shortest_edge": 65536, "longest_edge": 16777216},
}
_SQUARE = {"height": 336, "width": 336}
_EDGE = {"longest_edge": 512}
_SMOL = {"size": {"longest_edge": 2048}, "max_image_size": _EDGE}
_LONGER = {"rescale_image_frac": 2.0, "rescale_image_max_upscaled_long_edge": 1200}
_TILED = {"size": {"height": 280, "width": 280}}
_GRIDS = [[336, 1008], [672, 336], [1008, 1008]]
_FEW = {"max_patches": 5}
_LLAVA = {"size": {"shortest_edge": 336}, "crop_size": _SQUARE}


def _both(name: str, family: str, processor: str, options: dict[str, Any], sizes: list[tuple[int, int]]) -> list[Case]:
    slow = Case(f"{name}-slow", family, f"{processor}Pil", options, options, "pillow", sizes)
    fast = Case(f"{name}-fast", family, processor, options, options, "torchvision", sizes)
    return [slow, fast]


CASES = [
    *_both("qwen2_vl", "Qwen2VL", "Qwen2VLImageProcessor", {}, SIZES + LARGE + LONGEST),
    *_both(
        "qwen2_vl-large",
        "Qwen2VL",
        "Qwen2VLImageProcessor",
        {"min_pixels": 3136, "max_pixels": 12845056},
        [(1080, 1920), (3, 500), (1008, 1008)],
    ),
    *_both("qwen3_vl", "Qwen3VL", "Qwen2VLImageProcessor", _QWEN3, SIZES + LONGEST),
    *_both("llava", "Llava", "LlavaImageProcessor", _LLAVA, SIZES),
    *_both("llava-pad", "Llava", "LlavaImageProcessor", {**_LLAVA, "do_pad": True}, SIZES),
    *_both(
        "llava-wide-crop",
        "Llava",
        "LlavaImageProcessor",
        {"size": {"shortest_edge": 301}, "crop_size": _SQUARE},
        SIZES,
    ),
    *_both("llava_next", "LlavaNext", "LlavaNextImageProcessor", _LLAVA, SIZES + LARGE),
    *_both(
        "llava_next-grids", "LlavaNext", "LlavaNextImageProcessor", {**_LLAVA, "image_grid_pinpoints": _GRIDS}, SIZES
    ),
    *_both("llava_onevision", "LlavaOnevision", "LlavaOnevisionImageProcessor", {}, SIZES),
    *_both("pixtral", "Pixtral", "PixtralImageProcessor", {}, SIZES),
    *_both("gemma3", "Gemma3", "Gemma3ImageProcessor", {"size": {"height": 896, "width": 896}}, SIZES),
    *_both("glm4v", "Glm4V", "Glm4vImageProcessor", {}, SIZES + LONGEST),
    *_both(
        "internvl",
        "InternVL",
        "GotOcr2ImageProcessor",
        {"crop_to_patches": True, "size": {"height": 448, "width": 448}},
        PHI_SIZES,
    ),
    *_both("mllama", "Mllama", "MllamaImageProcessor", _TILED, SIZES),
    *_both("mllama-many", "Mllama", "MllamaImageProcessor", {"max_image_tiles": 9}, PHI_SIZES),
    *_both("siglip", "Siglip", "SiglipImageProcessor", {"size": {"height": 384, "width": 384}}, SIZES),
    *_both("idefics3", "Idefics3", "Idefics3ImageProcessor", {}, [*PHI_SIZES, (1, 1), (5, 700), (364, 364)]),
    *_both("smolvlm", "SmolVLM", "SmolVLMImageProcessor", _SMOL, [(37, 911), (300, 400), (1080, 1920), (512, 512)]),
    *_both(
        "smolvlm-whole",
        "SmolVLM",
        "SmolVLMImageProcessor",
        {**_SMOL, "do_image_splitting": False},
        [(37, 911), (911, 137), (300, 400)],
    ),
    *_both("smolvlm-small", "SmolVLM", "SmolVLMImageProcessor", {**_SMOL, "size": _EDGE}, [(911, 137), (300, 400)]),
    Case("inkling-fast", "Inkling", "InklingImageProcessor", {}, {}, "torchvision", [*PHI_SIZES, (1, 1), (5, 700)]),
    Case("inkling-scaled-fast", "Inkling", "InklingImageProcessor", _LONGER, _LONGER, "torchvision", PHI_SIZES),
    Case("llama4", "Llama4", "Llama4ImageProcessor", {}, {}, "torchvision", SIZES + LARGE),
    Case("llama4-few", "Llama4", "Llama4ImageProcessor", _FEW, _FEW, "torchvision", SIZES),
    Case("kimi_k25", "KimiK25", "Kimi_K25ImageProcessor", {}, {}, "torchvision", SIZES),
    Case(
        "kimi_k25-small-budget",
        "KimiK25",
        "Kimi_K25ImageProcessor",
        {"max_patches": 500},
        {"media_proc_cfg": {"in_patch_limit": 500, "patch_size": 14, "merge_kernel_size": 2}},
        "torchvision",
        SIZES,
    ),
    Case(
        "phi4_multimodal",
        "Phi4Multimodal",
        "Phi4MultimodalImageProcessor",
        {},
        {},
        "torchvision",
        PHI_SIZES,
        "image_pixel_values",
    ),
    Case(
        "phi4_multimodal-few",
        "Phi4Multimodal",
        "Phi4MultimodalImageProcessor",
        {"dynamic_hd": 9},
        {"dynamic_hd": 9},
        "torchvision",
        PHI_SIZES,
        "image_pixel_values",
    ),
]

_K3_SIZES = [(224, 224), (30, 30), (37, 911), (911, 137), (300, 400), (400, 300)]
_K3_SMALL = {"in_patch_limit": 200}
_BOARD = {"pattern": "chessboard", "chessboard_square_on_top_left": False, "chessboard_gray_value": 90}


def _k3(name: str, media: dict[str, Any], alpha: bool = True) -> Case:
    options = {"media_proc_cfg": media}
    return Case(f"kimi_k3{name}", "KimiK3", "", options, options, "pillow", _K3_SIZES, alpha=alpha)


# Their processors are code of the checkpoint, which the generator has the arithmetic of.
REMOTE = [
    Case("phi3_v", "Phi3Vision", "", {}, {}, "pillow", PHI_SIZES),
    Case("phi3_v-few", "Phi3Vision", "", {"num_crops": 4}, {"num_crops": 4}, "pillow", PHI_SIZES),
    Case("inkling-slow", "Inkling", "", {}, {}, "pillow", PHI_SIZES),
    Case("inkling-scaled-slow", "Inkling", "", _LONGER, _LONGER, "pillow", PHI_SIZES),
    _k3("", {}, alpha=False),
    _k3("-small", _K3_SMALL, alpha=False),
    _k3("-alpha", {}),
    _k3("-alpha-small", _K3_SMALL),
    _k3("-alpha-before", {**_K3_SMALL, "transparent_bg_config": _BOARD, "transparent_bg_fill_stage": "before_resize"}),
    _k3("-alpha-grey", {**_K3_SMALL, "transparent_bg_config": {"pattern": "gray"}}),
    _k3("-alpha-off", {"transparent_bg_config": None, "transparent_bg_fill_stage": "after_resize"}),
]
