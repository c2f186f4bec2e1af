"""Merging of byte pairs: of all neighbours the pair with the lowest rank first, the leftmost of equals (DESIGN 5).

This is the rule of the tokenizers library. Short words are searched from end to end for each merge; from ``LONG`` bytes
on a heap keeps a long run of one character from taking quadratic time.
"""

from libc.stdlib cimport free, realloc

cdef enum:
    NO_RANK = 0x7FFFFFFF

cdef uint64_t NO_PAIR = <uint64_t>-1


cdef inline const Pair *_pair(const Merges *merges, int32_t left, int32_t right) noexcept nogil:
    """Return what the pair merges to; NULL when it does not."""
    cdef uint64_t symbols = <uint64_t><uint32_t>left << 32 | <uint32_t>right
    cdef uint64_t at = mix(symbols) & merges.mask
    while merges.pairs[at].symbols != symbols:
        if merges.pairs[at].symbols == NO_PAIR:
            return NULL
        at = (at + 1) & merges.mask
    return &merges.pairs[at]


cdef inline void _rank(const Merges *merges, const int32_t *symbols, int64_t at, int32_t *ranks, int32_t *merged) noexcept nogil:
    cdef const Pair *pair = _pair(merges, symbols[at], symbols[at + 1])
    ranks[at] = NO_RANK if pair == NULL else pair.rank
    merged[at] = 0 if pair == NULL else pair.merged


cdef int64_t merge_short(const Merges *merges, const uint8_t *data, int64_t size, int32_t *symbols) noexcept nogil:
    """Write the ids of a word of up to ``LONG`` bytes; return how many."""
    cdef int32_t[LONG] ranks
    cdef int32_t[LONG] merged
    cdef int64_t at, best
    for at in range(size):
        symbols[at] = merges.bytes_to_ids[data[at]]
    for at in range(size - 1):
        _rank(merges, symbols, at, ranks, merged)
    while size > 1:
        best = 0
        for at in range(1, size - 1):
            if ranks[at] < ranks[best]:
                best = at
        if ranks[best] == NO_RANK:
            break
        symbols[best] = merged[best]
        for at in range(best + 1, size - 1):
            symbols[at] = symbols[at + 1]
        for at in range(best + 1, size - 2):
            ranks[at] = ranks[at + 1]
            merged[at] = merged[at + 1]
        size -= 1
        if best + 1 < size:
            _rank(merges, symbols, best, ranks, merged)
        if best:
            _rank(merges, symbols, best - 1, ranks, merged)
    return size


cdef void _sift_up(uint64_t *heap, int64_t at) noexcept nogil:
    cdef uint64_t value = heap[at]
    while at and heap[(at - 1) >> 1] > value:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = value


cdef uint64_t _pop(uint64_t *heap, int64_t *count) noexcept nogil:
    cdef uint64_t top = heap[0], value
    cdef int64_t at = 0, child
    count[0] -= 1
    value = heap[count[0]]
    while True:
        child = 2 * at + 1
        if child >= count[0]:
            break
        if child + 1 < count[0] and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value
    return top


cdef int _long_room(Room *room, int64_t size) noexcept nogil:
    """Make room for a word of ``size`` bytes; -1 when there is no memory."""
    cdef void *grown
    if size <= room.size:
        return 0
    # Each merge adds at most two pairs to the heap, and there are fewer merges than symbols.
    grown = realloc(room.heap, 3 * size * sizeof(uint64_t))
    if grown == NULL:
        return -1
    room.heap = <uint64_t *>grown
    grown = realloc(room.next, 2 * size * sizeof(int32_t))
    if grown == NULL:
        return -1
    room.next = <int32_t *>grown
    room.size = size
    return 0


cdef inline void _push(const Merges *merges, Room *room, const int32_t *symbols, int64_t at, int64_t *count) noexcept nogil:
    """Put the pair that begins at ``at`` on the heap, if it merges."""
    cdef const Pair *pair
    if room.next[at] < 0:
        return
    pair = _pair(merges, symbols[at], symbols[room.next[at]])
    if pair != NULL:
        room.heap[count[0]] = <uint64_t>pair.rank << 32 | <uint64_t>at
        _sift_up(room.heap, count[0])
        count[0] += 1


cdef int64_t merge_long(
    const Merges *merges, const uint8_t *data, int64_t size, int32_t *symbols, Room *room
) noexcept nogil:
    """Write the ids of a word; return how many, or -1 when there is no memory."""
    cdef int64_t at, right, count = 0, kept = 0
    cdef int32_t *before
    cdef const Pair *pair
    cdef uint64_t top
    if _long_room(room, size) < 0:
        return -1
    before = room.next + size
    for at in range(size):
        symbols[at] = merges.bytes_to_ids[data[at]]
        room.next[at] = <int32_t>(at + 1) if at + 1 < size else -1
        before[at] = <int32_t>(at - 1)
    for at in range(size):
        _push(merges, room, symbols, at, &count)
    while count:
        top = _pop(room.heap, &count)
        at = <int64_t><uint32_t>top
        if symbols[at] < 0 or room.next[at] < 0:
            continue
        right = room.next[at]
        pair = _pair(merges, symbols[at], symbols[right])
        # What stood on the heap may have been merged with a neighbour since.
        if pair == NULL or <uint64_t>pair.rank != top >> 32:
            continue
        symbols[at] = pair.merged
        symbols[right] = -1
        room.next[at] = room.next[right]
        if room.next[at] >= 0:
            before[room.next[at]] = <int32_t>at
        _push(merges, room, symbols, at, &count)
        if before[at] >= 0:
            _push(merges, room, symbols, before[at], &count)
    for at in range(size):
        if symbols[at] >= 0:
            symbols[kept] = symbols[at]
            kept += 1
    return kept


cdef void fill_pairs(Pair *pairs, uint64_t places, const int32_t *triples, int64_t count) noexcept nogil:
    """Fill a table of ``places``, at least twice ``count``, from (left, right, both) in the order of ranks."""
    cdef uint64_t symbols, at
    cdef int64_t rank
    for at in range(places):
        pairs[at] = Pair(symbols=NO_PAIR, rank=0, merged=0)
    for rank in range(count):
        symbols = <uint64_t><uint32_t>triples[3 * rank] << 32 | <uint32_t>triples[3 * rank + 1]
        at = mix(symbols) & (places - 1)
        while pairs[at].symbols != NO_PAIR and pairs[at].symbols != symbols:
            at = (at + 1) & (places - 1)
        # Of two equal pairs the library keeps the last.
        pairs[at] = Pair(symbols=symbols, rank=<int32_t>rank, merged=triples[3 * rank + 2])


cdef void free_room(Room *room) noexcept nogil:
    free(room.next)
    free(room.heap)
