"""Encoded media are in memory once: bytes are counted from where they arrive to where they are decoded."""

import base64
import io
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
import soundfile

from smg.core.request import MediaPart
from smg.vision.audio.decode import decode_audio
from smg.vision.fetch import Fetcher, Wanted
from smg.vision.reader import reader
from smg.vision.sources import MediaPolicy

MB = 1 << 20
SIZE = 16 * MB
# What is allowed beside the bytes themselves: objects, and one piece on its way.
LITTLE = MB


@pytest.fixture
def peak():
    """Bytes that were allocated at most since the last call."""
    tracemalloc.start()

    def peak() -> int:
        most = tracemalloc.get_traced_memory()[1] - before[0]
        before[0] = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        return most

    before = [0]
    peak()
    yield peak
    tracemalloc.stop()


class Download:
    """An answer of ``size`` bytes whose length is not told."""

    status, headers, content_length = 200, {}, None

    def __init__(self, size: int) -> None:
        self.content = self
        self._size = size

    async def iter_chunked(self, piece: int):
        for _ in range(self._size // piece):
            yield bytes(piece)


async def test_a_download_grows_where_it_is(peak: Callable[[], int]):
    fetcher = Fetcher(MediaPolicy())
    peak()
    data = await fetcher._body(Download(SIZE), "video", None)
    assert len(data) == SIZE
    # It grows by an eighth at a time.
    assert peak() < SIZE * 9 / 8 + LITTLE
    await fetcher.close()


async def test_a_data_url_is_decoded_from_where_it_stands(peak):
    fetcher = Fetcher(MediaPolicy())
    url = "data:video/mp4;base64," + base64.b64encode(bytes(SIZE)).decode()
    peak()
    assert len(await fetcher.fetch(MediaPart("video", url=url))) == SIZE
    assert peak() < SIZE + LITTLE
    await fetcher.close()


async def test_equal_data_urls_are_decoded_once_and_not_copied_to_be_compared(peak):
    fetcher = Fetcher(MediaPolicy())
    first, other = ("data:video/mp4;base64," + base64.b64encode(bytes([one]) * SIZE).decode() for one in (0, 1))
    again = first[:100] + first[100:]
    peak()
    wanted = [Wanted(MediaPart("video", url=url)) for url in (first, again)]
    one, two = await fetcher.fetch_all(wanted)
    assert one is two
    assert peak() < SIZE + LITTLE
    one, two = await fetcher.fetch_all([wanted[0], Wanted(MediaPart("video", url=other))])
    assert (one[0], two[0]) == (0, 1)
    await fetcher.close()


async def test_a_part_of_an_upload_stays_there(peak):
    fetcher, upload = Fetcher(MediaPolicy()), memoryview(bytes(SIZE))
    peak()
    assert await fetcher.fetch(MediaPart("audio", data=upload)) is upload
    assert peak() < LITTLE
    await fetcher.close()


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_a_recording_is_read_from_where_it_lies(peak, kind):
    written, samples = io.BytesIO(), (np.arange(4 * MB) % 7000).astype(np.int16)
    soundfile.write(written, samples, 16_000, format=kind)
    encoded = written.getvalue()
    peak()
    clip = decode_audio(memoryview(encoded)[:])
    # Beside the samples, a byte for each that tells whether it is a number.
    assert peak() < clip.samples.nbytes * 11 / 8 + LITTLE
    np.testing.assert_array_equal(clip.samples, decode_audio(encoded).samples)
    np.testing.assert_array_equal(clip.samples, samples / np.float32(32768))


class TestReader:
    def test_a_view_reads_as_its_bytes_do(self):
        data = bytes(range(100))
        view, plain = reader(memoryview(data)), io.BytesIO(data)
        for step in (
            lambda file: file.read(7),
            lambda file: file.tell(),
            lambda file: file.seek(-3, io.SEEK_END),
            lambda file: file.read(),
            lambda file: file.read(1),
            lambda file: file.seek(200),
            lambda file: file.read(5),
            lambda file: file.seek(10),
            lambda file: file.seek(-4, io.SEEK_CUR),
            lambda file: file.readinto(bytearray(20)),
            lambda file: (file.readable(), file.seekable()),
        ):
            assert step(view) == step(plain)

    def test_there_is_nothing_before_the_beginning(self):
        with pytest.raises(ValueError, match="beginning"):
            reader(memoryview(b"abc")).seek(-1, io.SEEK_CUR)
