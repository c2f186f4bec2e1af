"""Small videos as files."""

import io
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
