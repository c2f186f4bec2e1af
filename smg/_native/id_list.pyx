"""Token ids as Python sees them: few as a list of ints, many as an array of unsigned ints.

Who makes, reads or frees 100,000 ints holds the GIL for milliseconds, and an event loop waits for it (field case PF-01).
An array costs a copy. Short ones stay lists: they are what is compared, joined and written as JSON everywhere.
"""

from array import array

from cpython cimport array
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromLong
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef enum:
    _LONG = 16 * 1024

LONG_IDS = _LONG

cdef array.array _KIND = array("I")


cdef object id_list(const int32_t *ids, int64_t count):
    """Copy ids, none of which is negative."""
    cdef int64_t at
    cdef list few
    cdef array.array many
    if count >= _LONG:
        many = array.clone(_KIND, count, False)
        memcpy(many.data.as_voidptr, ids, count * sizeof(int32_t))
        return many
    few = PyList_New(count)
    for at in range(count):
        value = PyLong_FromLong(ids[at])
        Py_INCREF(value)
        PyList_SET_ITEM(few, at, value)
    return few


cdef int32_t *_narrow_array(const uint32_t[::1] ids, int64_t *count) except NULL:
    count[0] = ids.shape[0]
    cdef int32_t *out = <int32_t *>malloc((count[0] + 1) * sizeof(int32_t))
    if out == NULL:
        raise MemoryError
    if count[0]:
        memcpy(out, &ids[0], count[0] * sizeof(int32_t))
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


def joined(head, tail):
    """See the stub."""
    if not head or not tail:
        return tail or head
    if type(head) is list and type(tail) is list:
        return compact(head + tail)
    return array("I", head) + array("I", tail)
