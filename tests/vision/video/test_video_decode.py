"""Videos to the frames that were asked for (spec multimodal 10)."""

from fractions import Fraction

import numpy as np
import pytest
from clips import encoded, shown, turned
from video_cases import moving

from smg.core.errors import GatewayError
from smg.vision.video.decode import VideoInfo, VideoLimits, read_video

FRAMES = moving(20, 48, 64)


def read(data, indices=None, **limits):
    """What the video is said to be, and the frames of ``indices`` (all)."""
    infos, taken = [], {}

    def choose(info):
        infos.append(info)
        taken.clear()
        return list(range(info.frames)) if indices is None else indices(info)

    read_video(data, choose, lambda number, pixels: taken.__setitem__(number, pixels.copy()), VideoLimits(**limits))
    assert list(taken) == list(range(len(taken)))
    return infos, list(taken.values())


def refused(data, **limits):
    with pytest.raises(GatewayError) as caught:
        read(data, **limits)
    assert caught.value.status == 400
    return caught.value.code


def test_all_frames_as_they_were_encoded():
    [info], taken = read(encoded(FRAMES))
    assert info == VideoInfo(20, 48, 64, 10.0)
    np.testing.assert_array_equal(np.stack(taken), FRAMES)


def test_only_what_is_asked_for_and_as_often():
    _, taken = read(encoded(FRAMES), lambda info: [0, 3, 3, 19])
    np.testing.assert_array_equal(np.stack(taken), FRAMES[[0, 3, 3, 19]])


@pytest.mark.parametrize(
    ("container", "codec"), [("webm", "libvpx"), ("matroska", "libx264"), ("avi", "mpeg4"), ("mpegts", "libx264")]
)
def test_containers_that_do_not_tell_how_long_they_are(container, codec):
    infos, taken = read(encoded(FRAMES, 25, container, codec))
    assert [(info.frames, info.fps) for info in infos] == [(20, 25.0)]
    assert np.abs(np.stack(taken).astype(int) - FRAMES).mean() < 60


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_pictures_are_turned_as_the_container_says(degrees):
    [info], taken = read(turned(encoded(FRAMES), degrees))
    upright = np.rot90(FRAMES, -degrees // 90, axes=(1, 2))
    assert (info.height, info.width) == upright.shape[1:3]
    np.testing.assert_array_equal(np.stack(taken), upright)


@pytest.mark.parametrize(
    ("matrix", "clockwise"),
    [((-1, 0, 0, 1), 180), ((1, 0, 0, -1), 0), ((0, 1, 1, 0), 90), ((0, -1, -1, 0), 270)],
    ids=["left to right", "top to bottom", "along the diagonal", "along the other"],
)
def test_mirrors_are_turned_and_not_mirrored_as_opencv_does(matrix, clockwise):
    # What OpenCV 5.0 makes of these very files; torchcodec turns by the same angle, and mirrors nothing either.
    [info], taken = read(shown(encoded(FRAMES), *matrix))
    expected = np.rot90(FRAMES, -clockwise // 90, axes=(1, 2))
    assert (info.height, info.width) == expected.shape[1:3]
    np.testing.assert_array_equal(np.stack(taken), expected)


def test_several_threads_give_the_same_frames():
    _, taken = read(encoded(FRAMES), threads=3)
    np.testing.assert_array_equal(np.stack(taken), FRAMES)


def test_rates_are_fractions():
    [info], _ = read(encoded(FRAMES, Fraction(30_000, 1001)))
    assert info.fps == pytest.approx(29.97003)


def test_a_video_that_is_shorter_than_it_says_is_chosen_from_again():
    told = iter([[0, 25], [0, 19]])
    infos, taken = read(encoded(FRAMES), lambda info: next(told))
    assert [info.frames for info in infos] == [20, 20]
    np.testing.assert_array_equal(np.stack(taken), FRAMES[[0, 19]])


def test_frames_have_a_limit_of_bytes_pixels_and_time():
    data = encoded(FRAMES)
    assert refused(data, max_bytes=20 * 48 * 64 * 3 - 1) == "media_too_large"
    assert len(read(data, max_bytes=20 * 48 * 64 * 3)[1]) == 20
    assert refused(data, max_pixels=48 * 64 - 1) == "media_too_large"
    assert refused(data, timeout_secs=1e-9) == "media_timeout"


@pytest.mark.parametrize(
    "data",
    [
        b"no video",
        b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile /etc/passwd\n",
        encoded(FRAMES)[:500],
    ],
    ids=["text", "playlist", "list of files", "cut off"],
)
def test_what_is_no_video_is_the_client_s_error(data):
    assert refused(data) == "media_undecodable"


def test_damage_is_never_more_than_an_error():
    whole = encoded(FRAMES)
    rng = np.random.default_rng(5)
    for _ in range(15):
        broken = bytearray(whole)
        for at in rng.integers(0, len(broken), 10):
            broken[at] ^= int(rng.integers(1, 256))
        try:
            read(bytes(broken[: rng.integers(10, len(broken))]), lambda info: [0], max_pixels=1 << 20)
        except GatewayError as error:
            assert error.status == 400
