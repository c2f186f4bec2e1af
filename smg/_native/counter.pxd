"""Running numbers for native callers, who take them by pointer without the GIL."""


cdef class Counter:
    cdef public long long value
