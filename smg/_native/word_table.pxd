"""Layout of a table of texts and their ids, for native callers that look words up without the GIL."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from smg._native.bpe_merge cimport mix


cdef struct Entry:
    # The upper half of the text's hash; the lower one tells where to begin to look.
    uint32_t hash
    uint32_t text_at
    uint32_t size
    # -1: an empty place.
    int32_t id


cdef struct Words:
    # NULL: no table.
    const Entry *entries
    uint64_t mask
    const uint8_t *texts


cdef inline uint64_t hash_bytes(const uint8_t *data, uint64_t size) noexcept nogil:
    cdef uint64_t value = size, word
    while size >= 8:
        memcpy(&word, data, 8)
        value = (value ^ word) * <uint64_t>0x9E3779B97F4A7C15
        value ^= value >> 29
        data += 8
        size -= 8
    word = 0
    memcpy(&word, data, size)
    return mix(value ^ word)


cdef inline int32_t find_word(const Words *words, uint64_t hash, const uint8_t *data, uint64_t size) noexcept nogil:
    """Return the id of a text whose ``hash_bytes`` is known, -1 for others."""
    cdef uint64_t at = hash & words.mask
    cdef const Entry *entry = &words.entries[at]
    # An open table is at most half full, so there always is an empty place.
    while entry.id >= 0:
        if entry.hash == hash >> 32 and entry.size == size and not memcmp(words.texts + entry.text_at, data, size):
            return entry.id
        at = (at + 1) & words.mask
        entry = &words.entries[at]
    return -1


cdef int open_words(Words *words, const uint8_t *data, uint64_t size) noexcept nogil
cdef bytes pack_words(dict ids)


cdef class WordTable:
    cdef Words words
    cdef Py_buffer view
    cdef bint held
