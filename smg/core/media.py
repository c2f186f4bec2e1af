"""Media as engines take them: tensors, where in the prompt they belong, and what identifies each item.

Neutral between engine contracts (spec multimodal 1 and 12): an adapter takes from it what its messages have room for.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

# An item's encoded bytes; a view is part of a client's upload.
Encoded: TypeAlias = bytes | memoryview


class Tensor(msgspec.Struct, frozen=True):
    """A tensor as bytes: little-endian, row-major, contiguous.

    ``dtype`` is float32, bfloat16, float16, int64, uint32 or bool. ``pieces`` are buffers whose bytes in order are the
    tensor's, so that a batch of images needs no copy of its own.
    """

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return sum(memoryview(piece).nbytes for piece in self.pieces)

    def tobytes(self) -> bytes:
        """One copy of the bytes; for small tensors."""
        return b"".join(self.pieces)


class MediaItem(msgspec.Struct, frozen=True):
    """One item of the request.

    ``digest`` is 64 hexadecimal digits that differ wherever bytes or processing differ. ``encoded`` are the client's
    bytes. ``structural`` is the (offset, length) of all prompt tokens that belong to the item, ``patches`` the ranges
    its features are written over. ``tensor`` (None: no engine of the model takes tensors) and ``side`` are its own
    parts of the request's; a side tensor keeps its first dimension, of size 1 where it is not ``flat``. ``token_id`` is
    the token features are written over, where it is not that of all items.
    """

    modality: str
    digest: str
    encoded: Encoded
    structural: tuple[int, int]
    patches: Sequence[tuple[int, int]]
    tensor: Tensor | None
    side: dict[str, Tensor]
    token_id: int | None = None


class MediaInputs(msgspec.Struct, frozen=True):
    """All media of one request in prompt order.

    Where they are of one modality:

    ``tensor`` joins the items': along its first dimension, with the row counts in the side tensor called ``sizes``;
    or, when ``sizes`` is empty, as one entry per item. A side tensor has one entry per item; those that ``flat`` names
    have one per row of ``tensor``. ``keep_on_cpu`` names side tensors that models read on the host. ``token_id`` is the
    token features are written over. ``anchored`` is the prompt with one placeholder per item, ``expanded`` the length
    of the prompt that it became. ``family`` names the model family that has made the tensors.

    Items of several modalities have tensors of their own only, and no ``tensor`` and ``side`` join them.
    """

    items: Sequence[MediaItem]
    tensor: Tensor | None
    side: dict[str, Tensor]
    sizes: str
    keep_on_cpu: tuple[str, ...]
    token_id: int
    anchored: Sequence[int]
    expanded: int
    family: str = ""
    flat: tuple[str, ...] = ()

    @property
    def modality(self) -> str:
        return self.items[0].modality
