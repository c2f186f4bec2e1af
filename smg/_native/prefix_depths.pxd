from libc.stdint cimport int64_t, uint64_t

from smg._native.atomics cimport cell
from smg._native.prefix_keys cimport PrefixKeys
from smg._native.prefix_tickets cimport PrefixTickets


cdef class PrefixDepths(PrefixTickets):
    cdef void _walk(
        self, const uint64_t *keys, int64_t count, cell group, const cell *asked, int *lanes
    ) noexcept nogil
    cdef int64_t _leap(
        self, const uint64_t *keys, int64_t count, cell group, cell asked, int64_t guess, int *lanes
    ) noexcept nogil
    cdef void depths(self, PrefixKeys keys, const cell *asked, int *lanes) noexcept nogil
    cdef void lanes(
        self, const int *slots, const signed char *planes, int64_t count, cell *asked, int *out
    ) noexcept nogil
    cdef void _foresee(self, PrefixKeys keys) noexcept nogil
