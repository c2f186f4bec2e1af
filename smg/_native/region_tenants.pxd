from smg._native.region_limits cimport RegionLimits
from smg._native.words cimport word


cdef class RegionTenants(RegionLimits):
    cdef word *_bucket(self, word row, word bucket) except NULL
