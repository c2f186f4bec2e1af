"""Make golden.json from the Hugging Face processors: ``python tests/vision/generate_golden.py``.

Needs transformers 5.24, torch, torchvision, Pillow 13 and NumPy, nothing of this project and no network. For every
case it keeps the tensor's shape and SHA-256, a few values for a look at what differs, and the small side tensors. Where
a tensor holds floats that depend on the order of a sum (Phi-4's view of the whole), that part is kept as values.
"""

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers
from PIL import Image
from vision_cases import CASES, REMOTE, Case, picture, translucent

SAMPLES = 8
VIEW_SAMPLES = 60
SIDE = (
    "image_grid_thw",
    "image_sizes",
    "aspect_ratios",
    "num_img_tokens",
    "num_patches",
    "aspect_ratio_ids",
    "aspect_ratio_mask",
)


def digest(tensor: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(tensor, np.float32).tobytes()).hexdigest()


def samples(tensor: np.ndarray, count: int = SAMPLES) -> list[float]:
    flat = np.ascontiguousarray(tensor, np.float32).reshape(-1)
    return [float(flat[i]) for i in np.linspace(0, flat.size - 1, count).astype(int)]


def entry(tensor: np.ndarray, side: dict[str, Any], floats: bool) -> dict[str, Any]:
    """``floats``: view 0 of the one image is kept as values only."""
    out: dict[str, Any] = {"shape": list(tensor.shape), "side": side}
    if floats:
        out["view"] = samples(tensor[0, 0], VIEW_SAMPLES)
        tensor = tensor[0, 1:]
    out["sha256"] = digest(tensor)
    out["samples"] = samples(tensor)
    return out


