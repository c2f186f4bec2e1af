"""Recordings to one channel of samples (spec multimodal 9).

libsndfile reads WAV, FLAC, Ogg, MP3 and kin without the GIL. What it does not know (AAC in MP4, Opus in WebM) is read
by FFmpeg's libraries, inside the process as well, under a deadline.
"""

import io
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smg.core.errors import GatewayError
from smg.core.media import Encoded
from smg.vision.containers import Deadline, opened, undecodable
from smg.vision.reader import reader

F32: TypeAlias = NDArray[np.float32]

_BLOCK = 1 << 16
# Rates outside of these are damage or an attempt to make resampling expensive; studios record at up to 384 kHz.
_RATES = range(1_000, 384_001)
_CHANNELS = 64


class Clip(NamedTuple):
    """``samples`` float32 in [-1, 1], one channel, ``rate`` of them a second."""

    samples: F32
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


class AudioLimits(NamedTuple):
    """``max_secs`` of one recording, ``max_samples`` of one channel of it, and the time that decoding may take.

    Samples are bounded beside seconds because a second may have any number of them: 64 Mi are 256 MiB.
    """

    max_secs: float = 1200.0
    max_samples: int = 64 << 20
    timeout_secs: float = 30.0


def decode_audio(encoded: Encoded, limits: AudioLimits = AudioLimits()) -> Clip:  # noqa: B008 - immutable
    """Decode a recording, its channels averaged. CPU-bound.

    Raises:
        GatewayError: 400 ``media_undecodable``, ``media_too_large`` or ``media_timeout``.
    """
    deadline = Deadline(limits.timeout_secs, "audio")
    clip = _sndfile(encoded, limits, deadline)
    if clip is None:
        clip = _container(encoded, limits, deadline)
    if not len(clip.samples):
        raise undecodable("audio", "has no samples")
    if not np.isfinite(clip.samples).all():
        raise undecodable("audio", "has samples that are no numbers")
    return clip


def _sndfile(encoded: Encoded, limits: AudioLimits, deadline: Deadline) -> Clip | None:
    """By libsndfile; None when it can't read it, or is not there."""
    try:
        import soundfile
    except (ImportError, OSError):  # the second: the module, but not the library
        return None

    def blocks() -> Iterator[F32]:
        while len(block := file.read(_BLOCK, dtype="float32", always_2d=True)):
            yield _mixed(block)

    try:
        with soundfile.SoundFile(reader(encoded)) as file:
            _check(file.samplerate, file.channels)
            return Clip(_gathered(blocks(), file.samplerate, limits, deadline), file.samplerate)
    except (soundfile.SoundFileError, TypeError, ValueError):
        return None


def _container(encoded: Encoded, limits: AudioLimits, deadline: Deadline) -> Clip:
    """By FFmpeg's libraries, the first audio stream."""
    import av

    with opened(encoded, "audio") as container:
        if not container.streams.audio:
            raise undecodable("audio", "is not audio, or of an unknown format")
        stream = container.streams.audio[0]
        rate = int(stream.rate or 0)
        _check(rate, stream.channels)
        resampler = av.AudioResampler(format="fltp", rate=rate)

        def blocks() -> Iterator[F32]:
            for frame in container.decode(stream):
                for out in resampler.resample(frame):
                    yield _mixed(out.to_ndarray().T)
            for out in resampler.resample(None):
                yield _mixed(out.to_ndarray().T)

        return Clip(_gathered(blocks(), rate, limits, deadline), rate)


def _gathered(blocks: Iterator[F32], rate: int, limits: AudioLimits, deadline: Deadline) -> F32:
    # Grows in place: what may be 256 MiB is there once.
    samples, count = io.BytesIO(), 0
    for block in blocks:
        deadline.check()
        count += len(block)
        if count > limits.max_secs * rate:
            message = f"the audio is longer than {limits.max_secs:g} seconds"
            raise GatewayError("media_too_large", message)
        if count > limits.max_samples:
            raise GatewayError("media_too_large", f"the audio has more than {limits.max_samples} samples")
        samples.write(block.data)
    return np.frombuffer(samples.getbuffer(), np.float32) if count else np.zeros(0, np.float32)


def _mixed(block: NDArray[Any]) -> F32:
    """The mean over channels of float32[samples, channels]."""
    return np.ascontiguousarray(block[:, 0] if block.shape[1] == 1 else block.mean(axis=1, dtype=np.float32))


def _check(rate: int, channels: int) -> None:
    if rate not in _RATES or not 0 < channels <= _CHANNELS:
        raise undecodable("audio", f"has {channels} channels at {rate} Hz")
