"""Small videos as files."""

import io
import struct
from fractions import Fraction

import av
import numpy as np


def encoded(frames: np.ndarray, fps: Fraction | int = 10, container: str = "mp4", codec: str = "libx264rgb") -> bytes:
    """``frames`` uint8[n, H, W, 3]; by default without loss."""
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        lossless = {"crf": "0"} if codec == "libx264rgb" else {}
        stream = file.add_stream(codec, rate=fps, options=lossless)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "rgb24" if codec == "libx264rgb" else "yuv420p"
        for frame in frames:
            for packet in stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")):
                file.mux(packet)
        for packet in stream.encode(None):
            file.mux(packet)
    return out.getvalue()


def turned(mp4: bytes, degrees: int) -> bytes:
    """``mp4`` with a display matrix that has players turn its pictures clockwise, as telephones write it."""
    a, b = {0: (1, 0), 90: (0, 1), 180: (-1, 0), 270: (0, -1)}[degrees]
    return shown(mp4, a, b, -b, a)


def shown(mp4: bytes, a: int, b: int, c: int, d: int) -> bytes:
    """``mp4`` with the display matrix of these numbers: its columns go along (a, b), its rows along (c, d)."""
    one = 1 << 16
    matrix = struct.pack(">9i", a * one, b * one, 0, c * one, d * one, 0, 0, 0, 1 << 30)
    # Of a track's header, version 0: flags, times, number, length, layer and volume stand before it.
    at = mp4.index(b"tkhd") + 4 + 40
    assert mp4[at - 40] == 0
    return mp4[:at] + matrix + mp4[at + len(matrix) :]
