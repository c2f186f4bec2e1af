"""Escaping and numbers for native callers that write events without the GIL."""

# Kinds of holes, and room for a signed 64-bit number.
cdef enum:
    TEXT = 0
    SEQUENCE = 1
    DIGITS = 20

cdef Py_ssize_t escaped_size(const unsigned char *source, Py_ssize_t size) noexcept nogil
cdef char *write_escaped(const unsigned char *source, Py_ssize_t size, Py_ssize_t escaped, char *out) noexcept nogil
cdef int write_decimal(long long number, char *digits) noexcept nogil
cdef int hole_kind(object name) except -1
