"""A model's image configuration: what its files say, under one name each (spec multimodal 5)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from smg.vision.filters import Filter

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)

# Codes of PIL.Image.Resampling. Nearest and the rarely used box and Hamming filters are served by bilinear.
_FILTERS: dict[int, Filter] = {0: "bilinear", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "bilinear", 5: "bilinear"}

# Where Kimi's files keep what others have at the top.
_NESTED = "media_proc_cfg"


class ImageConfig(msgspec.Struct, frozen=True):
    """Image preprocessing of one model. None means that the files don't say and the family's default holds.

    ``size`` and ``crop_size`` keep their keys (height, width, shortest_edge, longest_edge, max_height, max_width); a
    bare number has become ``shortest_edge`` (size) or height and width (crop). ``raw`` is the whole preprocessor file,
    ``model`` the whole ``config.json``.
    """

    image_mean: tuple[float, ...] | None = None
    image_std: tuple[float, ...] | None = None
    rescale_factor: float = 1 / 255
    resample: Filter | None = None
    size: dict[str, int] = msgspec.field(default_factory=dict)
    crop_size: dict[str, int] = msgspec.field(default_factory=dict)
    patch_size: int | None = None
    merge_size: int | None = None
    temporal_patch_size: int | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None
    do_pad: bool | None = None
    raw: dict[str, Any] = msgspec.field(default_factory=dict)
    model: dict[str, Any] = msgspec.field(default_factory=dict)

    def number(self, *names: str, default: int) -> int:
        """The first of ``names`` that the preprocessor file has as a positive whole number."""
        for name in names:
            value = _whole(self.raw.get(name))
            if value is not None:
                return value
        return default

    def vision(self, name: str, default: int) -> int:
        """A positive whole number of the model's ``vision_config``."""
        section = self.model.get("vision_config")
        value = _whole(section.get(name)) if isinstance(section, dict) else None
        return default if value is None else value


def parse_config(
    model: Mapping[str, Any],
    preprocessor: Mapping[str, Any] | None = None,
    processor: Mapping[str, Any] | None = None,
) -> ImageConfig:
    """From the parsed ``config.json``, ``preprocessor_config.json`` and ``processor_config.json``.

    Newer checkpoints keep the image part only inside the last. Values of a wrong type count as absent.
    """
    raw: dict[str, Any] = {}
    inner = (processor or {}).get("image_processor")
    if isinstance(inner, Mapping):
        raw.update(inner)
    raw.update(preprocessor or {})
    nested = raw.get(_NESTED)
    if isinstance(nested, Mapping):
        raw = {**nested, **raw}
        raw.setdefault("merge_size", nested.get("merge_kernel_size"))
    edge = _whole(raw.get("size"))
    crop = _whole(raw.get("crop_size"))
    return ImageConfig(
        image_mean=_triple(raw.get("image_mean", raw.get("norm_mean"))),
        image_std=_triple(raw.get("image_std", raw.get("norm_std"))),
        rescale_factor=_positive(raw.get("rescale_factor")) or 1 / 255,
        resample=_filter(raw.get("resample", raw.get("resampling"))),
        size={"shortest_edge": edge} if edge else _edges(raw.get("size")),
        crop_size={"height": crop, "width": crop} if crop else _edges(raw.get("crop_size")),
        patch_size=_whole(raw.get("patch_size")) or _edges(raw.get("patch_size")).get("height"),
        merge_size=_whole(raw.get("merge_size")),
        temporal_patch_size=_whole(raw.get("temporal_patch_size")),
        min_pixels=_whole(raw.get("min_pixels")),
        max_pixels=_whole(raw.get("max_pixels")),
        do_pad=raw["do_pad"] if isinstance(raw.get("do_pad"), bool) else None,
        raw=raw,
        model=dict(model),
    )


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1 or value != int(value):
        return None
    return int(value)


def _positive(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _triple(value: Any) -> tuple[float, ...] | None:
    if isinstance(value, list | tuple) and len(value) == 3 and all(isinstance(one, int | float) for one in value):
        return tuple(float(one) for one in value)
    return None


def _filter(value: Any) -> Filter | None:
    return _FILTERS.get(value) if isinstance(value, int) else None


def _edges(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {str(key): number for key, one in value.items() if (number := _whole(one)) is not None}
