"""Recordings to samples (spec multimodal 9)."""

import numpy as np
import pytest
from recordings import contained, encoded, tone

from smg.core.errors import GatewayError
from smg.vision.audio.decode import AudioLimits, decode_audio

CHORD = tone(1.0)


def refused(data, **limits):
    with pytest.raises(GatewayError) as caught:
        decode_audio(data, AudioLimits(**limits))
    assert caught.value.status == 400
    return caught.value.code


@pytest.mark.parametrize(("kind", "subtype"), [("WAV", "FLOAT"), ("WAV", "PCM_16"), ("FLAC", "PCM_24"), ("AIFF", None)])
def test_lossless_files_give_their_samples(kind, subtype):
    clip = decode_audio(encoded(CHORD, kind=kind, subtype=subtype))
    assert (clip.rate, clip.samples.dtype, clip.samples.shape) == (16_000, np.float32, CHORD.shape)
    step = 0 if subtype == "FLOAT" else 2**-23 if subtype == "PCM_24" else 2**-15
    np.testing.assert_allclose(clip.samples, CHORD, rtol=0, atol=step)


@pytest.mark.parametrize("kind", ["MP3", "OGG"])
def test_lossy_files_give_about_their_samples(kind):
    clip = decode_audio(encoded(CHORD, kind=kind))
    assert clip.rate == 16_000
    assert abs(clip.seconds - 1.0) < 0.2
    assert 0.1 < np.abs(clip.samples).max() < 1.5


@pytest.mark.parametrize(("container", "codec", "rate"), [("mp4", "aac", 16_000), ("webm", "libopus", 48_000)])
def test_what_libsndfile_does_not_know_is_left_to_ffmpeg(container, codec, rate):
    clip = decode_audio(contained(tone(1.0, rate), rate, container, codec))
    assert clip.rate == rate
    assert abs(clip.seconds - 1.0) < 0.2
    assert 0.1 < np.abs(clip.samples).max() < 1.5


def test_channels_are_averaged():
    left, right = tone(0.2, seed=1), tone(0.2, seed=2)
    clip = decode_audio(encoded(np.stack([left, right], axis=1), subtype="FLOAT"))
    np.testing.assert_allclose(clip.samples, (left + right) / 2, rtol=0, atol=1e-7)


def test_a_long_recording_is_refused_before_it_is_held():
    assert refused(encoded(CHORD), max_secs=0.5) == "media_too_large"
    assert refused(contained(CHORD, 16_000, "mp4", "aac"), max_secs=0.5) == "media_too_large"
    assert refused(encoded(CHORD), max_samples=10_000) == "media_too_large"


def test_decoding_has_a_deadline():
    assert refused(encoded(tone(20.0)), timeout_secs=1e-9) == "media_timeout"


PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n"


@pytest.mark.parametrize(
    "data",
    [
        b"not audio at all",
        b"RIFF\x00\x00\x00\x00WAVE",
        PLAYLIST,
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        encoded(np.zeros(0, np.float32)),
        encoded(np.full(100, np.nan, np.float32), subtype="FLOAT"),
        bytes(range(256)) * 20,
    ],
    ids=["text", "empty RIFF", "playlist", "list of files", "no samples", "not a number", "noise"],
)
def test_what_is_no_recording_is_the_client_s_error(data):
    assert refused(data) == "media_undecodable"


def test_damage_is_never_more_than_an_error():
    whole = encoded(CHORD, kind="FLAC")
    rng = np.random.default_rng(3)
    for _ in range(20):
        broken = bytearray(whole)
        for at in rng.integers(0, len(broken), 12):
            broken[at] ^= int(rng.integers(1, 256))
        try:
            decode_audio(bytes(broken[: rng.integers(10, len(broken))]))
        except GatewayError as error:
            assert error.status == 400
