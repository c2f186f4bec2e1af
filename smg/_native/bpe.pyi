"""Byte-level BPE without the GIL: words, remembered words, merges (DESIGN 5)."""

class ByteBpe:
    """Encodes texts with one vocabulary; may be used from several threads at once, each with a memory of words.

    ``bytes_to_ids`` are the ids of the 256 single bytes. ``merges`` are native int32 triples (left id, right id, id of
    both) in the order of their ranks. ``words``, if given, maps words to ids that are taken without merging.
    ``classes``, ``kind`` and ``digits`` are those of ``word_split.words``. Raises ValueError for tables of the wrong
    size.
    """

    def __init__(
        self,
        bytes_to_ids: list[int],
        merges: bytes,
        words: dict[bytes, int] | None,
        classes: bytes,
        kind: int,
        digits: int,
    ) -> None: ...
    def flags(self, data: bytes) -> int:
        """Return the flags (CharFlag) of all characters of valid UTF-8 together."""

    def encode(self, data: bytes, marks: list[tuple[int, int, int]]) -> list[int]:
        """Return the ids of ``data``, which is valid UTF-8.

        ``marks`` are the added tokens in it as (start, end, id) in bytes, ascending; an id of -1 leaves none behind.
        Raises ValueError for marks that overlap or lie outside.
        """
