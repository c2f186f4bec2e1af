from smg._native.region_series cimport RegionSeries


cdef class Region(RegionSeries):
    cdef readonly object index
