"""The prefix index all processes share: which worker holds which beginning of a prompt (spec routing 10.3, option A).

Learning and asking; ``prefix_segment.pyx`` says who may write what, ``prefix_table.pxd`` how an entry is found.

A worker's depth is searched for by galloping and halving where only the approximate plane is asked. In the exact one a
hit far down proves nothing about the blocks before it, as engines forget blocks in any order; there one pass looks at
every block, in both planes at once, down to where the last worker drops out.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from smg._native.atomics cimport c_add, c_know_me, c_load, c_load_acquire, c_raise, cell
from smg._native.monotonic cimport monotonic
from smg._native.prefix_keys cimport PrefixKeys, keys_of_text, keys_of_tokens
from smg._native.prefix_segment cimport (
    COLUMNS,
    GROUPS,
    H_TICK,
    LANES,
    NOBODY,
    NOWHERE,
    PrefixSegment,
    column_of,
    holds,
    slot_of,
)
from smg._native.prefix_table cimport (
    APPROXIMATE,
    BUSY,
    DONE,
    EXACT,
    FULL,
    PATIENTLY,
    PLANES,
    SHORTLY,
    TICK_SHIFT,
    Place,
    Shard,
    fetch,
    grouped,
    look,
    put,
    seek,
    take,
    touch,
    used_at,
)

cdef extern from *:
    """
    static inline int lowest(uint64_t bits) { return __builtin_ctzll(bits); }
    static const uint32_t lane_bits[32] = {
        1u,       1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
        1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
        1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
    };
    /* Write a number to those of 64 lanes whose bit is set; all at once, as mostly many are. */
    static inline void set_lanes(int *lanes, uint64_t bits, int number) {
        for (int half = 0; half < 2; half++, lanes += 32, bits >>= 32)
            for (int at = 0; at < 32; at++) lanes[at] = (uint32_t)bits & lane_bits[at] ? number : lanes[at];
    }
    """
    int lowest(cell bits) noexcept nogil
    void set_lanes(int *lanes, cell bits, int number) noexcept nogil

c_know_me()

cdef enum:
    _AHEAD = 16
    _GROUPS_AHEAD = 2
    _BATCH = 32
    _MISSED = 64
    _LATE = 4096
    # Up to so many blocks, reading all of them ahead is as quick as searching.
    _SHORT = 6
    # Entries that are made between two looks at the clock.
    _PAUSE = 8
    # Below this, an operation takes less time than giving the GIL away can cost.
    _LONG = 256


cdef class PrefixIndex(PrefixSegment):
    def __cinit__(self):
        self._late = NULL

    def __dealloc__(self):
        free(self._late)

    def join(self, int64_t process):
        PrefixSegment.join(self, process)
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
        if keys.count - start >= _LONG:
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
        cdef int64_t at, end, entered = 0
        cdef int outcome
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
                entered += 1
                # What takes time is to lay out shards anew, and many are full at about the same time.
                if until is not NULL and entered % _PAUSE == 0 and at + 1 < count and monotonic() >= until[0]:
                    until[0] = 0
                    self._exit()
                    return at + 1
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

    # queries

    def text_keys(self, text, uint64_t salt=0):
        self._open()
        cdef PrefixKeys keys = keys_of_text(text, salt)
        self._foresee(keys)
        return keys

    def token_keys(self, ids, int64_t block=16, uint64_t salt=0, uint64_t adapter=0):
        self._open()
        cdef PrefixKeys keys = keys_of_tokens(ids, block, salt, adapter)
        self._foresee(keys)
        return keys

    cdef void _foresee(self, PrefixKeys keys) noexcept nogil:
        """Begin to fetch what ``_leap`` looks at first: the memory is there by the time somebody asks."""
        cdef int64_t stride = 1
        while stride <= keys.count:
            fetch(&self._table, keys.keys[stride - 1])
            stride *= 2
        if keys.count:
            fetch(&self._table, keys.keys[keys.count - 1])

    cdef void _walk(
        self, const uint64_t *keys, int64_t count, cell group, const cell *asked, int *lanes
    ) noexcept nogil:
        """Follow the asked columns of one group block by block; writes the depth each is lost at unless it is 0."""
        cdef cell alive[2]
        cdef cell found[2]
        cdef cell gone, floor = c_load_acquire(self._table.floor)
        cdef int64_t at
        cdef int plane
        alive[0] = asked[0]
        alive[1] = asked[1]
        for at in range(min(count, <int64_t>_AHEAD)):
            fetch(&self._table, grouped(keys[at], group))
        at = 0
        while at < count and alive[0] | alive[1]:
            if at + _AHEAD < count:
                fetch(&self._table, grouped(keys[at + _AHEAD], group))
            look(&self._table, grouped(keys[at], group), floor, found)
            for plane in range(PLANES):
                gone = alive[plane] & ~found[plane]
                alive[plane] &= found[plane]
                while gone and at:
                    lanes[plane * COLUMNS + <int64_t>group * 64 + lowest(gone)] = <int>at
                    gone &= gone - 1
            at += 1
        for plane in range(PLANES):
            while alive[plane]:
                lanes[plane * COLUMNS + <int64_t>group * 64 + lowest(alive[plane])] = <int>count
                alive[plane] &= alive[plane] - 1

    cdef int64_t _leap(
        self, const uint64_t *keys, int64_t count, cell group, cell asked, int64_t guess, int *lanes
    ) noexcept nogil:
        """As ``_walk``, for the approximate plane only: gallop and halve instead of going through all blocks.

        Nobody is sent a block without the ones before it, and leaves are evicted first: a hit vouches for what is above.
        Looks at depth ``guess`` first; returns what would have been a good guess. Writes all 64 lanes.
        """
        cdef cell found[2]
        cdef cell hit, floor = c_load_acquire(self._table.floor)
        # Somebody asked for holds ``low`` blocks (those in ``hit``), nobody ``high``.
        cdef int64_t low = 0, high = count + 1, middle, stride, base
        while asked:
            low = 0
            hit = asked
            base = guess if guess < high else 0
            stride = max(base, <int64_t>1)
            while low + 1 < high:
                middle = min(low + stride, high - 1) if stride else (low + high) >> 1
                look(&self._table, grouped(keys[middle - 1], group), floor, found)
                if found[APPROXIMATE] & asked:
                    low = middle
                    hit = found[APPROXIMATE] & asked
                    if stride:
                        # 1, 2, 4, 8 … from the guess on.
                        stride = max(low - base, <int64_t>1)
                else:
                    high = middle
                    # After a bad guess from the beginning on.
                    stride = 1 if base and not low else 0
                    base = 0
            asked &= ~hit
            high = low
            set_lanes(lanes, hit, <int>low)
        return low

    cdef void depths(self, PrefixKeys keys, const cell *asked, int *lanes) noexcept nogil:
        """How many blocks from the root the holders of the asked columns hold: one group of ``lanes`` after the other.

        ``lanes`` has room for LANES numbers. Columns that were not asked for may get any number; the last lane is 0.
        """
        cdef cell both[PLANES]
        cdef int64_t group, guess = 0
        cdef int plane
        lanes[NOBODY] = 0
        for group in range(GROUPS):
            for plane in range(PLANES):
                both[plane] = asked[plane * GROUPS + group]
            if both[EXACT] or (both[APPROXIMATE] and keys.count <= _SHORT):
                for plane in range(PLANES):
                    memset(lanes + plane * COLUMNS + group * 64, 0, 64 * sizeof(int))
                self._walk(keys.keys, keys.count, group, both, lanes)
            elif both[APPROXIMATE]:
                if guess and group + _GROUPS_AHEAD < GROUPS and asked[APPROXIMATE * GROUPS + group + _GROUPS_AHEAD]:
                    # Where they part in this group, they mostly part in the next ones.
                    fetch(&self._table, grouped(keys.keys[guess - 1], group + _GROUPS_AHEAD))
                    if guess < keys.count:
                        fetch(&self._table, grouped(keys.keys[guess], group + _GROUPS_AHEAD))
                guess = self._leap(keys.keys, keys.count, group, both[APPROXIMATE], guess, lanes + group * 64)

    cdef void lanes(
        self, const int *slots, const signed char *planes, int64_t count, cell *asked, int *out
    ) noexcept nogil:
        """Say which columns to ask for the slots, each in its plane, and in which lane each one's depth will stand.

        NOBODY, whose depth is 0, for those without a ticket and those NOWHERE; -1 for what KEEPS. Slots are in range.
        """
        cdef const cell *tickets = self._map
        cdef int64_t size = self._slots, at
        cdef cell bits = 0
        cdef int place, last = 0
        memset(asked, 0, PLANES * GROUPS * sizeof(cell))
        for at in range(count):
            if planes[at] < 0:
                out[at] = NOBODY if planes[at] == NOWHERE else -1
                continue
            place = <int>column_of(c_load_acquire(tickets + planes[at] * size + slots[at]))
            if place < 0:
                out[at] = NOBODY
                continue
            place += planes[at] * COLUMNS
            out[at] = place
            # Neighbours mostly share a group: collect its bits in a register.
            if place >> 6 != last:
                asked[last] |= bits
                last = place >> 6
                bits = 0
            bits |= <cell>1 << (place & 63)
        asked[last] |= bits

    def depth(self, PrefixKeys keys not None, slots, int plane=APPROXIMATE):
        self._open()
        cdef int64_t at, count = len(slots)
        cdef int *places = <int *>malloc((2 * count + LANES) * sizeof(int))
        cdef int *depths = places + 2 * count
        cdef signed char *planes = <signed char *>malloc(count + 1)
        cdef cell asked[PLANES * GROUPS]
        try:
            if places == NULL or planes == NULL:
                raise MemoryError
            if plane not in (APPROXIMATE, EXACT):
                raise ValueError(f"{plane} is not a plane")
            for at in range(count):
                self._known(slots[at])
                places[at] = slots[at]
                planes[at] = plane
            with nogil:
                self.lanes(places, planes, count, asked, places + count)
                self.depths(keys, asked, depths)
            return [depths[places[count + at]] for at in range(count)]
        finally:
            free(places)
            free(planes)

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
