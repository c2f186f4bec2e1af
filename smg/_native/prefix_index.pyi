"""The prefix index all processes share: which worker holds which beginning of a prompt (spec routing 10.3, option A).

Two planes: the approximate one holds what the gateway has sent, the exact one what engines have told. Nothing here
waits: a process that finds a part of the table taken remembers what it had to write and does so the next time.
"""

from smg._native.prefix_depths import PrefixDepths
from smg._native.prefix_keys import PrefixKeys

class PrefixIndex(PrefixDepths):
    """Learning, and what is asked of it. Depths count blocks from the root."""

    dropped: int  # entries this process could not write, and could not remember either

    # the approximate plane
    def insert(self, keys: PrefixKeys, ticket: int) -> int:
        """Learn that the worker with ``ticket`` holds the prompt; returns the depth there was room for.

        Every block of the prompt counts as used now. A ticket that is no longer valid learns nothing and returns 0.
        """

    def insert_some(self, keys: PrefixKeys, ticket: int, tick: int, start: int, seconds: float) -> int:
        """Do what ``insert`` does from block ``start`` on, and stop after about ``seconds``.

        All calls for one prompt have one ``tick`` (``next_tick``), so that none of its blocks seems older than those
        behind it. Returns the block to go on from, or -1: everything is entered that there is room for, or the ticket
        is no longer valid. Raises ValueError for a negative ``start``.
        """

    def next_tick(self) -> int:
        """Take the number of an ``insert``."""

    def withdraw(self, keys: PrefixKeys, ticket: int, depth: int) -> None:
        """Take back an ``insert`` from block ``depth`` on: the worker does not hold it after all.

        What somebody is writing to at this moment stays: it goes with the next eviction.
        """

    def insert_text(self, text: str | bytes, salt: int, ticket: int) -> int:
        """``insert(PrefixKeys.of_text(text, salt), ticket)`` in one call."""

    def flush(self) -> int:
        """Write what could not be written before; returns how much is still left. Every ``insert`` begins with it."""

    # upkeep
    @property
    def tick(self) -> int:
        """Number of the last ``insert`` of any process."""

    @property
    def floor(self) -> float:
        """Approximate entries last used before this tick are gone; a fraction tells how deep a block must be."""

    def expire(self, tick: int) -> None:
        """Let go of all approximate entries last used before ``tick``, leaves before their ancestors."""

    def counts(self) -> dict[str, int]:
        """``entries`` and ``places`` for them, ``bytes`` of the places, ``capacity`` in entries, and ``resets``: how
        often a part of the table was emptied because a process died in it."""
