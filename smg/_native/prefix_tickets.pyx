"""Whom the prefix index knows, and by which columns of the table (spec routing 10.3, option A).

* A worker slot is known to the table by a *column*, a bit of a group of 64. ``tickets[plane][slot]`` names the column,
  with a generation that makes it unique: learning with a ticket that is no longer in its place does nothing. To forget
  a worker is to take its ticket away: no reader asks for its column from then on.
* A column is given out again only when no process can be in the middle of writing it (each row counts the writes under
  way; it has been seen at 0) and when it has been wiped from all entries (``sweep``). Only control does both.
* ``live[slot]`` is the block size for which the worker's exact plane is complete, 0 while only the approximate one can
  be asked.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset

from smg._native.atomics cimport c_know_me, c_load, c_load_acquire, c_store, c_store_release, cell
from smg._native.prefix_segment cimport GROUPS, H_EVENTS, PrefixSegment, column_of, holds
from smg._native.prefix_table cimport (
    APPROXIMATE,
    EXACT,
    GROUP_BITS,
    PATIENTLY,
    PLANES,
    Entry,
    Shard,
    acquire,
    entries_of,
    release,
)

c_know_me()


cdef class PrefixTickets(PrefixSegment):
    def join(self, int64_t process):
        PrefixSegment.join(self, process)
        # A column another process saw clean may have been used since: trust nothing that was inherited.
        memset(self._clean, 0, sizeof(self._clean))

    def admit(self, int64_t slot):
        self._known(slot)
        cdef int plane
        for plane in range(PLANES):
            if not holds(c_load(self._map + plane * self._slots + slot)):
                self._give(slot, plane)
        return self.ticket(slot)

    def dismiss(self, int64_t slot):
        self._known(slot)
        cdef int plane
        cdef cell *place
        c_store_release(self._live + slot, 0)
        # The exact plane first: should control die in between, a successor's approximate ticket never comes together
        # with the exact one of its predecessor.
        for plane in (EXACT, APPROXIMATE):
            place = self._map + plane * self._slots + slot
            c_store_release(place, c_load(place) & ~<cell>0xFFFF)
        self._note_change()

    def renew(self, int64_t slot, int plane=EXACT):
        self._known(slot)
        if plane not in (APPROXIMATE, EXACT):
            raise ValueError(f"{plane} is not a plane")
        cdef cell *place = self._map + plane * self._slots + slot
        if plane == EXACT:
            c_store_release(self._live + slot, 0)
        c_store_release(place, c_load(place) & ~<cell>0xFFFF)
        self._note_change()
        return self._give(slot, plane)

    cdef bint _give(self, int64_t slot, int plane) except -1:
        """Write a new ticket for ``slot``; it stays without one when no column is to be had."""
        cdef cell *place = self._map + plane * self._slots + slot
        cdef cell generation = (c_load(place) >> 32) + 1, column
        cdef int turn, group
        for turn in range(2):
            for group in range(GROUPS):
                if self._clean[plane][group]:
                    column = 0
                    while not self._clean[plane][group] >> column & 1:
                        column += 1
                    self._clean[plane][group] &= ~(<cell>1 << column)
                    c_store_release(place, (generation << 32) | (<cell>slot << 16) | (group * 64 + column + 1))
                    self._note_change()
                    return True
            if turn == 0 and not self.sweep():
                break
        return False

    def set_live(self, int64_t slot, int64_t block):
        self._known(slot)
        if block:
            # From now on there may be live workers; it is not worth while to count them.
            c_store(self._base + H_EVENTS, 1)
        c_store_release(self._live + slot, block)
        self._note_change()

    def live(self, int64_t slot):
        self._known(slot)
        return c_load_acquire(self._live + slot)

    def ticket(self, int64_t slot, int plane=APPROXIMATE):
        self._known(slot)
        if plane not in (APPROXIMATE, EXACT):
            raise ValueError(f"{plane} is not a plane")
        cdef cell ticket = c_load_acquire(self._map + plane * self._slots + slot)
        return ticket if holds(ticket) else 0

    def sweep(self):
        self._open()
        cdef cell stale[PLANES][GROUPS]
        cdef cell slot, ticket, any = 0
        cdef int plane, group
        cdef bint done
        memset(stale, 0xFF, sizeof(stale))
        for plane in range(PLANES):
            for slot in range(self._slots):
                ticket = c_load(self._map + plane * self._slots + slot)
                if holds(ticket):
                    stale[plane][column_of(ticket) >> 6] &= ~(<cell>1 << (column_of(ticket) & 63))
            for group in range(GROUPS):
                stale[plane][group] &= ~self._clean[plane][group]
                any |= stale[plane][group]
        if any == 0:
            return True
        if self._sweeping:
            # Another thread: what it has wiped may be in use again before this one would wipe it.
            return False
        self._sweeping = True
        with nogil:
            done = self._quiet() and self._wipe(<cell *>stale)
        self._sweeping = False
        if not done:
            return False
        for plane in range(PLANES):
            for group in range(GROUPS):
                self._clean[plane][group] |= stale[plane][group]
        return True

    cdef bint _wipe(self, const cell *stale) noexcept nogil:
        """Clear the stale columns in every entry. False when a shard cannot be had."""
        cdef cell number, at, group
        cdef int plane
        cdef Shard *shard
        cdef Entry *entry
        for number in range(<cell>1 << self._table.bits):
            shard = self._table.shards + number
            if c_load_acquire(&shard.count) == 0 and c_load_acquire(&shard.lock) == 0:
                continue
            if not acquire(&self._table, shard, PATIENTLY):
                return False
            for at in range(c_load(&shard.size)):
                entry = entries_of(&self._table, shard) + at
                if c_load(&entry.key) == 0:
                    continue
                group = c_load(&entry.used) & ((1 << GROUP_BITS) - 1)
                for plane in range(PLANES):
                    if c_load(&entry.holders[plane]) & stale[plane * GROUPS + group]:
                        c_store(
                            &entry.holders[plane],
                            c_load(&entry.holders[plane]) & ~stale[plane * GROUPS + group],
                        )
            release(shard)
        return True
