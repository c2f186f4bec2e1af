"""The audio kernels: resampling, and power spectra to mel bands.

Import this module through ``smg.vision.jit`` only (it loads Numba). Kernels allocate nothing and make a range of their
output, so that callers can split the work over threads.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smg.vision.jit import kernel

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]


@kernel
def resample_range(samples: F32, old: int, new: int, first: I64, weights: F32, out: F32, start: int, end: int) -> None:
    """Outputs ``start`` to ``end`` of ``smg.vision.audio.resample``."""
    count, taps = samples.shape[0], weights.shape[1]
    for i in range(start, end):
        phase = i % new
        origin = i // new * old + first[phase]
        total = np.float32(0)
        for tap in range(max(0, -origin), min(taps, count - origin)):
            total += samples[origin + tap] * weights[phase, tap]
        out[i] = total


@kernel
def bands_range(power: F64, first: I64, last: I64, weights: F64, out: F64, start: int, end: int) -> None:
    """Frames ``start`` to ``end`` of mel bands: ``out[frame, band]`` is a sum over the bins that the band reaches."""
    for frame in range(start, end):
        for band in range(first.shape[0]):
            total = 0.0
            for bin in range(first[band], last[band]):
                total += power[frame, bin] * weights[band, bin]
            out[frame, band] = total


def compile_all() -> None:
    """Compile every kernel for the types it is called with, or load it from the cache."""
    one = np.zeros(1, np.int64)
    weights: Any = np.zeros((1, 1), np.float32)
    weights.flags.writeable = False
    resample_range(np.zeros(4, np.float32), 1, 1, one, weights, np.zeros(4, np.float32), 0, 1)
    power = np.zeros((1, 1))
    bands_range(power, one, one, np.zeros((1, 1)), np.zeros((1, 1)), 0, 1)