def numbers(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.float() if value.is_floating_point() else value
        return value.numpy()
    return np.asarray(value)


def huggingface(case: Case) -> dict[str, Any]:
    processor = getattr(transformers, case.processor)(**case.options)
    kind = "np" if case.processor.endswith("Pil") else "pt"
    out: dict[str, Any] = {}
    for height, width in case.sizes:
        key = f"{height}x{width}"
        try:
            result = processor(images=[Image.fromarray(picture(height, width))], return_tensors=kind)
        except ValueError:
            out[key] = None
            continue
        side = {name: numbers(result[name]).tolist() for name in SIDE if name in result}
        if "image_attention_mask" in result:
            side["image_attention_mask"] = digest(numbers(result["image_attention_mask"]))
        out[key] = entry(numbers(result[case.primary]), side, case.name.startswith("phi"))
    return out


def phi3(case: Case, height: int, width: int) -> tuple[np.ndarray, dict[str, Any]] | None:
    """Phi-3 Vision's processor is remote code; this is its arithmetic as the specification gives it (8.8)."""
    image, crops = Image.fromarray(picture(height, width)), case.options.get("num_crops", 16)
    turned = width < height
    if turned:
        image = image.transpose(Image.Transpose.TRANSPOSE)
    ratio = image.width / image.height
    scale = 1
    while scale * math.ceil(scale / ratio) <= crops:
        scale += 1
    new_width = (scale - 1) * 336
    new_height = int(new_width / ratio)
    if new_height < 1:
        return None
    image = image.resize((new_width, new_height), Image.Resampling.BILINEAR)
    full = math.ceil(new_height / 336) * 336
    canvas = Image.new("RGB", (new_width, full), (255, 255, 255))
    canvas.paste(image, (0, (full - new_height) // 2))
    if turned:
        canvas = canvas.transpose(Image.Transpose.TRANSPOSE)
    tensor = torch.from_numpy(np.asarray(canvas).copy()).permute(2, 0, 1).float().div(255)
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(3, 1, 1)
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(3, 1, 1)
    tensor = (tensor - mean) / std
    view = torch.nn.functional.interpolate(tensor[None], size=(336, 336), mode="bicubic")
    rows, columns = tensor.shape[1] // 336, tensor.shape[2] // 336
    tiles = tensor.reshape(3, rows, 336, columns, 336).permute(1, 3, 0, 2, 4).reshape(-1, 3, 336, 336)
    out = torch.zeros(1, crops + 1, 3, 336, 336)
    out[0, 0] = view[0]
    out[0, 1 : 1 + len(tiles)] = tiles
    tokens = (rows * columns + 1) * 144 + 1 + (rows + 1) * 12
    return out.numpy(), {"image_sizes": [[rows * 336, columns * 336]], "num_img_tokens": [tokens]}


def chessboard(height: int, width: int, config: dict[str, Any]) -> np.ndarray:
    """The background of Kimi-K3, float32[H, W, 1], pixel by pixel as the specification says (8.4)."""
    plain = {"white": 255, "black": 0, "gray": 128}
    pattern = config.get("pattern", "black")
    if pattern in plain:
        return np.full((height, width, 1), plain[pattern], np.float32)
    square = config.get("chessboard_square_size", 16)
    grey_parity = 1 if config.get("chessboard_square_on_top_left", True) else 0
    board = np.full((height, width, 1), config.get("chessboard_white_value", 255), np.float32)
    for y in range(height):
        for x in range(width):
            if (y // square + x // square) % 2 == grey_parity:
                board[y, x] = config.get("chessboard_gray_value", 200)
    return board


def kimi_k3(case: Case, height: int, width: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Kimi-K3's processor is code of its checkpoint; this is its arithmetic as the specification gives it (8.4)."""
    published = {"pattern": "chessboard", "chessboard_square_size": 8, "chessboard_gray_value": 180}
    media = {"transparent_bg_config": published, "transparent_bg_fill_stage": "after_resize"}
    if "transparent_bg_config" in case.options["media_proc_cfg"]:
        media["transparent_bg_fill_stage"] = "before_resize"
    media |= case.options["media_proc_cfg"]

    def laid(image: Image.Image) -> Image.Image:
        config = media["transparent_bg_config"]
        if config is None or image.mode == "RGB":
            return image.convert("RGB")
        values = np.asarray(image)
        opacity = values[:, :, 3:].astype(np.float32) / 255
        mixed = opacity * values[:, :, :3] + (1 - opacity) * chessboard(*values.shape[:2], config)
        return Image.fromarray(mixed.astype(np.uint8))

    image = Image.fromarray((translucent if case.alpha else picture)(height, width))
    if media["transparent_bg_fill_stage"] == "before_resize":
        image = laid(image)
    most = media.get("in_patch_limit", 65536)
    scale = min(1.0, math.sqrt(most / (max(1, width // 14) * max(1, height // 14))), 7168 / width, 7168 / height)
    inner = max(1, int(width * scale)), max(1, int(height * scale))
    image = laid(image.resize(inner, Image.Resampling.BICUBIC))
    rows, columns = -(-inner[1] // 28) * 2, -(-inner[0] // 28) * 2
    canvas = np.zeros((rows * 14, columns * 14, 3), np.float32)
    canvas[: inner[1], : inner[0]] = np.asarray(image)
    tensor = (canvas / np.float32(255) - np.float32(0.5)) * np.float32(2)
    patches = tensor.reshape(rows, 14, columns, 14, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, 14, 14)
    return patches, {"grid_thws": [[1, rows, columns]]}


def inkling(case: Case, height: int, width: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Inkling with Pillow's Lanczos, as the specification has it (8.8, 7.4); its own processor is a fast one."""
    image = Image.fromarray(picture(height, width))
    if factor := case.options.get("rescale_image_frac"):
        longest = max(height, width)
        target = min(longest * factor, max(case.options["rescale_image_max_upscaled_long_edge"], longest))
        size = tuple(math.floor(side * (target / longest) + 0.5) for side in image.size)
        image = image.resize(size, Image.Resampling.LANCZOS)
    rows, columns = -(-image.height // 40), image.width // 40 + 1
    canvas = np.full((rows * 40, columns * 40, 3), -1, np.float64)
    canvas[: image.height, : image.width] = np.asarray(image)
    mean = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
    std = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
    tensor = ((canvas * (1 / 255)).astype(np.float32) - mean) / std
    patches = tensor.reshape(rows, 40, columns, 40, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 1, 40, 40, 3)
    return np.repeat(patches, 2, axis=1), {"tokens_per_item": [rows * columns]}


def main() -> None:
    torch.set_num_threads(1)
    golden = {case.name: huggingface(case) for case in CASES}
    for case in REMOTE:
        make = {"KimiK3": kimi_k3, "Inkling": inkling, "Phi3Vision": phi3}[case.family]
        made = {f"{h}x{w}": make(case, h, w) for h, w in case.sizes}
        golden[case.name] = {size: each and entry(*each, make is phi3) for size, each in made.items()}
    path = Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(golden, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
