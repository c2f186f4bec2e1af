"""Recordings that audio is tested with, the same on every machine."""

import io

import av
import numpy as np
import soundfile


def tone(seconds: float, rate: int = 16_000, seed: int = 1) -> np.ndarray:
    """A chord that glides, with some noise and a silent stretch, float32 in [-1, 1]."""
    count = round(seconds * rate)
    time = np.arange(count) / rate
    chord = sum(np.sin(2 * np.pi * hertz * time * (1 + time / 20)) for hertz in (220.0, 660.0, 1730.0))
    noise = np.random.default_rng(seed).standard_normal(count)
    quiet = np.where((time > seconds * 0.4) & (time < seconds * 0.5), 0.0, 1.0)
    return ((0.2 * chord + 0.05 * noise) * quiet).astype(np.float32)


def encoded(samples: np.ndarray, rate: int = 16_000, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """``samples`` [n] or [n, channels] as a file of one of libsndfile's formats."""
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    return out.getvalue()


def contained(samples: np.ndarray, rate: int, container: str, codec: str) -> bytes:
    """``samples`` float32[n] as the audio of a container that only FFmpeg knows."""
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(samples[None, :], format="flt", layout="mono")
        frame.rate = rate
        for packet in [*stream.encode(frame), *stream.encode(None)]:
            file.mux(packet)
    return out.getvalue()
