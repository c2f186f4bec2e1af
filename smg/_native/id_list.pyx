"""Token ids as Python sees them: few as a list of ints, many as an array of unsigned ints.

Who makes, reads or frees 100,000 ints holds the GIL for milliseconds, and an event loop waits for it (field case PF-01).
An array costs a copy. Short ones stay lists: they are what is compared, joined and written as JSON everywhere.
"""

from array import array

from cpython cimport array
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromLong
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from smg._native.small_int cimport small_int

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1

cdef enum:
    _LONG = 16 * 1024
    # No vocabulary has more.
    _LAST = 0x7FFFFFFF

LONG_IDS = _LONG

cdef array.array _KIND = array("I")


cdef object id_list(const int32_t *ids, int64_t count):
    """Copy ids, none of which is negative."""
    cdef int64_t at
    cdef list few
    cdef array.array many
    cdef void *out
    if count >= _LONG:
        many = array.clone(_KIND, count, False)
        out = many.data.as_voidptr
        # Nobody else has it yet, and what takes time is its fresh memory.
        with nogil:
            memcpy(out, ids, count * sizeof(int32_t))
        return many
    few = PyList_New(count)
    for at in range(count):
        value = PyLong_FromLong(ids[at])
        Py_INCREF(value)
        PyList_SET_ITEM(few, at, value)
    return few


cdef int32_t *_narrow_array(const uint32_t[::1] ids, int64_t *count) except NULL:
    cdef int64_t size = ids.shape[0]
    cdef int32_t *out
    count[0] = size
    with nogil:
        out = <int32_t *>malloc((size + 1) * sizeof(int32_t))
        if out != NULL and size:
            memcpy(out, &ids[0], size * sizeof(int32_t))
    if out == NULL:
        raise MemoryError
    return out


cdef int32_t *narrow(object ids, int64_t *count) except NULL:
    """Copy a list or an array to C; the caller frees it."""
    cdef int64_t at
    cdef list few
    cdef int32_t *out
    if PyObject_CheckBuffer(ids):
        return _narrow_array(ids, count)
    few = ids
    count[0] = len(few)
    out = <int32_t *>malloc((count[0] + 1) * sizeof(int32_t))
    if out == NULL:
        raise MemoryError
    try:
        for at in range(count[0]):
            out[at] = few[at]
    except BaseException:
        free(out)
        raise
    return out


def compact(ids not None):
    """See the stub."""
    return array("I", ids) if type(ids) is list and len(ids) >= _LONG else ids


def are_ids(ids not None):
    """See the stub."""
    cdef long long value
    cdef int overflow = 0
    if type(ids) is not list:
        return not ids or (min(ids) >= 0 and max(ids) <= _LAST)
    for item in <list>ids:
        if not small_int(<PyObject *>item, &value):
            value = PyLong_AsLongLongAndOverflow(item, &overflow)
        if overflow or value < 0 or value > _LAST:
            return False
    return True


def joined(head, tail):
    """See the stub."""
    if not head or not tail:
        return tail or head
    if type(head) is list and type(tail) is list:
        return compact(head + tail)
    return array("I", head) + array("I", tail)


cdef inline int _digits(uint32_t value) noexcept nogil:
    return (
        1 + (value > 9) + (value > 99) + (value > 999) + (value > 9_999) + (value > 99_999) + (value > 999_999)
        + (value > 9_999_999) + (value > 99_999_999) + (value > 999_999_999)
    )


def as_json(const uint32_t[::1] ids not None):
    """See the stub."""
    cdef Py_ssize_t at, count = ids.shape[0], size = 2 + max(count - 1, 0)
    cdef int digit, width
    cdef uint32_t value
    cdef bytes made
    cdef char *out
    with nogil:
        for at in range(count):
            size += _digits(ids[at])
    made = PyBytes_FromStringAndSize(NULL, size)
    out = PyBytes_AS_STRING(made)
    with nogil:
        out[0] = b"["
        out += 1
        for at in range(count):
            if at:
                out[0] = b","
                out += 1
            value = ids[at]
            width = _digits(value)
            for digit in range(width - 1, -1, -1):
                out[digit] = <char>(48 + value % 10)
                value = value // 10
            out += width
        out[0] = b"]"
    return made
