"""Where a prompt goes: loads, prefixes and the price of every worker, in one pass without Python (spec routing 10.4).

A Placement is made once per list of workers and used for many prompts: ``survey`` looks who is ready, ``match`` what each
of them holds, ``cheapest`` weighs that against how busy they are. How busy is counted when it is first asked for.
Positions count the ready workers, as ``survey`` found them.

What seldom changes is kept from one prompt to the next: who is ready, until the region's ``changes`` move, and where the
index keeps what it knows of each, until the index's do.

Whoever is overloaded is passed over by ``cheapest``, whatever it holds, and nobody else is: of the workers near the least
loaded one a warm one still wins (field case RO-03).
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from smg._native.atomics cimport c_load, c_load_acquire, cell
from smg._native.prefix_index cimport PrefixIndex
from smg._native.prefix_keys cimport PrefixKeys, rung
from smg._native.prefix_segment cimport GROUPS, H_EVENTS, KEEPS, LANES, NOWHERE
from smg._native.prefix_table cimport APPROXIMATE, EXACT, PLANES
from smg._native.prices cimport FINE, LITTLE, Terms, first_of, lowest_price, set_prices
from smg._native.region cimport Region
from smg._native.region_workers cimport Loads
from smg._native.region_workers import QUEUED_TOKENS, USAGE
from smg._native.stretches cimport Stretch, stretches_of

SPREAD = 0
PREFIX = 1
LOAD = 2

cdef enum:
    _MILLION = 1000000
    _NEVER = -1
    _LONGEST = 0x7FFFFFFF

cdef double _FULL = 0.999
cdef int64_t _USAGE = USAGE
cdef int64_t _QUEUED = QUEUED_TOKENS


cdef class Placement:
    cdef Region _region
    cdef int64_t _size, _highest
    cdef readonly int64_t ready
    cdef int *_slots
    cdef char *_skip
    cdef signed char *_planes
    cdef bint _avoiding, _counted
    cdef int64_t _seen, _parts
    cdef Loads _loads
    # What ``_lanes_of`` has found for the last list of ready workers: for which index, when, and for which blocks.
    cdef PrefixIndex _index
    cdef int64_t _index_seen, _index_block, _other
    cdef cell _asked[PLANES * GROUPS]
    cdef char *_avoid
    cdef char *_passed
    # Of the ready workers, by position.
    cdef int *_numbers
    cdef int *_places
    cdef int *_requests
    cdef int *_matched
    cdef int64_t *_tokens
    cdef int64_t *_computed
    cdef double *_prices
    cdef double *_lows
    cdef int *_lanes
    cdef Stretch *_stretches
    # Of the index.
    cdef int *_depths

    def __cinit__(self, Region region not None, slots):
        cdef int64_t at, size = len(slots)
        self._region = region
        self._size = size
        self._seen = _NEVER
        self.ready = 0
        self._slots = <int *>calloc(6 * size + LANES, sizeof(int))
        self._tokens = <int64_t *>malloc((2 * size + 1) * sizeof(int64_t))
        self._prices = <double *>malloc((2 * size + 1) * sizeof(double))
        self._stretches = <Stretch *>malloc((size + 1) * sizeof(Stretch))
        self._skip = <char *>calloc(size + 1, 1)
        self._planes = <signed char *>malloc(size + 1)
        self._avoid = <char *>malloc(2 * size + 1)
        if not (
            self._slots
            and self._tokens
            and self._prices
            and self._stretches
            and self._skip
            and self._planes
            and self._avoid
        ):
            raise MemoryError
        self._computed = self._tokens + size
        self._lows = self._prices + size
        self._passed = self._avoid + size
        self._numbers = self._slots + size
        self._places = self._slots + 2 * size
        self._requests = self._slots + 3 * size
        self._matched = self._slots + 4 * size
        self._lanes = self._slots + 5 * size
        self._depths = self._slots + 6 * size
        for at in range(size):
            if not 0 <= slots[at] < region.workers:
                raise IndexError(f"worker slot {slots[at]} of {region.workers}")
            self._slots[at] = slots[at]
            self._highest = max(self._highest, <int64_t>self._slots[at])

    def __dealloc__(self):
        free(self._slots)
        free(self._tokens)
        free(self._prices)
        free(self._stretches)
        free(self._skip)
        free(self._planes)
        free(self._avoid)

    def __len__(self):
        return self._size

    def survey(self, skip=()):
        self._region._open()
        cdef int64_t at, changes = self._region.changes()
        if skip:
            for number in skip:
                if not 0 <= number < self._size:
                    raise IndexError(f"worker {number} of {self._size}")
            for at in skip:
                self._skip[at] = 1
            self._muster()
            for at in skip:
                self._skip[at] = 0
            self._seen = _NEVER
        elif changes != self._seen:
            self._seen = changes if self._muster() else _NEVER
        memset(self._matched, 0, self.ready * sizeof(int))
        self._avoiding = self._counted = False
        return self.ready

    cdef bint _muster(self) noexcept nogil:
        """Look who is ready; whether that stays so until something changes."""
        cdef int64_t before = self.ready
        cdef bint moved, steady
        self.ready = self._region.muster(
            self._slots, self._size, self._skip, self._numbers, self._places, &moved, &steady
        )
        if moved or self.ready != before:
            self._parts = stretches_of(self._places, self.ready, self._stretches)
            self._index_seen = _NEVER
        return steady

    cdef void _count(self) noexcept nogil:
        if not self._counted:
            self._loads = self._region.loads(self._stretches, self._parts, self._requests, self._tokens)
            self._counted = True

    def avoid_full(self, double spread, double ceiling):
        self._region._open()
        cdef int64_t at, usage, least = _MILLION, avoided = 0
        cdef int64_t far = <int64_t>(spread * _MILLION), high = <int64_t>(ceiling * _MILLION)
        for at in range(self.ready):
            usage = self._region.field_at(self._places[at], _USAGE)
            # Whoever reports nothing is neither full nor a measure for others.
            if usage > 0:
                least = min(least, usage)
        for at in range(self.ready):
            usage = self._region.field_at(self._places[at], _USAGE)
            self._avoid[at] = usage > 0 and (usage > high or usage - least > far)
            avoided += self._avoid[at]
        self._avoiding = 0 < avoided < self.ready
        return avoided if self._avoiding else 0

    def match(self, PrefixIndex index not None, PrefixKeys keys not None, bint primary=True):
        index._open()
        if self.ready == 0:
            return 0
        index._known(self._highest)
        # Text has no exact plane: engines tell of tokens.
        cdef int64_t block = 0, changes = index.changes()
        if not primary or (keys.block and c_load(index._base + H_EVENTS)):
            block = keys.block
        if not primary or index is not self._index or changes != self._index_seen or block != self._index_block:
            self._other = self._lanes_of(index, block, primary)
            self._index = index
            self._index_block = block
            self._index_seen = changes if primary else _NEVER
        index.depths(keys, self._asked, self._depths)
        self._take(keys.block, primary)
        return self._other

    cdef void _take(self, int64_t block, bint all) noexcept nogil:
        """Note the depths of those that were asked in units of the prompt."""
        # The compiler cannot know that they stay where they are.
        cdef const int *lanes = self._lanes
        cdef const int *depths = self._depths
        cdef int *matched = self._matched
        cdef int64_t at, count = self.ready
        cdef int unit = <int>block
        if not block:
            for at in range(count):
                matched[at] = <int>rung(depths[lanes[at]])
        elif all:
            for at in range(count):
                matched[at] = depths[lanes[at]] * unit
        else:
            for at in range(count):
                if lanes[at] >= 0:
                    matched[at] = depths[lanes[at]] * unit

    cdef int64_t _lanes_of(self, PrefixIndex index, int64_t size, bint primary) noexcept nogil:
        """Where the depth of each ready worker will stand; returns a block size that live ones have instead.

        -1 for those that keep the depth they have: all but live ones of blocks of ``size``, unless it is ``primary``.
        """
        cdef int64_t at, block, other = 0
        for at in range(self.ready):
            block = <int64_t>c_load_acquire(index._live + self._places[at]) if size else 0
            if block == 0:
                self._planes[at] = APPROXIMATE if primary else KEEPS
            elif block == size:
                self._planes[at] = EXACT
            else:
                self._planes[at] = NOWHERE if primary else KEEPS
                other = block
        index.lanes(self._places, self._planes, self.ready, self._asked, self._lanes)
        return other

    cdef void _pass_over(self, int64_t least, int64_t absolute, double relative) noexcept nogil:
        """Mark whoever has far more requests than ``least``, and the full caches if those are avoided."""
        cdef int64_t at
        cdef int requests
        for at in range(self.ready):
            requests = self._requests[at]
            self._passed[at] = (self._avoiding and self._avoid[at]) or (
                requests - least > absolute and requests > relative * least
            )

    def cheapest(
        self,
        double length,
        double request_price,
        double threshold,
        int64_t absolute,
        double relative,
        int64_t start=0,
        double scale=1.0,
        double turnover=0.0,
    ):
        self._region._open()
        cdef int64_t best = -1, ideal, total
        cdef Terms terms
        cdef double lowest
        if self.ready == 0:
            raise ValueError("no worker is ready")
        self._count()
        total = self._region.computed(self._stretches, self._parts, self._computed) + self.ready * LITTLE
        terms.length = length
        terms.request = <double><int64_t>(FINE * request_price)
        terms.cut = <int>min(threshold * length, <double>_LONGEST)
        terms.unit = FINE * scale
        # What makes of a worker's computed tokens their ratio to the mean of all.
        terms.share = FINE * turnover * (self.ready / <double>total)
        lowest = set_prices(
            &terms,
            self._tokens,
            self._requests,
            self._matched,
            self._computed,
            self.ready,
            self._prices,
            self._lows,
        )
        start = start % self.ready
        ideal = first_of(self._prices, self._lows, lowest, self.ready, start)
        if self._avoiding or (
            self._loads.most - self._loads.least > absolute and self._loads.most > relative * self._loads.least
        ):
            self._pass_over(self._loads.least, absolute, relative)
            best = lowest_price(self._prices, self._passed, self.ready, start)
        else:
            best = ideal
        if best < 0:
            # Those with few requests have full caches, and the other way round.
            best = ideal
        if best != ideal:
            return best, SPREAD
        return best, PREFIX if self._matched[best] > terms.cut else LOAD

    def quickest(self, double throughput, double pressure, int64_t start=0):
        self._region._open()
        cdef int64_t at, best = -1, part, end
        cdef double seconds, lowest = 0, usage
        if self.ready == 0:
            raise ValueError("no worker is ready")
        self._count()
        start = start % self.ready
        for part in range(2):
            end = start if part else self.ready
            for at in range(0 if part else start, end):
                usage = min(max(self._region.field_at(self._places[at], _USAGE) / <double>_MILLION, 0.0), _FULL)
                seconds = (self._region.field_at(self._places[at], _QUEUED) + self._tokens[at]) / throughput
                seconds += pressure * usage / (1 - usage)
                if best < 0 or seconds < lowest or (
                    seconds == lowest and self._requests[at] < self._requests[best]
                ):
                    best = at
                    lowest = seconds
        return best

    def idlest(self, int64_t start=0):
        cdef int64_t at, best = -1, part, end
        if self.ready == 0:
            raise ValueError("no worker is ready")
        self._count()
        start = start % self.ready
        for part in range(2):
            end = start if part else self.ready
            for at in range(0 if part else start, end):
                if best < 0 or self._requests[at] < self._requests[best]:
                    best = at
        return best

    def holder(self):
        cdef int64_t at
        for at in range(self.ready):
            if self._matched[at] > 0:
                return at
        return -1

    def total(self):
        self._count()
        return self._loads.requests

    def backlog(self):
        self._count()
        return self._loads.tokens / <double>self.ready if self.ready else 0.0

    def load(self, int64_t position):
        cdef int requests
        cdef int64_t tokens
        cdef Stretch alone
        self._at(position)
        if self._counted:
            return self._requests[position]
        alone = Stretch(0, self._places[position], 1)
        self._region.loads(&alone, 1, &requests, &tokens)
        return requests

    def position(self, int64_t number):
        cdef int64_t low = 0, high = self.ready, middle
        while low < high:
            middle = (low + high) >> 1
            if self._numbers[middle] < number:
                low = middle + 1
            else:
                high = middle
        return low if low < self.ready and self._numbers[low] == number else -1

    cdef int _at(self, int64_t position) except -1:
        if not 0 <= position < self.ready:
            raise IndexError(f"position {position} of {self.ready} ready workers")
        return 0

    def number(self, int64_t position):
        self._at(position)
        return self._numbers[position]

    def matched(self, int64_t position):
        self._at(position)
        return self._matched[position]

    def numbers(self):
        return [self._numbers[at] for at in range(self.ready)]

    def requests(self):
        self._count()
        return [self._requests[at] for at in range(self.ready)]

    def tokens(self):
        self._count()
        return [self._tokens[at] for at in range(self.ready)]
