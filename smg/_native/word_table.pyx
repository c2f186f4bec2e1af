"""A table from texts to ids in one piece of memory, which workers can share and files can hold.

A hash table with open addressing, at most half full. Layout, numbers in native byte order:

    0   8 bytes  "SMGWORD1"
    8   uint64   places, a power of two
    16  uint64   bytes of the texts
    24  8 bytes  zero
    32  Entry    entries [places] (word_table.pxd)
        uint8    texts
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    HEADER = 32

cdef const char *MAGIC = b"SMGWORD1"


cdef int open_words(Words *words, const uint8_t *data, uint64_t size) noexcept nogil:
    """Read a table in place and check every entry; -1 when ``data`` is not a sound one. ``data`` is kept."""
    cdef uint64_t places, texts, at, used = 0
    cdef const Entry *entries
    if size < HEADER or <uintptr_t>data % sizeof(uint64_t) or memcmp(data, MAGIC, 8) != 0:
        return -1
    memcpy(&places, data + 8, 8)
    memcpy(&texts, data + 16, 8)
    if places == 0 or places & (places - 1) or places > size // sizeof(Entry) or texts > size:
        return -1
    if size != HEADER + places * sizeof(Entry) + texts:
        return -1
    entries = <const Entry *>(data + HEADER)
    for at in range(places):
        if entries[at].id < 0:
            continue
        if <uint64_t>entries[at].text_at + entries[at].size > texts:
            return -1
        used += 1
    if 2 * used > places:
        return -1
    words.entries = entries
    words.mask = places - 1
    words.texts = data + HEADER + places * sizeof(Entry)
    return 0


cdef bytes pack_words(dict ids):
    """See ``WordTable.pack``."""
    cdef uint64_t places = 16, texts = 0, at, hash, used = 0, size
    cdef bytes text, out
    cdef uint8_t *data
    cdef Entry *entries
    cdef int32_t token
    for text in ids:
        texts += <uint64_t>PyBytes_GET_SIZE(text)
    if texts > 0x7FFFFFFF:
        raise ValueError("more texts than a table takes")
    while places < 2 * <uint64_t>len(ids):
        places *= 2
    out = PyBytes_FromStringAndSize(NULL, HEADER + places * sizeof(Entry) + texts)
    data = <uint8_t *>PyBytes_AS_STRING(out)
    memset(data, 0, HEADER)
    memcpy(data, MAGIC, 8)
    memcpy(data + 8, &places, 8)
    memcpy(data + 16, &texts, 8)
    entries = <Entry *>(data + HEADER)
    for at in range(places):
        entries[at] = Entry(hash=0, text_at=0, size=0, id=-1)
    data += HEADER + places * sizeof(Entry)
    for text, token in ids.items():
        if token < 0:
            raise ValueError("ids are not negative")
        size = <uint64_t>PyBytes_GET_SIZE(text)
        hash = hash_bytes(<const uint8_t *>PyBytes_AS_STRING(text), size)
        at = hash & (places - 1)
        while entries[at].id >= 0:
            at = (at + 1) & (places - 1)
        memcpy(data + used, PyBytes_AS_STRING(text), size)
        entries[at] = Entry(hash=<uint32_t>(hash >> 32), text_at=<uint32_t>used, size=<uint32_t>size, id=token)
        used += size
    return out


# No cycle of references leads through it, and the collector would tear the buffer off it while its owner is in use.
@cython.no_gc
cdef class WordTable:
    """See the stub."""

    def __cinit__(self, buffer):
        cdef int failed
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        with nogil:
            failed = open_words(&self.words, <const uint8_t *>self.view.buf, <uint64_t>self.view.len)
        if failed:
            raise ValueError("not a table of words, or a damaged one")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    @staticmethod
    def pack(dict ids not None):
        """Lay out a table of ``ids``, which are 0 to 2**31 - 1. Raises ValueError for 2 GiB of texts or more."""
        return pack_words(ids)

    def get(self, bytes text not None):
        """Return the id of ``text``, -1 when it has none."""
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(text)
        cdef uint64_t size = <uint64_t>PyBytes_GET_SIZE(text)
        return find_word(&self.words, hash_bytes(data, size), data, size)
