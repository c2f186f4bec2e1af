"""Weights of the separable resampling filters, in the fixed point of Pillow and of torchvision.

Both start from the same float64 weights; they differ in precision (spec multimodal 7.1 and 7.2), and a result is equal
to theirs bit for bit only when every intermediate step is rounded as they round it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Filter: TypeAlias = Literal["bilinear", "bicubic", "lanczos"]
Flavour: TypeAlias = Literal["pillow", "torchvision"]

T = TypeVar("T", bound=np.generic)
F64: TypeAlias = NDArray[np.float64]

PILLOW_BITS = 22


class Axis(NamedTuple):
    """One axis of a resampling from ``source`` to ``len(lo)`` pixels.

    Output pixel i is ``Σ_j input[lo[i] + j] · weights[i, j]``, j < ``taps[i]``, in fixed point with ``shift``
    fraction bits. ``weights`` is int32[n, most taps], zero past ``taps``; ``lo`` and ``taps`` are int64[n] and
    ``lo[i] + taps[i] <= source``. Both ``lo`` and ``lo + taps`` never decrease. ``digits`` is int32[n, 3 · groups of
    four taps], the same weights as bytes (``_digits``).
    """

    source: int
    lo: NDArray[np.int64]
    taps: NDArray[np.int64]
    weights: NDArray[np.int32]
    shift: int
    digits: NDArray[np.int32]


def _bilinear(x: F64) -> F64:
    x = np.abs(x)
    return np.where(x < 1.0, 1.0 - x, 0.0)


def _bicubic(x: F64) -> F64:
    a = -0.5
    x = np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _sinc(x: F64) -> F64:
    angle = np.where(x == 0.0, 1.0, x) * np.pi
    return np.where(x == 0.0, 1.0, np.sin(angle) / angle)


def _lanczos(x: F64) -> F64:
    inside = (x >= -3.0) & (x < 3.0)
    return np.where(inside, _sinc(x) * _sinc(x / 3), 0.0)


_FILTERS: dict[str, tuple[Callable[[F64], F64], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}


@lru_cache(maxsize=64)
def axis(source: int, target: int, kind: Filter, flavour: Flavour) -> Axis:
    """Weights that resample ``source`` pixels to ``target`` (both at least 1) with an antialiasing filter."""
    function, radius = _FILTERS[kind]
    scale = source / target
    stretch = max(scale, 1.0)
    support = radius * stretch
    center = (np.arange(target) + 0.5) * scale
    lo = np.maximum((center - support + 0.5).astype(np.int64), 0)
    count = np.minimum((center + support + 0.5).astype(np.int64), source) - lo
    taps = np.arange(int(count.max()))
    inside = taps < count[:, None]
    position = (taps + lo[:, None] - center[:, None] + 0.5) * (1.0 / stretch)
    weights = np.where(inside, function(position), 0.0)
    # One after the other, as the loops of both libraries do; NumPy's sum adds pairwise.
    total = np.cumsum(weights, axis=1)[:, -1:]
    weights = np.divide(weights, total, out=weights, where=total != 0.0)
    shift = PILLOW_BITS if flavour == "pillow" else _torchvision_bits(float(weights.max()))
    scaled = weights * (1 << shift)
    fixed = np.trunc(np.where(weights < 0, scaled - 0.5, scaled + 0.5)).astype(np.int32)
    weights = frozen(np.ascontiguousarray(fixed))
    return Axis(source, frozen(lo), frozen(count), weights, shift, frozen(_digits(weights)))


def _digits(weights: NDArray[np.int32]) -> NDArray[np.int32]:
    """Weights in base 256 with digits from -128 to 127, the highest of three first, four taps to an int32.

    That holds what is less than 2^23 - 2^15; no filter here weighs a pixel by more than 1.2 · 2^22.
    """
    count, taps = weights.shape
    padded = np.zeros((count, -(-taps // 4), 4), np.int32)
    padded.reshape(count, -1)[:, :taps] = weights
    digits = np.empty((count, padded.shape[1], 3, 4), np.int8)
    for place in (2, 1, 0):
        digits[:, :, place] = padded.astype(np.int8)  # keeps the lowest byte
        padded = (padded - digits[:, :, place]) >> 8
    return digits.view(np.int32).reshape(count, -1)


def frozen(array: NDArray[T]) -> NDArray[T]:
    """A read-only view. Shared arrays must not change; and a kernel is compiled anew for a writable argument where it
    knows a read-only one, so all inputs of kernels are read-only.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def _torchvision_bits(largest: float) -> int:
    """The most fraction bits with which the largest weight still fits into int16, at most 22."""
    bits = 0
    while bits < PILLOW_BITS and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    return bits


@lru_cache(maxsize=1)
def _pillow_picks_order() -> bool:
    import PIL

    return int(PIL.__version__.split(".")[0]) >= 13


def vertical_first(height: int, width: int, target_height: int, target_width: int, flavour: Flavour) -> bool:
    """Whether the height is resampled before the width; the uint8 image in between makes the order visible.

    Pillow from 13 on starts with the axis that shrinks the image more; the rule is that of the installed Pillow.
    """
    if flavour == "torchvision" or not _pillow_picks_order():
        return False
    shrink = height - target_height
    return shrink > 0 and shrink > 2 * (width - target_width)
