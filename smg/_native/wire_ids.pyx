"""Protobuf writer of a prompt's ids: a message with one packed field in it (spec engine-contract 3).

Prompts have up to a million ids, and a request is written on the event loop. What takes time there is fresh memory more
than anything else, so the ids go from their list or array straight to their place in the message, which is allocated
once. From an array they go there without the GIL.
"""

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport PyObject
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from smg._native.small_int cimport small_int

cdef extern from "Python.h":
    PyObject **PySequence_Fast_ITEMS(object sequence)
    long long PyLong_AsLongLongAndOverflow(PyObject *value, int *overflow) except? -1

cdef enum:
    # Wire type of a field with a length.
    _BYTES = 2
    # So many ids have room on the stack.
    _FEW = 1024


cdef inline size_t _width(uint64_t value) noexcept nogil:
    """Bytes of the varint of ``value``."""
    cdef size_t width = 1
    while value > 0x7F:
        value >>= 7
        width += 1
    return width


cdef inline uint8_t *_put(uint8_t *out, uint64_t value) noexcept nogil:
    while value > 0x7F:
        out[0] = <uint8_t>(value & 0x7F | 0x80)
        out += 1
        value >>= 7
    out[0] = <uint8_t>value
    return out + 1


cdef inline int64_t _id(PyObject *item) except -1:
    """The uint32 of an int."""
    cdef long long value = 0
    cdef int overflow = 0
    if not small_int(item, &value):
        value = PyLong_AsLongLongAndOverflow(item, &overflow)
    # Also true for negative ones.
    if overflow or value >> 32:
        raise ValueError("a token id is no uint32")
    return value


cdef inline int64_t _id_width(int64_t value) noexcept nogil:
    """As ``_width`` for a uint32, without branches that depend on it."""
    return 1 + (value > 0x7F) + (value > 0x3FFF) + (value > 0x1FFFFF) + (value > 0xFFFFFFF)


cdef inline uint8_t *_put_id(uint8_t *out, int64_t value) noexcept nogil:
    """As ``_put``; most ids of large vocabularies take three bytes."""
    if 0x3FFF < value <= 0x1FFFFF:
        out[0] = <uint8_t>(value | 0x80)
        out[1] = <uint8_t>(value >> 7 | 0x80)
        out[2] = <uint8_t>(value >> 14)
        return out + 3
    return _put(out, value)


cdef int64_t _measure(PyObject **items, size_t count) except -1:
    """Bytes of all varints."""
    cdef size_t at
    cdef int64_t total = 0
    for at in range(count):
        total += _id_width(_id(items[at]))
    return total


cdef int _pack(PyObject **items, size_t count, uint8_t *out) except -1:
    """Write the varints."""
    cdef size_t at
    for at in range(count):
        out = _put_id(out, _id(items[at]))
    return 0


cdef inline bytes _begun(bytes message, size_t size, uint64_t outer, uint64_t inner, uint8_t **behind):
    """Everything but the varints, which have ``size`` bytes and belong at ``behind``."""
    cdef size_t before = len(message), nested = 1 + _width(size) + size
    cdef bytes data = PyBytes_FromStringAndSize(NULL, before + 1 + _width(nested) + nested)
    cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(data)
    memcpy(out, PyBytes_AS_STRING(message), before)
    out = _put(_put(out + before, outer << 3 | _BYTES), nested)
    behind[0] = _put(_put(out, inner << 3 | _BYTES), size)
    return data


cdef bytes _with_array(bytes message, const uint32_t[::1] ids, uint64_t outer, uint64_t inner):
    """As ``with_ids``. Nobody changes the size of an array that is looked at."""
    cdef Py_ssize_t at, count = ids.shape[0]
    cdef int64_t size = 0
    cdef uint8_t *out = NULL
    with nogil:
        for at in range(count):
            size += _id_width(ids[at])
    cdef bytes data = _begun(message, size, outer, inner, &out)
    with nogil:
        for at in range(count):
            out = _put_id(out, ids[at])
    return data


cdef bytes _with_few(bytes message, PyObject **items, size_t count, uint64_t outer, uint64_t inner):
    """As ``with_ids``, reading each int once."""
    cdef uint32_t[_FEW] ids
    cdef size_t at
    cdef int64_t size = 0, value
    cdef uint8_t *out = NULL
    for at in range(count):
        value = _id(items[at])
        ids[at] = <uint32_t>value
        size += _id_width(value)
    cdef bytes data = _begun(message, size, outer, inner, &out)
    for at in range(count):
        out = _put_id(out, ids[at])
    return data


def with_ids(bytes message not None, ids, uint64_t outer, uint64_t inner):
    if not (1 <= outer <= 15 and 1 <= inner <= 15):
        raise ValueError("only field numbers of one byte")
    if PyObject_CheckBuffer(ids):
        return _with_array(message, ids, outer, inner)
    # A tuple or a list cannot change meanwhile: no other code runs before the last id is written.
    cdef object values = PySequence_Fast(ids, "token ids are a sequence of ints")
    cdef PyObject **items = PySequence_Fast_ITEMS(values)
    cdef size_t count = PySequence_Fast_GET_SIZE(values)
    cdef uint8_t *out = NULL
    cdef bytes data
    if count <= _FEW:
        return _with_few(message, items, count, outer, inner)
    data = _begun(message, _measure(items, count), outer, inner, &out)
    _pack(items, count, out)
    return data
