"""The rows of workers and their ranks in the region: each has one in the worker table and one in the prefix index."""

from collections.abc import Collection, Iterable

from smg._native import region as table
from smg.fleet.records import STATUS_CODES, STATUS_NAMES, Status
from smg.fleet.slots import FreeSlots

# Planes of the prefix index: what was sent to an engine, and what it has told.
SENT = 0
EXACT = 1


class Rows:
    """Control's hand on the rows. ``taken`` are the slots of workers that an earlier control process knew.

    What those hold stays, as far as the gateway has sent it; what engines have told is gone with that process.
    """

    def __init__(self, region: table.Region, taken: Collection[int]) -> None:
        self._region = region
        self._free = FreeSlots(slot for slot in range(region.workers) if slot not in taken)
        self._leaving: list[int] = []
        index = region.index
        if index is None:
            return
        for slot in range(region.workers):
            if slot in taken:
                index.admit(slot)
                index.renew(slot)
            # A slot without a worker may still have tickets: its worker was being removed when control died.
            elif index.ticket(slot) or index.ticket(slot, EXACT):
                index.dismiss(slot)

    @property
    def free(self) -> bool:
        """Whether there is one to ``occupy``."""
        return bool(self._free)

    @property
    def leaving(self) -> bool:
        """Whether ``clear`` would free some."""
        return bool(self._leaving)

    def status(self, slot: int) -> Status | None:
        """What the table says of a row, None for one that is free."""
        return STATUS_NAMES.get(self._region.worker_get(slot, table.STATUS))

    def tell(self, slots: Iterable[int], status: Status) -> None:
        """Have the table say ``status`` of these rows, at once."""
        for slot in slots:
            self._region.worker_set(slot, table.STATUS, STATUS_CODES[status])

    def occupy(self, status: Status) -> int:
        """Take a free row; returns its slot. Raises IndexError when there is none."""
        slot = self._free.take()
        self._region.worker_reset(slot)
        if self._region.index is not None:
            self._region.index.admit(slot)
        self.tell((slot,), status)
        return slot

    def vacate(self, slot: int, rest: bool) -> None:
        """Nobody is there any more; with ``rest`` nobody else is at once, as long as there are other rows."""
        if self._region.index is not None:
            self._region.index.dismiss(slot)
        self._region.worker_reset(slot)
        self._free.give(slot, rest=rest)

    def leave(self, slots: Iterable[int]) -> None:
        """These rows are to be vacated once nobody reads a snapshot that has them."""
        self._leaving += slots

    def clear(self, rest: bool) -> None:
        """Vacate the rows that were left."""
        leaving, self._leaving = self._leaving, []
        for slot in leaving:
            self.vacate(slot, rest)

    def begin_anew(self, slots: Iterable[int]) -> None:
        """Another engine answers for these rows: it holds nothing of what was sent to the one before, nor of what that
        one has told."""
        for slot in slots:
            self._region.worker_set(slot, table.COMPUTED, 0)
            if self._region.index is not None:
                self._region.index.renew(slot, SENT)
                self._region.index.renew(slot, EXACT)
