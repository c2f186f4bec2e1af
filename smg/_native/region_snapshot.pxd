from smg._native.region_limits cimport RegionLimits


cdef class RegionSnapshot(RegionLimits):
    pass
