"""Concatenation of large buffers without the GIL: requests with images are megabytes, and token streams must not wait.

``bytes.join`` holds the GIL while it copies and while the kernel hands out fresh pages, which takes milliseconds per
ten megabytes. Here only the allocation does, unless there is little to copy.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy

cdef enum:
    # Bytes from which on others may run meanwhile. For less, having to wait for the GIL afterwards can cost far more.
    LARGE = 1 << 20


cdef void _copy(const Py_buffer *views, Py_ssize_t count, char *out) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        memcpy(out, views[index].buf, views[index].len)
        out += views[index].len


def join(list parts not None):
    """Bytes of all ``parts`` (contiguous buffers) in order. Raises TypeError, BufferError or MemoryError."""
    cdef Py_ssize_t count = len(parts), opened = 0, total = 0, index
    cdef Py_buffer *views
    cdef char *out
    cdef bytes result
    if count == 0:
        return b""
    views = <Py_buffer *>PyMem_Malloc(count * sizeof(Py_buffer))
    if views == NULL:
        raise MemoryError()
    try:
        for index in range(count):
            PyObject_GetBuffer(parts[index], &views[index], PyBUF_SIMPLE)
            opened += 1
            total += views[index].len
        result = PyBytes_FromStringAndSize(NULL, total)
        # Nobody else has seen these bytes yet, so they may still be written.
        out = PyBytes_AS_STRING(result)
        if total >= LARGE:
            with nogil:
                _copy(views, count, out)
        else:
            _copy(views, count, out)
        return result
    finally:
        for index in range(opened):
            PyBuffer_Release(&views[index])
        PyMem_Free(views)
