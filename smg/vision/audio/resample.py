"""Change of the sampling rate as torchaudio's default does it (spec multimodal 9).

``sinc_interp_hann`` with a width of 6 and a roll-off of 0.99: each output sample is a sum over the neighbourhood of its
place, with weights that only depend on its phase.
"""

import math
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smg.vision import jit
from smg.vision.pool import Split, serial

F32: TypeAlias = NDArray[np.float32]

_WIDTH = 6
_ROLLOFF = 0.99
# Outputs per piece of the plain path, whose intermediate array holds the neighbourhoods of all of them.
_PIECE = 1 << 13
# Fewer outputs are not worth a second thread.
_SPLIT_FROM = 1 << 16


class Phases(NamedTuple):
    """Output ``i`` is a sum over inputs from ``i // new * old + first[i % new]`` on.

    ``weights`` float32[new, taps] are those of each phase, ``first`` int64[new] may be negative.
    """

    old: int
    new: int
    first: NDArray[np.int64]
    weights: F32


# Rates without a common divisor have thousands of phases, 18 MB at the worst: few pairs are kept.
@lru_cache(maxsize=4)
def phases(source: int, target: int) -> Phases:
    """The weights for a pair of rates, computed in float64 and rounded once, as torchaudio does.

    torchaudio keeps a row as long as the distance of two outputs of a phase; only what the window leaves is kept here.
    """
    common = math.gcd(source, target)
    old, new = source // common, target // common
    base = min(old, new) * _ROLLOFF
    phase = np.arange(new, dtype=np.float64)[:, None] / new
    first = np.floor(old * (phase - _WIDTH / base)).astype(np.int64)
    place = (first + np.arange(math.ceil(2 * _WIDTH * old / base) + 2)) / old
    times = (place - phase) * base
    weights = np.sinc(times) * np.cos(times * math.pi / _WIDTH / 2) ** 2 * (base / old)
    weights[np.abs(times) >= _WIDTH] = 0
    rounded = weights.astype(np.float32)
    rounded.flags.writeable = False
    return Phases(old, new, first[:, 0], rounded)


def resample(samples: F32, source: int, target: int, split: Split = serial) -> F32:
    """``samples`` float32[n] at ``source`` Hz as float32[ceil(n·target/source)] at ``target`` Hz.

    Outside of the recording there is silence.
    """
    if source == target:
        return samples
    found = phases(source, target)
    count = -(-len(samples) * found.new // found.old)
    out = np.empty(count, np.float32)
    kernels = jit.audio_kernels()
    samples = np.ascontiguousarray(samples)

    def work(start: int, end: int) -> None:
        if kernels is not None:
            kernels.resample_range(samples, *found, out, start, end)
            return
        for at in range(start, end, _PIECE):
            _plain(samples, found, out, at, min(at + _PIECE, end))

    (split if count > _SPLIT_FROM else serial)(count, work)
    return out


def _plain(samples: F32, found: Phases, out: F32, start: int, end: int) -> None:
    """The same in NumPy, for outputs ``start`` to ``end``."""
    numbers = np.arange(start, end)
    phase = numbers % found.new
    origins = numbers // found.new * found.old + found.first[phase]
    places = origins[:, None] + np.arange(found.weights.shape[1])
    inside = (places >= 0) & (places < len(samples))
    taken = np.where(inside, samples[places.clip(0, len(samples) - 1)], np.float32(0))
    out[start:end] = np.einsum("ij,ij->i", taken, found.weights[phase])
