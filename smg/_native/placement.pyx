"""Where a prompt goes: loads, prefixes and the price of every worker, in one pass without Python (spec routing 10.4).

A Placement is made once per list of workers and used for many prompts: ``survey`` looks who is ready and how busy,
``match`` what each of them holds, ``cheapest`` weighs both. Positions count the ready workers, as ``survey`` found them.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from smg._native.prefix_index cimport PrefixIndex
from smg._native.prefix_keys cimport PrefixKeys
from smg._native.prefix_segment cimport COLUMNS
from smg._native.prefix_table cimport PLANES
from smg._native.region cimport Region

SPREAD = 0
PREFIX = 1
LOAD = 2


cdef class Placement:
    cdef Region _region
    cdef int64_t _size
    cdef readonly int64_t ready
    cdef int *_slots
    cdef int *_ready_slots
    cdef int64_t *_numbers
    cdef int64_t *_requests
    cdef int64_t *_tokens
    cdef int64_t *_matched
    cdef int64_t *_depths
    cdef int64_t *_scratch

    def __cinit__(self, Region region not None, slots):
        cdef int64_t at
        self._region = region
        self._size = len(slots)
        self._slots = <int *>malloc((2 * self._size + 1) * sizeof(int))
        self._numbers = <int64_t *>malloc((6 * self._size + PLANES * COLUMNS) * sizeof(int64_t))
        if self._slots == NULL or self._numbers == NULL:
            raise MemoryError
        self._ready_slots = self._slots + self._size
        self._requests = self._numbers + self._size
        self._tokens = self._numbers + 2 * self._size
        self._matched = self._numbers + 3 * self._size
        self._depths = self._numbers + 4 * self._size
        self._scratch = self._numbers + 6 * self._size
        for at in range(self._size):
            if not 0 <= slots[at] < region.workers:
                raise IndexError(f"worker slot {slots[at]} of {region.workers}")
            self._slots[at] = slots[at]

    def __dealloc__(self):
        free(self._slots)
        free(self._numbers)

    def __len__(self):
        return self._size

    def survey(self, skip=()):
        self._region._open()
        cdef int64_t at
        self._region.survey(self._slots, self._size, self._requests, self._tokens)
        for at in skip:
            if not 0 <= at < self._size:
                raise IndexError(f"worker {at} of {self._size}")
            self._requests[at] = -1
        self.ready = 0
        for at in range(self._size):
            if self._requests[at] >= 0:
                self._numbers[self.ready] = at
                self._ready_slots[self.ready] = self._slots[at]
                self._requests[self.ready] = self._requests[at]
                self._tokens[self.ready] = self._tokens[at]
                self._matched[self.ready] = 0
                self.ready += 1
        return self.ready

    def match(self, PrefixIndex index not None, PrefixKeys keys not None, bint primary=True):
        index._open()
        cdef int64_t at, block, other = 0
        for at in range(self.ready):
            index._known(self._ready_slots[at])
        index.depths(keys, self._ready_slots, self.ready, self._scratch, self._depths)
        for at in range(self.ready):
            # Text has no exact plane: engines tell of tokens.
            block = <int64_t>index.live_at(self._ready_slots[at]) if keys.block else 0
            if block == 0 and primary:
                self._matched[at] = keys.reach(self._depths[2 * at])
            elif block != 0 and block == keys.block:
                self._matched[at] = keys.reach(self._depths[2 * at + 1])
            elif block != 0:
                other = block
        return other

    def cheapest(
        self,
        double length,
        double request_price,
        double threshold,
        int64_t absolute,
        double relative,
        int64_t start=0,
        double scale=1.0,
    ):
        cdef int64_t turn, at, best = -1, least = 0, most = 0
        cdef double price, lowest = 0, held
        if self.ready == 0:
            raise ValueError("no worker is ready")
        for at in range(self.ready):
            if at == 0 or self._requests[at] < least:
                least = self._requests[at]
            if at == 0 or self._requests[at] > most:
                most = self._requests[at]
        cdef bint spread = most - least > absolute and most > relative * least
        start = start % self.ready
        for turn in range(self.ready):
            at = start + turn if start + turn < self.ready else start + turn - self.ready
            held = self._matched[at] if self._matched[at] > threshold * length else 0
            price = self._tokens[at] + (length - held) * scale + request_price * self._requests[at]
            if spread:
                # Far apart: the shortest queue, and among equals the cheapest.
                price += (self._requests[at] - least) * 1e15
            if best < 0 or price < lowest:
                best = at
                lowest = price
        if spread:
            return best, SPREAD
        return best, PREFIX if self._matched[best] > threshold * length else LOAD

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
        return [self._requests[at] for at in range(self.ready)]

    def tokens(self):
        return [self._tokens[at] for at in range(self.ready)]
