from libc.stdint cimport int64_t

from smg._native.atomics cimport cell
from smg._native.prefix_segment cimport PrefixSegment


cdef class PrefixTickets(PrefixSegment):
    cdef cell _clean[2][64]
    cdef bint _sweeping

    cdef bint _give(self, int64_t slot, int plane) except -1
    cdef bint _wipe(self, const cell *stale) noexcept nogil
