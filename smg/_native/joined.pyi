"""Concatenation of large buffers without the GIL."""

from typing import Any

def join(parts: list[Any]) -> bytes:
    """Bytes of all ``parts``, contiguous buffers, in order. Raises TypeError, BufferError or MemoryError."""
