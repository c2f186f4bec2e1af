from libc.stdint cimport int64_t, uint64_t

from smg._native.atomics cimport cell
from smg._native.prefix_depths cimport PrefixDepths
from smg._native.prefix_keys cimport PrefixKeys


cdef struct Late:
    cell key
    cell used
    cell ticket


cdef class PrefixIndex(PrefixDepths):
    cdef Late *_late
    cdef int64_t _late_count
    cdef readonly int64_t dropped

    cdef cell _next_tick(self) noexcept
    cdef int64_t _learn(self, PrefixKeys keys, cell ticket, cell tick, int64_t start, double *until)
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
    ) noexcept nogil
    cdef void _defer(self, cell key, cell used, cell ticket)
    cdef bint current(self, cell ticket) noexcept nogil
    cdef bint hold(self, cell ticket, cell key, cell patience) noexcept nogil
    cdef bint unhold(self, cell ticket, cell key, cell patience) noexcept nogil
