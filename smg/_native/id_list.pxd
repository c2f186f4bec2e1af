"""Token ids between C and Python."""

from libc.stdint cimport int32_t, int64_t

cdef object id_list(const int32_t *ids, int64_t count)
cdef int32_t *narrow(object ids, int64_t *count) except NULL
