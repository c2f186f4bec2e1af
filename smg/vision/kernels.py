"""The resampling kernels: two passes in fixed point with a uint8 image in between (spec multimodal 7.1, 7.2).

Import this module through ``smg.vision.jit`` only (it loads Numba). Every kernel makes rows ``[y0, y1)`` of its output,
so that callers can split an image over threads, and none allocates: ``smg.vision.resize`` owns the scratch.

The horizontal pass would need a gather per tap on interleaved RGB rows. Instead, 64 rows at a time are transposed
(``columns``), so that the 64 values of one column lie side by side: then a tap is one multiply-add over 64 contiguous
bytes in both passes; with byte dot products four taps are one instruction (``vectors.weigh``).

Arrays: ``source`` uint8[H, 3·W] interleaved rows; ``columns`` uint8[3·W, 64]; ``staged`` uint8[3, width, 64];
``planes`` uint8[3, height, width]. An axis is given by ``lo`` int64[n] (first tap), ``count`` int64[n] (taps),
``weights`` int32[n, …] as ``vectors.weigh`` takes them (``terms``) and ``shift`` (fraction bits).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smg.vision.filters import Axis, frozen
from smg.vision.jit import kernel
from smg.vision.vectors import DOTS, LANES, SQUARE, move, transpose, weigh

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

BLOCK = LANES  # rows per transposed block
STRIP = 32  # output rows made from one piece of the intermediate image, so that it stays in the second-level cache


def terms(axis: Axis) -> tuple[I64, I64, I32, int]:
    """An axis as the kernels take it: ``lo``, ``count``, ``weights``, ``shift``."""
    return axis.lo, axis.taps, axis.digits if DOTS else axis.weights, axis.shift


@kernel
def _turn(source: U8, rows: int, columns: U8) -> None:
    """Transpose the first ``rows`` rows of ``source`` into ``columns``; lanes past ``rows`` stay undefined."""
    width = source.shape[1]
    origin = source.ctypes.data
    target = columns.ctypes.data
    squares = width // SQUARE * SQUARE
    groups = rows // SQUARE * SQUARE
    for x in range(0, squares, SQUARE):
        for r in range(0, groups, SQUARE):
            transpose(origin + r * width + x, width, target + x * BLOCK + r, BLOCK)
    for r in range(groups):
        for x in range(squares, width):
            columns[x, r] = source[r, x]
    for r in range(groups, rows):
        for x in range(width):
            columns[x, r] = source[r, x]


@kernel
def _turn_back(staged: U8, rows: int, planes: U8, y: int) -> None:
    """Transpose ``rows`` lanes of ``staged`` into rows ``y`` and on of ``planes``."""
    height, width = planes.shape[1], planes.shape[2]
    squares = width // SQUARE * SQUARE
    groups = rows // SQUARE * SQUARE
    for c in range(3):
        origin = staged.ctypes.data + c * width * BLOCK
        target = planes.ctypes.data + (c * height + y) * width
        for r in range(0, groups, SQUARE):
            for x in range(0, squares, SQUARE):
                transpose(origin + x * BLOCK + r, BLOCK, target + r * width + x, width)
        for r in range(groups):
            for x in range(squares, width):
                planes[c, y + r, x] = staged[c, x, r]
        for r in range(groups, rows):
            for x in range(width):
                planes[c, y + r, x] = staged[c, x, r]


@kernel
def _across(columns: U8, lo: I64, count: I64, weights: I32, shift: int, staged: U8) -> None:
    """Horizontal pass over one transposed block."""
    source, taps, target = columns.ctypes.data, weights.ctypes.data, staged.ctypes.data
    width, row = lo.shape[0], weights.shape[1] * 4
    for x in range(width):
        for c in range(3):
            origin = source + (lo[x] * 3 + c) * BLOCK
            weigh(origin, 3 * BLOCK, taps + x * row, count[x], shift, target + (c * width + x) * BLOCK)


@kernel
def _down(source: int, stride: int, width: int, weights: int, taps: int, shift: int, target: int) -> None:
    """Vertical pass for one output row of ``width`` >= 64 bytes; the last 64 overlap their predecessors."""
    for x in range(0, width - LANES + 1, LANES):
        weigh(source + x, stride, weights, taps, shift, target + x)
    if width % LANES:
        x = width - LANES
        weigh(source + x, stride, weights, taps, shift, target + x)


@kernel
def split_rows(source: U8, planes: U8, y0: int, y1: int) -> None:
    """Interleaved rows to planes, nothing resampled."""
    for y in range(y0, y1):
        for c in range(3):
            for x in range(planes.shape[2]):
                planes[c, y, x] = source[y, 3 * x + c]


@kernel
def across_rows(
    source: U8,
    planes: U8,
    y0: int,
    y1: int,
    lo: I64,
    count: I64,
    weights: I32,
    shift: int,
    columns: U8,
    staged: U8,
) -> None:
    """Resample the width only."""
    for y in range(y0, y1, BLOCK):
        rows = min(BLOCK, y1 - y)
        _turn(source[y:], rows, columns)
        _across(columns, lo, count, weights, shift, staged)
        _turn_back(staged, rows, planes, y)


@kernel
def down_rows(
    source: U8, planes: U8, y0: int, y1: int, lo: I64, count: I64, weights: I32, shift: int, line: U8
) -> None:
    """Resample the height only. ``line`` uint8[1, 3·W] holds one finished row before its channels are parted."""
    stride = source.shape[1]
    row = weights.shape[1] * 4
    for y in range(y0, y1):
        origin = source.ctypes.data + lo[y] * stride
        _down(origin, stride, stride, weights.ctypes.data + y * row, count[y], shift, line.ctypes.data)
        for c in range(3):
            for x in range(planes.shape[2]):
                planes[c, y, x] = line[0, 3 * x + c]


@kernel
def across_then_down(
    source: U8,
    planes: U8,
    y0: int,
    y1: int,
    xlo: I64,
    xcount: I64,
    xweights: I32,
    xshift: int,
    ylo: I64,
    ycount: I64,
    yweights: I32,
    yshift: int,
    columns: U8,
    staged: U8,
    middle: U8,
) -> None:
    """Resample width, then height. ``middle`` uint8[3, rows, width] is a sliding window of the intermediate image.

    The window must hold the rows of one strip (``STRIP`` output rows) plus one block.
    """
    height, width = source.shape[0], planes.shape[2]
    row = yweights.shape[1] * 4
    plane = middle.shape[1] * width
    first = filled = ylo[y0]
    for strip in range(y0, y1, STRIP):
        end = min(strip + STRIP, y1)
        keep = ylo[strip]
        if keep > first:
            for c in range(3):
                for y in range(keep, filled):
                    middle[c, y - keep] = middle[c, y - first]
            first = keep
            filled = max(filled, keep)
        need = ylo[end - 1] + ycount[end - 1]
        while filled < need:
            rows = min(BLOCK, height - filled)
            _turn(source[filled:], rows, columns)
            _across(columns, xlo, xcount, xweights, xshift, staged)
            _turn_back(staged, rows, middle, filled - first)
            filled += rows
        for c in range(3):
            for y in range(strip, end):
                origin = middle.ctypes.data + c * plane + (ylo[y] - first) * width
                target = planes.ctypes.data + (c * planes.shape[1] + y) * width
                _down(origin, width, width, yweights.ctypes.data + y * row, ycount[y], yshift, target)


@kernel
def down_then_across(
    source: U8,
    planes: U8,
    y0: int,
    y1: int,
    xlo: I64,
    xcount: I64,
    xweights: I32,
    xshift: int,
    ylo: I64,
    ycount: I64,
    yweights: I32,
    yshift: int,
    columns: U8,
    staged: U8,
    middle: U8,
) -> None:
    """Resample height, then width. ``middle`` uint8[64, 3·W] holds one block of full-width rows."""
    stride = source.shape[1]
    row = yweights.shape[1] * 4
    for block in range(y0, y1, BLOCK):
        rows = min(BLOCK, y1 - block)
        for r in range(rows):
            y = block + r
            origin = source.ctypes.data + ylo[y] * stride
            target = middle.ctypes.data + r * stride
            _down(origin, stride, stride, yweights.ctypes.data + y * row, ycount[y], yshift, target)
        _turn(middle, rows, columns)
        _across(columns, xlo, xcount, xweights, xshift, staged)
        _turn_back(staged, rows, planes, block)


@kernel
def window_rows(
    planes: U8, table: NDArray[Any], out: NDArray[Any], top: int, left: int, width: int, y0: int, y1: int
) -> None:
    """Rows of ``smg.vision.layouts.window``."""
    for c in range(3):
        for y in range(y0, y1):
            for x in range(width):
                out[c, y, x] = table[c, planes[c, top + y, left + x]]


@kernel
def patch_blocks(
    planes: U8,
    table: NDArray[Any],
    out: NDArray[Any],
    patch: int,
    merge: int,
    repeat: int,
    b0: int,
    b1: int,
    lines: NDArray[Any],
) -> None:
    """Rows of squares of ``smg.vision.layouts.patches``.

    ``lines`` [patch, W] holds the normalised rows that one row of patches is cut from: looking values up runs along
    whole rows, cutting moves ``patch`` values at a time, which must be at least 16 bytes.
    """
    width = planes.shape[2]
    across = width // (patch * merge)
    size = out.itemsize
    chunk, stride = patch * size, width * size
    area = patch * chunk
    origin, source = np.int64(out.ctypes.data), np.int64(lines.ctypes.data)
    for b in range(b0, b1):
        for i in range(merge):
            for c in range(3):
                top = (b * merge + i) * patch
                for y in range(patch):
                    for x in range(width):
                        lines[y, x] = table[c, planes[c, top + y, x]]
                for a in range(across):
                    for j in range(merge):
                        row = ((b * across + a) * merge + i) * merge + j
                        target = origin + (row * 3 + c) * repeat * area
                        start = source + (a * merge + j) * chunk
                        for _ in range(repeat):
                            for y in range(patch):
                                move(target, start + y * stride, chunk)
                                target += chunk


def compile_all() -> None:
    """Compile every kernel for the types it is called with, or load it from the cache."""
    lo, taps, weights = np.zeros(64, np.int64), np.ones(64, np.int64), np.zeros((64, 3), np.int32)
    axis = (frozen(lo), frozen(taps), frozen(weights), 22)
    source = frozen(np.zeros((64, 64 * 3), np.uint8))
    planes = np.zeros((3, 64, 64), np.uint8)
    block = (np.empty((64 * 3, BLOCK), np.uint8), np.empty((3, 64, BLOCK), np.uint8))
    split_rows(source, planes, 0, 1)
    across_rows(source, planes, 0, 1, *axis, *block)
    down_rows(source, planes, 0, 1, *axis, np.empty((1, 64 * 3), np.uint8))
    across_then_down(source, planes, 0, 1, *axis, *axis, *block, np.empty((3, 2 * BLOCK, 64), np.uint8))
    down_then_across(source, planes, 0, 1, *axis, *axis, *block, np.empty((BLOCK, 64 * 3), np.uint8))
    for kind in (np.float32, np.uint16):
        table = frozen(np.zeros((3, 256), kind))
        window_rows(frozen(planes), table, np.empty((3, 64, 64), kind), 0, 0, 64, 0, 1)
        patch_blocks(frozen(planes), table, np.empty((64, 3 * 64), kind), 8, 1, 1, 0, 1, np.empty((8, 64), kind))
