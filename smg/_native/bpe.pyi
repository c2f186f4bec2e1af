"""Byte-level BPE without the GIL: words, remembered words, merges (DESIGN 5)."""

from collections.abc import Sequence

class ByteBpe:
    """Encodes texts with one vocabulary; may be used from several threads at once, each with a memory of words.

    ``buffer`` holds the tables that ``bpe_tables.pack`` lays out; it is kept and read in place. Raises ValueError when
    it does not hold sound ones.
    """

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None: ...
    def tobytes(self) -> bytes:
        """Copy of the tables in their layout, to be written to a file."""

    def flags(self, data: bytes) -> int:
        """Return the flags (CharFlag) of all characters of valid UTF-8 together."""

    def encode(self, data: bytes, marks: list[tuple[int, int, int]]) -> Sequence[int]:
        """Return the ids of ``data``, which is valid UTF-8; many as an array (``id_list``).

        ``marks`` are the added tokens in it as (start, end, id) in bytes, ascending; an id of -1 leaves none behind.
        Raises ValueError for marks that overlap or lie outside.
        """
