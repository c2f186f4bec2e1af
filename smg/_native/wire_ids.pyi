"""Protobuf writer of a prompt's ids: a message with one packed field in it (spec engine-contract 3)."""

from collections.abc import Sequence

def with_ids(message: bytes, ids: Sequence[int], outer: int, inner: int) -> bytes:
    """Return the serialized ``message`` with one more field ``outer``: a message that has ``ids`` in ``inner``.

    ``inner`` is a packed repeated uint32. An array of unsigned ints is read without the GIL.

    Raises ValueError for an id that is no uint32 and for field numbers outside 1…15, TypeError for what is no int.
    """
