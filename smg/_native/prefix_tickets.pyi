"""The workers that the prefix index knows, and their tickets (spec routing 10.3, 2 and 7)."""

from smg._native.prefix_segment import PrefixSegment

class PrefixTickets(PrefixSegment):
    """Only control writes here. Raises ValueError for a plane that does not exist."""

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
