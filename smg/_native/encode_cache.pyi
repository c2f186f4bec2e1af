"""Bounded memory of encoded texts and text beginnings (spec text-pipeline 3)."""

from collections.abc import Sequence

class EncodeCache:
    """Ids by text or by beginning of a text; the least recently used go first. Safe to use from several threads.

    Ids are lists, or, if they are many, arrays (``id_list``); either kind may be given.

    Holds at most ``max_bytes`` (nodes and ids; 0 keeps nothing) and ``max_entries`` (0: no such bound). ``secret`` is
    16 bytes and random unless given. ``hits`` and ``misses`` count look-ups, ``evictions`` what had to go, ``entries``
    and ``nbytes`` what is held now.
    """

    max_bytes: int
    max_entries: int
    nbytes: int
    entries: int
    hits: int
    misses: int
    evictions: int

    def __init__(self, max_bytes: int, max_entries: int = 0, secret: bytes | None = None) -> None: ...
    def __len__(self) -> int: ...
    def digest(self, data: bytes) -> bytes:
        """SipHash-2-4 of ``data`` with 128 bits, as 16 bytes (the function behind the keys)."""

    def get(self, text: str, flag: bool = False) -> Sequence[int] | None:
        """Return the ids of ``text`` under ``flag``, or None. Raises UnicodeEncodeError for unpaired surrogates."""

    def put(self, text: str, flag: bool, ids: Sequence[int]) -> None:
        """Keep the ids of ``text`` under ``flag``. Raises UnicodeEncodeError for unpaired surrogates."""

    def longest(self, data: bytes, cuts: Sequence[int]) -> tuple[int, Sequence[int]] | None:
        """Return ``(number, ids)`` of the last of the ascending ``cuts`` up to which ``data`` is known, or None.

        Raises ValueError for offsets that do not ascend or lie outside.
        """

    def extend(self, data: bytes, cuts: Sequence[int], counts: Sequence[int], ids: Sequence[int]) -> None:
        """Keep ``data`` up to each of the ascending ``cuts``: the first ``counts[i]`` of ``ids`` belong to ``cuts[i]``.

        Raises ValueError for cuts or counts that do not ascend, lie outside or are not as many.
        """

def find_ids(ids: Sequence[int], wanted: bytes) -> list[int]:
    """Return the positions in ``ids`` of those whose byte in ``wanted`` is not 0 (ids beyond it are not wanted)."""
