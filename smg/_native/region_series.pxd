from smg._native.region_snapshot cimport RegionSnapshot
from smg._native.words cimport word


cdef class RegionSeries(RegionSnapshot):
    cdef void _clear_gauges(self, word process) noexcept nogil
    cdef bint _is(self, word index, word tag, const char *key, word size) noexcept nogil
    cdef word *_cell(self, word process, word index) except? NULL
