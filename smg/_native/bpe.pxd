"""Layout of the byte-level BPE encoder: its tables, read by all threads, and what one encoding works with."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from smg._native.bpe_merge cimport Room
from smg._native.bpe_tables cimport Tables


cdef struct Known:
    # A word seen before: its bytes and its ids lie in the arenas. size 0: an empty place.
    uint64_t hash
    uint32_t text_at
    uint32_t ids_at
    uint16_t size
    uint16_t count


cdef struct Work:
    # Remembered words.
    Known *known
    uint8_t *texts
    int32_t *known_ids
    uint32_t texts_used
    uint32_t ids_used
    Room room
    # The ids so far.
    int32_t *out
    int64_t count
    int64_t out_room


cdef class Workspace:
    cdef Work work


cdef class ByteBpe:
    cdef Tables tables
    cdef Py_buffer view
    cdef bint held
    cdef list idle
