r"""Byte-level BPE without the GIL: words, remembered words, merges (DESIGN 5).

**Remembered words.** Most words of a text have been seen before, so a workspace keeps up to ``SLOTS`` of them with
their ids. A word is compared byte by byte, so a hash that collides costs a look, never an id. When the room for texts or
ids is used up, all of it is forgotten at once. A workspace belongs to one encoding at a time; there are as many as there
were encodings side by side.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from smg._native.bpe_merge cimport LONG, free_room, merge_long, merge_short
from smg._native.bpe_tables cimport open_tables
from smg._native.id_list cimport id_list
from smg._native.word_split cimport next_word, survey
from smg._native.word_table cimport find_word, hash_bytes

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
    cdef int32_t token = find_word(&tables.whole, hash, data, <uint64_t>size) if tables.whole.entries != NULL else -1
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
    hash = hash_bytes(data, <uint64_t>size)
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


# No cycle of references leads through it, and the collector would tear the buffer off it while its owner is in use.
@cython.no_gc
cdef class ByteBpe:
    """See the stub."""

    def __cinit__(self, buffer):
        cdef int failed
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.idle = []
        with nogil:
            failed = open_tables(&self.tables, <const uint8_t *>self.view.buf, <uint64_t>self.view.len)
        if failed:
            raise ValueError("not the tables of a byte-level BPE, or damaged ones")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    def tobytes(self):
        """See the stub."""
        return PyBytes_FromStringAndSize(<const char *>self.view.buf, self.view.len)

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
        ids = _ids(&workspace.work)
        self.idle.append(workspace)
        return ids


cdef object _ids(Work *work):
    ids = id_list(work.out, work.count)
    if work.out_room > OUT_KEPT:
        free(work.out)
        work.out = NULL
        work.out_room = 0
    return ids
