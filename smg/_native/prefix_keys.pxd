from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum:
    FEW = 32


cdef class PrefixKeys:
    cdef uint64_t *keys
    cdef uint64_t few[FEW]
    cdef readonly int64_t count
    cdef readonly int64_t units
    cdef readonly int64_t block

    cdef int _allocate(self, int64_t count) except -1


cdef uint64_t chain(uint64_t before, uint64_t content) noexcept nogil
cdef uint64_t salted(uint64_t prefix, uint64_t salt) noexcept nogil
cdef uint64_t content_of(const unsigned char *data, int64_t size, uint64_t extra) noexcept nogil
cdef uint32_t *narrow_ids(list ids, int64_t count) except NULL
cdef int64_t rung(int64_t number) noexcept nogil
cdef PrefixKeys keys_of_tokens(object ids, int64_t block, uint64_t salt, uint64_t adapter)
cdef PrefixKeys keys_of_text(object text, uint64_t salt)
