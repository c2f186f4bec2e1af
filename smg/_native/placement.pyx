"""Where a prompt goes: loads, prefixes and the price of every worker, in one pass without Python (spec routing 10.4).

A Placement is made once per list of workers and used for many prompts: ``survey`` looks who is ready, ``match`` what each
of them holds, ``cheapest`` weighs that against how busy they are. How busy is counted when it is first asked for. Positions count the ready workers, as ``survey`` found them.

Whoever is overloaded is passed over by ``cheapest``, whatever it holds, and nobody else is: of the workers near the least
loaded one a warm one still wins (field case RO-03).
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from smg._native.atomics cimport c_load, c_load_acquire
from smg._native.prefix_index cimport PrefixIndex
from smg._native.prefix_keys cimport PrefixKeys
from smg._native.prefix_segment cimport COLUMNS, H_EVENTS
from smg._native.prefix_table cimport APPROXIMATE, EXACT, PLANES
from smg._native.prices cimport FINE, LITTLE, Terms, extremes, lowest_price, set_prices
from smg._native.region cimport Region
from smg._native.region import QUEUED_TOKENS, USAGE

SPREAD = 0
PREFIX = 1
LOAD = 2

cdef enum:
    _MILLION = 1000000

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
    cdef char *_avoid
    cdef char *_passed
    # Of the ready workers, by position.
    cdef int *_numbers
    cdef int *_places
    cdef int *_requests
    cdef int *_matched
    cdef int64_t *_tokens
    cdef int64_t *_computed
    cdef int64_t *_prices
    cdef int *_scratch

    def __cinit__(self, Region region not None, slots):
        cdef int64_t at, size = len(slots)
        self._region = region
        self._size = size
        self._slots = <int *>malloc((5 * size + PLANES * COLUMNS) * sizeof(int))
        self._tokens = <int64_t *>malloc((3 * size + 1) * sizeof(int64_t))
        self._skip = <char *>calloc(size + 1, 1)
        self._planes = <signed char *>malloc(size + 1)
        self._avoid = <char *>malloc(2 * size + 1)
        if not (self._slots and self._tokens and self._skip and self._planes and self._avoid):
            raise MemoryError
        self._computed = self._tokens + size
        self._prices = self._tokens + 2 * size
        self._passed = self._avoid + size
        self._numbers = self._slots + size
        self._places = self._slots + 2 * size
        self._requests = self._slots + 3 * size
        self._matched = self._slots + 4 * size
        self._scratch = self._slots + 5 * size
        for at in range(size):
            if not 0 <= slots[at] < region.workers:
                raise IndexError(f"worker slot {slots[at]} of {region.workers}")
            self._slots[at] = slots[at]
            self._highest = max(self._highest, <int64_t>self._slots[at])

    def __dealloc__(self):
        free(self._slots)
        free(self._tokens)
        free(self._skip)
        free(self._planes)
        free(self._avoid)

    def __len__(self):
        return self._size

    def survey(self, skip=()):
        self._region._open()
        cdef int64_t at
        for number in skip:
            if not 0 <= number < self._size:
                raise IndexError(f"worker {number} of {self._size}")
        for at in skip:
            self._skip[at] = 1
        self.ready = self._region.muster(self._slots, self._size, self._skip, self._numbers, self._places)
        for at in skip:
            self._skip[at] = 0
        memset(self._matched, 0, self.ready * sizeof(int))
        self._avoiding = self._counted = False
        return self.ready

    cdef void _count(self) noexcept nogil:
        if not self._counted:
            self._region.loads(self._places, self.ready, self._requests, self._tokens)
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
        cdef int64_t other = 0
        cdef bint told = keys.block and c_load(index._base + H_EVENTS)
        if self.ready == 0:
            return 0
        index._known(self._highest)
        # Text has no exact plane: engines tell of tokens.
        if told or not primary:
            other = self._choose_planes(index, keys.block, primary)
            index.depths(keys, self._places, self._planes, self.ready, True, self._scratch, self._matched)
        else:
            index.depths(keys, self._places, NULL, self.ready, True, self._scratch, self._matched)
        return other

    cdef int64_t _choose_planes(self, PrefixIndex index, int64_t size, bint primary) noexcept nogil:
        """Which plane each ready worker is asked in; returns a block size that live ones have instead."""
        cdef int64_t at, block, other = 0
        for at in range(self.ready):
            block = <int64_t>c_load_acquire(index._live + self._places[at]) if size else 0
            self._planes[at] = -1
            if block == 0:
                if primary:
                    self._planes[at] = APPROXIMATE
            elif block == size:
                self._planes[at] = EXACT
            else:
                other = block
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
        cdef int64_t cut = <int64_t>(threshold * length)
        cdef Terms terms
        cdef int least = 0, most = 0
        if self.ready == 0:
            raise ValueError("no worker is ready")
        self._count()
        total = self._region.computed(self._places, self.ready, self._computed) + self.ready * LITTLE
        terms.length = length
        terms.request = <int64_t>(FINE * request_price)
        terms.cut = cut
        terms.unit = FINE * scale
        # What makes of a worker's computed tokens their ratio to the mean of all.
        terms.share = FINE * turnover * (self.ready / <double>total)
        set_prices(
            &terms, self._tokens, self._requests, self._matched, self._computed, self.ready, self._prices
        )
        start = start % self.ready
        ideal = lowest_price(self._prices, NULL, self.ready, start)
        extremes(self._requests, self.ready, &least, &most)
        if self._avoiding or (most - least > absolute and most > relative * least):
            self._pass_over(least, absolute, relative)
            best = lowest_price(self._prices, self._passed, self.ready, start)
        else:
            best = ideal
        if best < 0:
            # Those with few requests have full caches, and the other way round.
            best = ideal
        if best != ideal:
            return best, SPREAD
        return best, PREFIX if self._matched[best] > cut else LOAD

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
        cdef int64_t at, total = 0
        self._count()
        for at in range(self.ready):
            total += self._requests[at]
        return total

    def backlog(self):
        cdef int64_t at
        cdef double total = 0
        self._count()
        for at in range(self.ready):
            total += self._tokens[at]
        return total / self.ready if self.ready else 0.0

    def load(self, int64_t position):
        cdef int requests
        cdef int64_t tokens
        self._at(position)
        if self._counted:
            return self._requests[position]
        self._region.loads(self._slots + self._numbers[position], 1, &requests, &tokens)
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
