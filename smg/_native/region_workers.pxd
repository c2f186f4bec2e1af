from libc.stdint cimport int64_t

from smg._native.region_memory cimport RegionMemory
from smg._native.stretches cimport Stretch
from smg._native.words cimport word


cdef struct Loads:
    # Of all together.
    int64_t requests
    int64_t tokens
    # Requests of one; ``least`` means nothing when there is none.
    int least
    int most


cdef class RegionWorkers(RegionMemory):
    cdef word *_slot(self, word slot) except NULL
    cdef word *_field(self, word slot, word field) except NULL
    # The breaker's word of a slot, and four more that it keeps its record in.
    cdef word *_gate(self, word slot) except NULL
    cdef word *_record(self, word slot) except NULL
    # Counts what may make other workers ready than before, a gate's opening included; whoever changes a gate tells.
    cdef int64_t changes(self) noexcept nogil
    cdef void note_change(self) noexcept nogil
    # The ready slots that are not skipped and whose gate admits: their numbers in the list, and they themselves; both
    # have room for ``count``. Returns how many. Slots are in range. ``moved``: those that ``numbers`` had before are not
    # the same, apart from how many they are; ``steady``: they stay the same until ``changes`` moves.
    cdef int64_t muster(
        self, const int *slots, int64_t count, const char *skip, int *numbers, int *places, bint *moved, bint *steady
    ) noexcept nogil
    cdef int64_t _routing(self, const word **rows) noexcept nogil
    # Requests and tokens in flight of each slot, over all processes.
    cdef Loads loads(self, const Stretch *stretches, int64_t count, int *requests, int64_t *tokens) noexcept nogil
    # Tokens each slot has computed lately; returns their sum.
    cdef int64_t computed(self, const Stretch *stretches, int64_t count, int64_t *tokens) noexcept nogil
    # A field of a slot that is no column of its own; both are in range.
    cdef word field_at(self, word slot, word field) noexcept nogil
