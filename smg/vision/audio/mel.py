"""Spectra on the mel scale: Slaney's scale and norm, computed in float64 (spec multimodal 9)."""

import math
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smg.vision import jit
from smg.vision.pool import Split, serial

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
I64: TypeAlias = NDArray[np.int64]

# Slaney's scale is linear up to 1 kHz, which is mel 15, and logarithmic above.
_KNEE_HZ = 1000.0
_KNEE_MEL = 15.0
_STEP = math.log(6.4) / 27.0
# Frames whose spectra are held at a time, so that an hour of audio needs no more memory than a minute.
_FRAMES = 2048


def _mel(hertz: float) -> float:
    return hertz * 3 / 200 if hertz < _KNEE_HZ else _KNEE_MEL + math.log(hertz / _KNEE_HZ) / _STEP


@lru_cache(maxsize=8)
def filters(bands: int, size: int, rate: int) -> F64:
    """Triangular filters float64[bands, size // 2 + 1] from 0 Hz to half the rate, each of the area 2 in Hz."""
    mels = np.linspace(0.0, _mel(rate / 2), bands + 2)
    edges = np.where(mels < _KNEE_MEL, 200 * mels / 3, _KNEE_HZ * np.exp(_STEP * (mels - _KNEE_MEL)))
    bins = np.linspace(0, rate // 2, size // 2 + 1)
    rising = (bins[None, :] - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins[None, :]) / np.diff(edges)[1:, None]
    out: F64 = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    out.flags.writeable = False
    return out


@lru_cache(maxsize=8)
def _reach(bands: int, size: int, rate: int) -> tuple[F64, I64, I64]:
    """The filters, writeable for the kernels' sake, and for each the range of bins where it is not 0."""
    found = filters(bands, size, rate).copy()
    used = found > 0
    first = used.argmax(axis=1)
    last = np.where(used.any(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1), first)
    return found, first, last


@lru_cache(maxsize=8)
def _window(size: int) -> F64:
    """A periodic Hann window."""
    return np.hanning(size + 1)[:-1]


def spectrum(
    padded: F32,
    frames: int,
    size: int,
    hop: int,
    bands: int,
    rate: int,
    power: Literal["power", "magnitude"],
    split: Split = serial,
) -> F64:
    """Mel bands float64[frames, bands] of ``padded``, whose frame ``i`` begins at sample ``i · hop``.

    ``size`` is that of frame, window and transform. Spectra are rounded to complex64 on the way, as in the processors
    that this follows; of ``power`` the square of the magnitude is summed up, or itself, which is at least 1e-5.
    """
    out = np.empty((frames, bands))
    window = _window(size)
    weights, first, last = _reach(bands, size, rate)
    kernels = jit.audio_kernels()
    views = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]

    def work(start: int, end: int) -> None:
        for at in range(start, end, _FRAMES):
            until = min(at + _FRAMES, end)
            spectra = np.fft.rfft(views[at:until].astype(np.float64) * window).astype(np.complex64)
            values = np.abs(spectra, dtype=np.float64)
            values = values**2 if power == "power" else np.maximum(values, 1e-5)
            if kernels is not None:
                kernels.bands_range(values, first, last, weights, out[at:until], 0, until - at)
            else:
                np.matmul(values, weights.T, out=out[at:until])

    (split if frames > _FRAMES else serial)(frames, work)
    return out
