"""Merging of byte pairs: the table of merges, and the room that a long word needs."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    # Longest word, in bytes, that is merged without a heap.
    LONG = 64

cdef uint64_t NO_PAIR


cdef struct Pair:
    # Both symbols, the left one in the high half; NO_PAIR in an empty place.
    uint64_t symbols
    int32_t rank
    int32_t merged


cdef struct Merges:
    const Pair *pairs
    uint64_t mask
    # [256]
    const int32_t *bytes_to_ids


cdef struct Room:
    # Neighbours to the right and, behind them, to the left; a heap of (rank, position); symbols there is room for.
    int32_t *next
    uint64_t *heap
    int64_t size


cdef inline uint64_t mix(uint64_t value) noexcept nogil:
    value ^= value >> 32
    value *= <uint64_t>0xD6E8FEB86659FD93
    value ^= value >> 32
    return value


cdef void fill_pairs(Pair *pairs, uint64_t places, const int32_t *triples, int64_t count) noexcept nogil
cdef void free_room(Room *room) noexcept nogil
cdef int64_t merge_short(const Merges *merges, const uint8_t *data, int64_t size, int32_t *symbols) noexcept nogil
cdef int64_t merge_long(
    const Merges *merges, const uint8_t *data, int64_t size, int32_t *symbols, Room *room
) noexcept nogil
