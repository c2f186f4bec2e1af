"""Tensors in messages over ZeroMQ: ``[dtype, shape, bytes]``, or the number of a frame (spec engine-contract 6.4)."""

import math
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from smg._native.joined import join
from smg.core.media import Tensor
from smg.engines.contract import unsupported

# The extension type of a tensor's bytes inside a payload.
RAW_VIEW = 3
# Tensors of fewer bytes are not worth a frame.
_FRAME_FROM = 256
_FLOATS = frozenset({"float32", "bfloat16", "float16"})


class Behind:
    """The frames that follow a payload, each the bytes of one tensor. Nothing large is copied."""

    def __init__(self) -> None:
        self.frames: list[Any] = []

    def put(self, value: Tensor, shape: Sequence[int] | None = None) -> list[Any]:
        """What stands for ``value`` in the payload; ``shape`` is another one of as many elements."""
        data: Any
        if value.nbytes < _FRAME_FROM:
            data = msgspec.msgpack.Ext(RAW_VIEW, value.tobytes())
        else:
            whole = value.pieces[0] if len(value.pieces) == 1 else join(list(value.pieces))
            self.frames.append(memoryview(whole).cast("B"))
            data = len(self.frames)
        return [value.dtype, list(value.shape if shape is None else shape), data]


def cast(value: Tensor, dtype: str) -> Tensor:
    """``value`` with floats of ``dtype``, rounded to the nearest; unchanged without floats, or without a ``dtype``.

    Raises:
        GatewayError: ``unsupported_parameter`` (400) for floats other than float32 that do not fit.
    """
    if value.dtype not in _FLOATS or dtype not in _FLOATS or value.dtype == dtype:
        return value
    if value.dtype != "float32":
        raise unsupported("messages", f"{value.dtype} features: it computes in {dtype}")
    # Nearly always vision has made them as the engine wants them.
    import numpy as np

    pieces = []
    for piece in value.pieces:
        values = np.frombuffer(piece, np.float32)
        if dtype == "float16":
            pieces.append(values.astype(np.float16))
        else:
            bits = values.view(np.uint32)
            pieces.append(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16))
    return Tensor(dtype, value.shape, tuple(pieces))


def cropped(value: Tensor, size: Tensor) -> Tensor:
    """``value`` [1, channels, H, W], filled up to the largest of a batch, as large as ``size`` (height, width) says."""
    height, width = counts(size)
    if value.shape[2:] == (height, width):
        return value
    # Nearly all requests have one image, or images of one size.
    import numpy as np

    bits = np.uint16 if value.dtype in ("bfloat16", "float16") else np.float32
    whole = np.frombuffer(value.pieces[0], bits).reshape(value.shape)
    return Tensor(value.dtype, (*value.shape[:2], height, width), (np.ascontiguousarray(whole[:, :, :height, :width]),))


def mask(patches: Sequence[tuple[int, int]], structural: tuple[int, int]) -> Tensor | None:
    """Which tokens of ``structural`` features are written over; None when all are."""
    offset, length = structural
    if sum(run for _, run in patches) == length:
        return None
    bits = bytearray(length)
    for start, run in patches:
        bits[start - offset : start - offset + run] = b"\x01" * run
    return Tensor("bool", (length,), (bytes(bits),))


def counts(value: Tensor) -> list[int]:
    """The numbers of a small tensor of integers."""
    code = {"int64": "q", "uint32": "I"}[value.dtype]
    return list(struct.unpack(f"<{math.prod(value.shape)}{code}", value.tobytes()))
