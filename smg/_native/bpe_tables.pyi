"""The tables of a byte-level BPE in one piece of memory, which workers can share and files can hold."""

def pack(
    bytes_to_ids: list[int],
    merges: bytes,
    words: dict[bytes, int] | None,
    classes: bytes,
    kind: int,
    digits: int,
) -> bytes:
    """Lay out what ``bpe.ByteBpe`` reads.

    ``bytes_to_ids`` are the ids of the 256 single bytes. ``merges`` are native int32 triples (left id, right id, id of
    both) in the order of their ranks. ``words``, if given, maps words to ids that are taken without merging.
    ``classes``, ``kind`` and ``digits`` are those of ``word_split.words``. Raises ValueError for tables of the wrong
    size.
    """
