"""The memory of the prefix index, and the processes that write it (spec routing 10.3, 2, 7 and 8)."""

from typing import Self

LAYOUT_VERSION: int
MAX_WORKERS: int  # that can have a ticket at once, in each plane
MIN_BYTES: int
MAX_BYTES: int

class PrefixSegment:
    """One mapping of the segment. Create before the fork; children ``join`` the inherited object or one they attach.

    Raises IndexError for a process or worker slot that does not exist.
    """

    fd: int
    boot_id: int

    @classmethod
    def create(cls, nbytes: int, processes: int = 1, slots: int = 4096) -> Self:
        """Make a new segment of at most ``nbytes`` of entries; joins as process 0.

        An eighth of them is there from the start, the others are taken from the system as the table fills.

        Raises OSError, ValueError.
        """

    @classmethod
    def attach(cls, fd: int) -> Self:
        """Map an existing segment through a duplicate of ``fd``; ``join`` before anything is written.

        Raises ValueError when magic, layout version or size do not fit.
        """

    def close(self) -> None:
        """Unmap, and close ``fd``; every other call raises ValueError from then on. Idempotent."""

    # processes
    def join(self, process: int) -> None:
        """Take the row of ``process``: the caller is the one process that writes as this number from now on."""

    def clear_process(self, process: int) -> None:
        """Undo a dead process: what it was writing is forgotten and its locks are free.

        Others find out by themselves, but only once its pid is gone and unless another process has it.
        """
