"""Aho-Corasick over bytes: stop strings in a stream of chunks, special tokens in a prompt."""

from collections.abc import Sequence

class StopAutomaton:
    """Finds any of ``patterns`` (non-empty ``bytes``); a state is a small int that starts at 0.

    Spec text-pipeline 5: the earliest end wins, ties go to the longest. Raises ValueError for an empty pattern, and
    when the table would grow beyond 8 MiB.
    """

    patterns: tuple[bytes, ...]

    def __init__(self, patterns: Sequence[bytes]) -> None: ...
    @property
    def nbytes(self) -> int:
        """Bytes of the table."""

    def depth(self, state: int) -> int:
        """Return how many of the last bytes read begin a pattern, that is, must be held back in ``state``.

        Raises ValueError for a state that does not exist.
        """

    def scan(self, data: bytes | bytearray | memoryview, state: int = 0) -> tuple[int, int, int]:
        """Read ``data`` from ``state`` on and return ``(state, end, pattern)``.

        At the first match reading ends: ``end`` is the offset in ``data`` behind it and ``pattern`` its number. Without
        one both are -1. Raises ValueError for a state that does not exist.
        """

    def leftmost(self, data: bytes | bytearray | memoryview) -> list[tuple[int, int]]:
        """Return ``(end, pattern)`` of each match in ``data``, left to right: the longest where it begins, no overlaps.

        This is how tokenizers cut their added tokens out of a text.
        """
