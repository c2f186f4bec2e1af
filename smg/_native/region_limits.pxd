from smg._native.region_workers cimport RegionWorkers


cdef class RegionLimits(RegionWorkers):
    pass
