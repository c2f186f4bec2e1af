"""A growable run of bytes for nogil code: append at the end, take from the front.

``data`` comes from ``malloc`` and is aligned for any type, so a buffer may also hold structs of one kind. All zero bytes
is an empty buffer. Functions that need memory return NULL or False without it and leave the content as it was.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove


cdef struct Buffer:
    uint8_t *data
    size_t size
    size_t room


cdef inline uint8_t *buffer_reserve(Buffer *buffer, size_t extra) noexcept nogil:
    """Make room for ``extra`` bytes more; return where they go. The caller adds to ``size`` what it writes."""
    cdef size_t wanted = buffer.size + extra
    cdef size_t room = buffer.room
    cdef uint8_t *data
    if wanted > room or room == 0:
        if room == 0:
            room = 256
        while room < wanted:
            room *= 2
        data = <uint8_t *>realloc(buffer.data, room)
        if data is NULL:
            return NULL
        buffer.data = data
        buffer.room = room
    return buffer.data + buffer.size


cdef inline bint buffer_append(Buffer *buffer, const void *data, size_t size) noexcept nogil:
    cdef uint8_t *end = buffer_reserve(buffer, size)
    if end is NULL:
        return False
    if size:
        memcpy(end, data, size)
        buffer.size += size
    return True


cdef inline void buffer_drop(Buffer *buffer, size_t size) noexcept nogil:
    """Remove ``size`` bytes at the front."""
    buffer.size -= size
    if buffer.size and size:
        memmove(buffer.data, buffer.data + size, buffer.size)


cdef inline void buffer_clear(Buffer *buffer, size_t keep) noexcept nogil:
    """Empty the buffer; its memory goes back when it is more than ``keep`` bytes."""
    buffer.size = 0
    if buffer.room > keep:
        free(buffer.data)
        buffer.data = NULL
        buffer.room = 0
