"""The prefix index all processes share: which worker holds which beginning of a prompt (spec routing 10.3, option A).

Learning; ``prefix_depths.pyx`` has the asking, ``prefix_tickets.pyx`` and ``prefix_segment.pyx`` say who may write what,
``prefix_table.pxd`` how an entry is found.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from smg._native.atomics cimport c_add, c_know_me, c_load, c_load_acquire, c_raise, cell
from smg._native.monotonic cimport monotonic
from smg._native.prefix_depths cimport PrefixDepths
from smg._native.prefix_keys cimport PrefixKeys, keys_of_text
from smg._native.prefix_segment cimport H_TICK, column_of, holds, slot_of
from smg._native.prefix_table cimport (
    APPROXIMATE,
    BUSY,
    DONE,
    EXACT,
    FULL,
    SHORTLY,
    TICK_SHIFT,
    Place,
    Shard,
    fetch,
    grouped,
    put,
    seek,
    take,
    touch,
    used_at,
)

c_know_me()

cdef enum:
    _BATCH = 32
    _MISSED = 64
    _LATE = 4096
    # Blocks that are entered between two looks at the clock.
    _PAUSE = 8
    # Below this, an operation takes less time than giving the GIL away can cost.
    _LONG = 256


cdef class PrefixIndex(PrefixDepths):
    def __cinit__(self):
        self._late = NULL

    def __dealloc__(self):
        free(self._late)

    def join(self, int64_t process):
        PrefixDepths.join(self, process)
        self._late_count = 0

    # the approximate plane

    def insert(self, PrefixKeys keys not None, cell ticket):
        self._open()
        return self._learn(keys, ticket, self._next_tick(), 0, NULL)

    def insert_text(self, text, uint64_t salt, cell ticket):
        self._open()
        return self._learn(keys_of_text(text, salt), ticket, self._next_tick(), 0, NULL)

    def insert_some(self, PrefixKeys keys not None, cell ticket, cell tick, int64_t start, double seconds):
        self._open()
        if start < 0:
            raise ValueError(f"there is no block {start}")
        cdef double until = monotonic() + seconds
        cdef int64_t reached = self._learn(keys, ticket, tick, start, &until)
        return reached if until == 0 else -1

    def next_tick(self):
        self._open()
        return self._next_tick()

    cdef cell _next_tick(self) noexcept:
        return c_add(self._base + H_TICK, 1) + 1

    cdef int64_t _learn(self, PrefixKeys keys, cell ticket, cell tick, int64_t start, double *until):
        """Enter a holder for the keys from ``start`` on; returns up to where that went. ``until`` is as in ``_write``."""
        cdef int64_t missed[_MISSED]
        cdef int64_t misses = 0, at, written
        cdef cell group
        if slot_of(ticket) >= self._slots or not holds(ticket):
            return 0
        if self._late_count:
            self.flush()
        # With a time limit it is too short for that, too: who gives the GIL away waits until it is given back, which takes
        # tens of milliseconds if its holder is a thread of low priority that waits for a processor.
        if until is NULL and keys.count - start >= _LONG:
            with nogil:
                written = self._write(keys.keys, start, keys.count, tick, ticket, until, missed, &misses)
        else:
            written = self._write(keys.keys, start, keys.count, tick, ticket, until, missed, &misses)
        group = column_of(ticket) >> 6
        for at in range(min(misses, <int64_t>_MISSED)):
            self._defer(grouped(keys.keys[missed[at]], group), used_at(tick, missed[at], group), ticket)
        self.dropped += max(misses - _MISSED, 0)
        return written

    cdef int64_t _write(
        self,
        const uint64_t *keys,
        int64_t start,
        int64_t count,
        cell tick,
        cell ticket,
        double *until,
        int64_t *missed,
        int64_t *misses,
    ) noexcept nogil:
        """Enter a holder for the keys from ``start`` on. Returns up to where there was room and time; lists those whose
        shard was taken.

        Ends at the time ``until`` (NULL: never), which is 0 afterwards if that was the reason.
        """
        cdef cell group = column_of(ticket) >> 6, bit = <cell>1 << (column_of(ticket) & 63)
        cdef cell floor = c_load_acquire(self._table.floor), used, key
        cdef int64_t at, end
        cdef int outcome
        cdef int64_t begin = start
        cdef Place places[_BATCH]
        self._enter()
        if c_load_acquire(self._map + slot_of(ticket)) != ticket:
            self._exit()
            return 0
        while start < count:
            end = min(count, start + _BATCH)
            # First only looking, so that the memory of all places is fetched at once: a lock lets nothing pass.
            for at in range(start, end):
                fetch(&self._table, grouped(keys[at], group))
            for at in range(start, end):
                seek(&self._table, grouped(keys[at], group), &places[at - start])
            for at in range(start, end):
                # What takes time is to lay out shards anew, and many are full at about the same time; but memory that is
                # not in the cache adds up, too.
                if until is not NULL and at % _PAUSE == 0 and at > begin and monotonic() >= until[0]:
                    until[0] = 0
                    self._exit()
                    return at
                key = grouped(keys[at], group)
                used = used_at(tick, at, group)
                if touch(&self._table, key, bit, used, floor, &places[at - start]):
                    continue
                outcome = put(&self._table, key, bit, APPROXIMATE, used, &places[at - start], SHORTLY)
                if outcome == FULL:
                    self._exit()
                    return at
                if outcome == BUSY:
                    if misses[0] < _MISSED:
                        missed[misses[0]] = at
                    misses[0] += 1
            start = end
        self._exit()
        return count

    def withdraw(self, PrefixKeys keys not None, cell ticket, int64_t depth):
        self._open()
        cdef cell group, bit
        cdef int64_t at = keys.count
        if slot_of(ticket) >= self._slots or not holds(ticket):
            return
        group = column_of(ticket) >> 6
        bit = <cell>1 << (column_of(ticket) & 63)
        self._enter()
        if c_load_acquire(self._map + slot_of(ticket)) == ticket:
            # From the end, so that at no moment a block is held without the ones before it.
            while at > max(depth, <int64_t>0):
                at -= 1
                take(&self._table, grouped(keys.keys[at], group), bit, APPROXIMATE, SHORTLY)
        self._exit()

    cdef void _defer(self, cell key, cell used, cell ticket):
        if self._late == NULL:
            self._late = <Late *>malloc(_LATE * sizeof(Late))
        if self._late == NULL or self._late_count == _LATE:
            self.dropped += 1
            return
        self._late[self._late_count] = Late(key, used, ticket)
        self._late_count += 1

    def flush(self):
        self._open()
        cdef int64_t at, left = 0, count = self._late_count
        cdef cell column, bit
        cdef Place nowhere = Place(NULL, 0)
        self._enter()
        for at in range(count):
            column = column_of(self._late[at].ticket)
            if c_load_acquire(self._map + slot_of(self._late[at].ticket)) != self._late[at].ticket:
                continue
            bit = <cell>1 << (column & 63)
            if BUSY == put(
                &self._table, self._late[at].key, bit, APPROXIMATE, self._late[at].used, &nowhere, SHORTLY
            ):
                self._late[left] = self._late[at]
                left += 1
        self._exit()
        self._late_count = left
        return left

    # the exact plane: control only

    cdef bint current(self, cell ticket) noexcept nogil:
        """Whether an exact ticket is its worker's still. Only control takes it away, and it does not while it writes."""
        return holds(ticket) and c_load(self._map + EXACT * self._slots + slot_of(ticket)) == ticket

    cdef bint hold(self, cell ticket, cell key, cell patience) noexcept nogil:
        """Enter an exact holder; False when the ticket is void, there is no room, or a shard cannot be had."""
        if not self.current(ticket):
            return False
        cdef cell group = column_of(ticket) >> 6, bit = <cell>1 << (column_of(ticket) & 63)
        cdef Place nowhere = Place(NULL, 0)
        return DONE == put(&self._table, grouped(key, group), bit, EXACT, group, &nowhere, patience)

    cdef bint unhold(self, cell ticket, cell key, cell patience) noexcept nogil:
        if not self.current(ticket):
            # The column may be somebody else's by now.
            return True
        cdef cell group = column_of(ticket) >> 6, bit = <cell>1 << (column_of(ticket) & 63)
        return DONE == take(&self._table, grouped(key, group), bit, EXACT, patience)

    # upkeep

    @property
    def tick(self):
        self._open()
        return c_load(self._base + H_TICK)

    @property
    def floor(self):
        self._open()
        return c_load(self._table.floor) / <double>(<cell>1 << TICK_SHIFT)

    def expire(self, cell tick):
        self._open()
        c_raise(self._table.floor, tick << TICK_SHIFT)

    def counts(self):
        self._open()
        cdef cell at, entries = 0, places = 0, resets = 0
        cdef Shard *shard
        for at in range(<cell>1 << self._table.bits):
            shard = self._table.shards + at
            entries += c_load(&shard.count)
            places += c_load(&shard.size)
            resets += c_load(&shard.resets)
        return {
            "entries": entries,
            "places": places,
            "bytes": places * 32,
            "capacity": self._table.capacity << self._table.bits,
            "resets": resets,
        }
