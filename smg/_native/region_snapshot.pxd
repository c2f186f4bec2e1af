from smg._native.region_tenants cimport RegionTenants


cdef class RegionSnapshot(RegionTenants):
    pass
