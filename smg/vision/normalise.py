"""Rescale and normalise as a table: 256 values per channel, each rounded as the reference rounds it.

A resized image is uint8, so whatever a processor computes per pixel can be computed once per value. Every processor has
its own order of operations and rounds after each of them; with its own table the result is bit for bit its own (spec
multimodal 7.4).
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Order: TypeAlias = Literal["pillow", "torchvision", "totensor", "bfloat16"]
Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
F32: TypeAlias = NDArray[np.float32]

# NumPy has no bfloat16: its bits travel as uint16.
STORAGE: dict[str, type[np.generic]] = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.float16}


def to_bfloat16(values: F32) -> NDArray[np.uint16]:
    """Bits of the nearest bfloat16 (ties to even) of finite float32 values."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: NDArray[np.uint16]) -> F32:
    """The float32 values that bfloat16 ``bits`` stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _round(values: F32) -> F32:
    return from_bfloat16(to_bfloat16(values))


def table(
    mean: Sequence[float], std: Sequence[float], rescale: float, order: Order, precision: Precision = "float32"
) -> NDArray[np.generic]:
    """Normalised value of every uint8 value, shape [3, 256], in the storage type of ``precision``."""
    return stored(normalised(np.arange(256, dtype=np.float32), mean, std, rescale, order), precision)


def normalised(values: F32, mean: Sequence[float], std: Sequence[float], rescale: float, order: Order) -> F32:
    """``values`` [n] of pixels normalised for each channel, shape [3, n].

    ``order`` names whose arithmetic it is: ``pillow`` the slow and ``torchvision`` the fast Hugging Face processors,
    ``totensor`` torchvision's ToTensor and Normalize, ``bfloat16`` the same in bfloat16 throughout.
    """
    value = values[None, :]
    m = np.array(mean, np.float32)[:, None]
    s = np.array(std, np.float32)[:, None]
    if order == "pillow":
        scaled = (value.astype(np.float64) * rescale).astype(np.float32)
        result = (scaled - m) / s
    elif order == "torchvision":
        factor = np.float32(1.0 / rescale)
        result = (value - m * factor) / (s * factor)
    elif order == "totensor":
        result = (value / np.float32(255) - m) / s
    else:
        scaled = _round(value * np.float32(rescale))
        result = _round(_round(scaled - _round(m)) / _round(s))
    return np.ascontiguousarray(result, np.float32)


def stored(values: F32, precision: Precision) -> NDArray[np.generic]:
    """``values`` in the storage type of ``precision``, rounded to nearest even."""
    if precision == "bfloat16":
        return to_bfloat16(values)
    return values.astype(STORAGE[precision])
