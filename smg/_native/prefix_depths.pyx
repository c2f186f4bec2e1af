"""How deep into a prompt each worker holds it (spec routing 10.3, option A).

A worker's depth is searched for by galloping and halving where only the approximate plane is asked. In the exact one a
hit far down proves nothing about the blocks before it, as engines forget blocks in any order; there one pass looks at
every block, in both planes at once, down to where the last worker drops out.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from smg._native.atomics cimport c_know_me, c_load_acquire, cell
from smg._native.prefix_keys cimport PrefixKeys, keys_of_text, keys_of_tokens
from smg._native.prefix_segment cimport COLUMNS, GROUPS, LANES, NOBODY, NOWHERE, column_of
from smg._native.prefix_table cimport APPROXIMATE, EXACT, PLANES, fetch, grouped, look
from smg._native.prefix_tickets cimport PrefixTickets

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
    # Up to so many blocks, reading all of them ahead is as quick as searching.
    _SHORT = 6


cdef class PrefixDepths(PrefixTickets):
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
            # Without giving the GIL away: this takes less than a tenth of a millisecond.
            self.lanes(places, planes, count, asked, places + count)
            self.depths(keys, asked, depths)
            return [depths[places[count + at]] for at in range(count)]
        finally:
            free(places)
            free(planes)
