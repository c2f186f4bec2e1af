"""Planes of bytes to normalised tensors: windows of an image, and patches in the order vision encoders read them."""

import numpy as np
from numpy.typing import NDArray

from smg.vision import jit
from smg.vision.filters import frozen
from smg.vision.pool import Split, serial

U8 = NDArray[np.uint8]
Any2 = NDArray[np.generic]

# Below this many output values, threads cost more than they save.
_SPLIT_FROM = 1_000_000
# The kernel moves whole vectors of this many bytes.
_LEAST_MOVE = 16


def _words(array: Any2) -> Any2:
    """Elements of two bytes as uint16: they are only moved, and Numba knows no float16."""
    return array.view(np.uint16) if array.itemsize == 2 else array


def window(planes: U8, table: Any2, out: Any2, top: int = 0, left: int = 0, split: Split = serial) -> None:
    """Normalise the window at (``top``, ``left``) of ``planes`` uint8[3, H, W] into ``out`` [3, h, w].

    ``table`` is [3, 256] of the type of ``out``. Where ``out`` reaches past the image it is not touched.
    """
    if not out.flags.c_contiguous:
        # A part of a padded batch: kernels are compiled for contiguous arrays only.
        whole = out.copy()
        window(planes, table, whole, top, left, split)
        out[:] = whole
        return
    height = min(out.shape[1], planes.shape[1] - top)
    width = min(out.shape[2], planes.shape[2] - left)
    kernels = jit.kernels()
    planes, table, out = frozen(planes), frozen(_words(table)), _words(out)

    def work(y0: int, y1: int) -> None:
        if kernels is not None:
            kernels.window_rows(planes, table, out, top, left, width, y0, y1)
            return
        for c in range(3):
            rows = planes[c, top + y0 : top + y1, left : left + width]
            out[c, y0:y1, :width] = table[c][rows]

    (split if out.size >= _SPLIT_FROM else serial)(height, work)


def patches(
    planes: U8, table: Any2, out: Any2, patch: int, merge: int = 1, repeat: int = 1, split: Split = serial
) -> None:
    """Normalise and cut ``planes`` uint8[3, H, W] into ``out`` [patches, 3 · repeat · patch · patch].

    H and W are multiples of ``patch · merge``. Patches come in squares of ``merge`` x ``merge`` (row by row inside a
    square, squares row by row); a patch is channel, time, row, column, and time is ``repeat`` copies of a still image.
    """
    height, width = planes.shape[1:]
    blocks = height // (patch * merge)
    kernels = jit.kernels()
    planes, table, out = frozen(planes), frozen(_words(table)), _words(out)

    def work(b0: int, b1: int) -> None:
        if kernels is not None and patch * out.itemsize >= _LEAST_MOVE:
            lines = np.empty((patch, width), out.dtype)
            kernels.patch_blocks(planes, table, out, patch, merge, repeat, b0, b1, lines)
            return
        across = width // (patch * merge)
        side = patch * merge
        values = np.stack([table[c][planes[c, b0 * side : b1 * side]] for c in range(3)])
        cut = values.reshape(3, b1 - b0, merge, patch, across, merge, patch).transpose(1, 4, 2, 5, 0, 3, 6)
        times = np.repeat(cut[:, :, :, :, :, None], repeat, axis=5)
        row = across * merge * merge
        out[b0 * row : b1 * row] = times.reshape((b1 - b0) * row, -1)

    (split if out.size >= _SPLIT_FROM else serial)(blocks, work)
