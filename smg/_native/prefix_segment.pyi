"""The memory of the prefix index: processes, workers and their tickets (spec routing 10.3, 2, 7 and 8)."""

from typing import Self

LAYOUT_VERSION: int
MAX_WORKERS: int  # that can have a ticket at once, in each plane
MIN_BYTES: int
MAX_BYTES: int

class PrefixSegment:
    """One mapping of the segment. Create before the fork; children ``join`` the inherited object or one they attach.

    Raises IndexError for a process or worker slot that does not exist, ValueError for a plane that does not.
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

    # workers: only control writes
    def admit(self, slot: int) -> int:
        """Give the worker in ``slot`` tickets, unless it has them; returns its ticket in the approximate plane.

        0 when no column is free (4,096 are there, and a stopped process can keep one from being used again).
        """

    def dismiss(self, slot: int) -> None:
        """Forget all the worker in ``slot`` holds, at once and in all processes (O(1)).

        A control process that takes over from a dead one dismisses every slot it has no worker for.
        """

    def renew(self, slot: int, plane: int = 1) -> bool:
        """Forget what the worker holds in one plane, at once; False when it is left without a ticket there.

        Renewing the exact plane also ends its being live.
        """

    def set_live(self, slot: int, block: int) -> None:
        """Say that the worker's exact plane is complete, for blocks of so many tokens; 0: that it is not."""

    def live(self, slot: int) -> int: ...
    def ticket(self, slot: int, plane: int = 0) -> int:
        """What to learn with on behalf of the worker that is in ``slot`` now; 0: nothing can be learnt of it."""

    def sweep(self) -> bool:
        """Wipe the columns of forgotten workers, so that others can have them; False: not now (a process is writing).

        ``admit`` and ``renew`` call it when they run out of columns.
        """
