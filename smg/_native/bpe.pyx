r"""Byte-level BPE without the GIL: words, remembered words, merges (DESIGN 5).

**Remembered words.** Most words of a text have been seen before, so a workspace keeps up to ``SLOTS`` of them with
their ids. A word is compared byte by byte, so a hash that collides costs a look, never an id. When the room for texts or
ids is used up, all of it is forgotten at once. A workspace belongs to one encoding at a time; there are as many as there
were encodings side by side.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_FromLong
from cpython.ref cimport Py_INCREF
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from smg._native.bpe_merge cimport (
    LONG,
    free_merges,
    free_room,
    make_merges,
    merge_long,
    merge_short,
    mix,
)
from smg._native.word_split cimport next_word, survey

cdef enum:
    SLOTS = 1 << 16
    MASK = SLOTS - 1
    PROBES = 8
    TEXT_ROOM = 1 << 20
    ID_ROOM = 1 << 18
    # Longer words are not remembered.
    KEPT = 128
    # A long text's room is given back.
    OUT_KEPT = 1 << 16

cdef inline uint64_t _hash(const uint8_t *data, int64_t size) noexcept nogil:
    cdef uint64_t value = <uint64_t>size, word
    while size >= 8:
        memcpy(&word, data, 8)
        value = (value ^ word) * <uint64_t>0x9E3779B97F4A7C15
        value ^= value >> 29
        data += 8
        size -= 8
    word = 0
    memcpy(&word, data, size)
    return mix(value ^ word)


cdef int _reserve(Work *work, int64_t more) noexcept nogil:
    """Make room for ``more`` ids; -1 when there is no memory."""
    cdef int64_t wanted = work.count + more
    cdef int32_t *grown
    if wanted <= work.out_room:
        return 0
    wanted = max(wanted, 2 * work.out_room)
    grown = <int32_t *>realloc(work.out, wanted * sizeof(int32_t))
    if grown == NULL:
        return -1
    work.out = grown
    work.out_room = wanted
    return 0


cdef inline int32_t _whole(const Tables *tables, uint64_t hash, const uint8_t *data, int64_t size) noexcept nogil:
    """Return the id of a word that is a token by itself, -1 for others."""
    cdef uint64_t at = hash & tables.whole_mask
    cdef const Whole *place = &tables.whole[at]
    while place.size:
        if place.hash == hash and place.size == size and not memcmp(tables.texts + place.text_at, data, size):
            return place.id
        at = (at + 1) & tables.whole_mask
        place = &tables.whole[at]
    return -1


cdef inline Known *_find(Work *work, uint64_t hash, const uint8_t *data, int64_t size, bint *found) noexcept nogil:
    """Return the place of a word, or the one where it belongs; within ``PROBES`` places of its hash."""
    cdef int step
    cdef Known *place
    found[0] = False
    for step in range(PROBES):
        place = &work.known[(hash + step) & MASK]
        if not place.size:
            return place
        if place.hash == hash and place.size == size and not memcmp(work.texts + place.text_at, data, size):
            found[0] = True
            return place
    return &work.known[hash & MASK]


cdef void _remember(
    Work *work, Known *place, uint64_t hash, const uint8_t *data, int64_t size, const int32_t *ids, int64_t count
) noexcept nogil:
    if work.texts_used + size > TEXT_ROOM or work.ids_used + count > ID_ROOM:
        memset(work.known, 0, SLOTS * sizeof(Known))
        work.texts_used = work.ids_used = 0
        # With the places before it empty, a word is found only at its first one.
        place = &work.known[hash & MASK]
    place.hash = hash
    place.text_at = work.texts_used
    place.ids_at = work.ids_used
    place.size = <uint16_t>size
    place.count = <uint16_t>count
    memcpy(work.texts + work.texts_used, data, size)
    memcpy(work.known_ids + work.ids_used, ids, count * sizeof(int32_t))
    work.texts_used += <uint32_t>size
    work.ids_used += <uint32_t>count


cdef int64_t _unseen(
    const Tables *tables, const uint8_t *data, int64_t size, int32_t *out, uint64_t hash, Work *work
) noexcept nogil:
    cdef int32_t token = _whole(tables, hash, data, size) if tables.whole != NULL else -1
    if token >= 0:
        out[0] = token
        return 1
    if size <= LONG:
        return merge_short(&tables.merges, data, size, out)
    return merge_long(&tables.merges, data, size, out, &work.room)


cdef int _word(const Tables *tables, const uint8_t *data, int64_t size, Work *work) noexcept nogil:
    """Append the ids of one word; -1 when there is no memory."""
    cdef uint64_t hash
    cdef Known *place = NULL
    cdef bint found = False
    cdef int64_t count
    cdef int32_t *out
    if _reserve(work, size) < 0:
        return -1
    out = work.out + work.count
    hash = _hash(data, size)
    if size <= KEPT:
        place = _find(work, hash, data, size, &found)
        if found:
            memcpy(out, work.known_ids + place.ids_at, place.count * sizeof(int32_t))
            work.count += place.count
            return 0
    count = _unseen(tables, data, size, out, hash, work)
    if count < 0:
        return -1
    if place != NULL:
        _remember(work, place, hash, data, size, out, count)
    work.count += count
    return 0


cdef int _stretch(const Tables *tables, const uint8_t *data, int64_t at, int64_t end, Work *work) noexcept nogil:
    """Append the ids of text without added tokens; -1 when there is no memory."""
    cdef int64_t start, bound = 0
    while at < end:
        start = at
        at = next_word(&tables.splitter, data, start, end, &bound)
        if _word(tables, data + start, at - start, work) < 0:
            return -1
    return 0


cdef int _encode(
    const Tables *tables, const uint8_t *data, int64_t size, const int64_t *marks, int64_t count, Work *work
) noexcept nogil:
    """Encode ``data`` around ``count`` added tokens, each (start, end, id)."""
    cdef int64_t number, at = 0
    work.count = 0
    for number in range(count):
        if _stretch(tables, data, at, marks[3 * number], work) < 0 or _reserve(work, 1) < 0:
            return -1
        if marks[3 * number + 2] >= 0:
            work.out[work.count] = <int32_t>marks[3 * number + 2]
            work.count += 1
        at = marks[3 * number + 1]
    return _stretch(tables, data, at, size, work)


cdef class Workspace:
    """What one encoding needs to itself: remembered words and room."""

    def __cinit__(self):
        self.work.known = <Known *>calloc(SLOTS, sizeof(Known))
        self.work.texts = <uint8_t *>malloc(TEXT_ROOM)
        self.work.known_ids = <int32_t *>malloc(ID_ROOM * sizeof(int32_t))
        if self.work.known == NULL or self.work.texts == NULL or self.work.known_ids == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.work.known)
        free(self.work.texts)
        free(self.work.known_ids)
        free_room(&self.work.room)
        free(self.work.out)


cdef uint64_t _places(Py_ssize_t count):
    """Return the number of places of a table for ``count`` entries that is at most half full."""
    cdef uint64_t places = 16
    while places < 2 * <uint64_t>count:
        places *= 2
    return places


cdef class ByteBpe:
    """See the stub."""

    def __cinit__(self, bytes_to_ids, bytes merges not None, dict words, bytes classes not None, int kind, int digits):
        cdef int number
        if len(bytes_to_ids) != 256 or PyBytes_GET_SIZE(merges) % 12 or PyBytes_GET_SIZE(classes) != 0x110000:
            raise ValueError("tables of the wrong size")
        for number in range(256):
            self.tables.merges.bytes_to_ids[number] = bytes_to_ids[number]
        self.classes = classes
        self.tables.splitter.classes = <const uint8_t *>PyBytes_AS_STRING(classes)
        self.tables.splitter.kind = kind
        self.tables.splitter.digits = digits
        self.idle = []
        if make_merges(&self.tables.merges, <const int32_t *>PyBytes_AS_STRING(merges), PyBytes_GET_SIZE(merges) // 12) < 0:
            raise MemoryError
        if words is not None:
            self._take_words(words)

    def __dealloc__(self):
        free_merges(&self.tables.merges)
        free(self.tables.whole)
        free(self.tables.texts)

    cdef _take_words(self, dict words):
        cdef uint64_t places = _places(len(words)), at, hash
        cdef bytes text
        cdef int64_t used = 0
        self.tables.whole = <Whole *>calloc(places, sizeof(Whole))
        self.tables.texts = <uint8_t *>malloc(sum(map(len, words)) + 1)
        if self.tables.whole == NULL or self.tables.texts == NULL:
            raise MemoryError
        self.tables.whole_mask = places - 1
        for text, token in words.items():
            size = PyBytes_GET_SIZE(text)
            if not size:
                continue
            hash = _hash(<const uint8_t *>PyBytes_AS_STRING(text), size)
            at = hash & self.tables.whole_mask
            while self.tables.whole[at].size:
                at = (at + 1) & self.tables.whole_mask
            memcpy(self.tables.texts + used, PyBytes_AS_STRING(text), size)
            self.tables.whole[at] = Whole(hash=hash, text_at=<uint32_t>used, size=<uint32_t>size, id=token)
            used += size

    def flags(self, bytes data not None):
        """See the stub."""
        cdef int found
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef int64_t size = PyBytes_GET_SIZE(data)
        with nogil:
            found = survey(self.tables.splitter.classes, start, size)
        return found

    def encode(self, bytes data not None, list marks not None):
        """See the stub."""
        cdef Workspace workspace
        cdef int64_t count = len(marks), number, last = 0, size = PyBytes_GET_SIZE(data)
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef int64_t *places = NULL
        cdef int failed
        if size > 0x7FFFFFFF:
            raise ValueError("texts are limited to 2 GiB")
        try:
            workspace = self.idle.pop()
        except IndexError:
            workspace = Workspace()
        places = <int64_t *>malloc((3 * count + 1) * sizeof(int64_t))
        if places == NULL:
            raise MemoryError
        try:
            for number in range(count):
                places[3 * number], places[3 * number + 1], places[3 * number + 2] = marks[number]
                if not last <= places[3 * number] <= places[3 * number + 1] <= size:
                    raise ValueError("added tokens overlap or lie outside")
                last = places[3 * number + 1]
            with nogil:
                failed = _encode(&self.tables, start, size, places, count, &workspace.work)
        finally:
            free(places)
        if failed:
            raise MemoryError
        ids = _list(&workspace.work)
        self.idle.append(workspace)
        return ids


cdef list _list(Work *work):
    cdef int64_t at
    cdef list out = PyList_New(work.count)
    for at in range(work.count):
        number = PyLong_FromLong(work.out[at])
        Py_INCREF(number)
        PyList_SET_ITEM(out, at, number)
    if work.out_room > OUT_KEPT:
        free(work.out)
        work.out = NULL
        work.out_room = 0
    return out
