"""The tables of a byte-level BPE in one piece of memory, which workers can share and files can hold.

Layout, numbers in native byte order:

    0        8 bytes  "SMGBPE01"
    8        int32    kind of split (word_split.pxd)
    12       int32    longest run of numbers in one word
    16       uint64   places of the table of pairs, a power of two
    24       uint64   bytes of the table of words taken whole; 0: there is none
    32       int32    ids of the single bytes [256]
    1056     uint8    classes of code points [1114112]
    1115168  Pair     pairs [places] (bpe_merge.pxd), at most half of the places taken
                      the table of words (word_table.pyx)
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memcpy

from smg._native.bpe_merge cimport NO_PAIR, Pair, fill_pairs
from smg._native.word_split cimport KIMI
from smg._native.word_table cimport open_words, pack_words

cdef enum:
    IDS_AT = 32
    CLASSES_AT = IDS_AT + 256 * 4
    CLASSES = 0x110000
    PAIRS_AT = CLASSES_AT + CLASSES

cdef const char *MAGIC = b"SMGBPE01"


cdef bint _sound_pairs(const Pair *pairs, uint64_t places) noexcept nogil:
    """Whether every look into the table ends, and only yields ids."""
    cdef uint64_t at, used = 0
    for at in range(places):
        if pairs[at].symbols == NO_PAIR:
            continue
        if pairs[at].symbols & <uint64_t>0x8000000080000000 or pairs[at].rank < 0 or pairs[at].merged < 0:
            return False
        used += 1
    return 2 * used <= places


cdef int open_tables(Tables *tables, const uint8_t *data, uint64_t size) noexcept nogil:
    """Read tables in place and check every entry; -1 when ``data`` are not sound ones. ``data`` is kept."""
    cdef uint64_t places, words
    cdef int number
    if size < PAIRS_AT or <uintptr_t>data % sizeof(uint64_t) or memcmp(data, MAGIC, 8) != 0:
        return -1
    memcpy(&tables.splitter.kind, data + 8, 4)
    memcpy(&tables.splitter.digits, data + 12, 4)
    memcpy(&places, data + 16, 8)
    memcpy(&words, data + 24, 8)
    if not 0 <= tables.splitter.kind <= KIMI or tables.splitter.digits < 0:
        return -1
    if places == 0 or places & (places - 1) or places > size // sizeof(Pair) or words > size:
        return -1
    if size != PAIRS_AT + places * sizeof(Pair) + words:
        return -1
    tables.merges.bytes_to_ids = <const int32_t *>(data + IDS_AT)
    for number in range(256):
        if tables.merges.bytes_to_ids[number] < 0:
            return -1
    tables.splitter.classes = data + CLASSES_AT
    tables.merges.pairs = <const Pair *>(data + PAIRS_AT)
    tables.merges.mask = places - 1
    if not _sound_pairs(tables.merges.pairs, places):
        return -1
    tables.whole.entries = NULL
    return open_words(&tables.whole, data + PAIRS_AT + places * sizeof(Pair), words) if words else 0


def pack(bytes_to_ids, bytes merges not None, dict words, bytes classes not None, int kind, int digits):
    """See the stub."""
    cdef int64_t count = PyBytes_GET_SIZE(merges) // 12
    cdef uint64_t places = 16, whole_size
    cdef bytes whole = b"" if words is None else pack_words(words)
    cdef bytes out
    cdef uint8_t *data
    cdef int32_t token, number
    if len(bytes_to_ids) != 256 or PyBytes_GET_SIZE(merges) % 12 or PyBytes_GET_SIZE(classes) != CLASSES:
        raise ValueError("tables of the wrong size")
    while places < 2 * <uint64_t>count:
        places *= 2
    whole_size = <uint64_t>PyBytes_GET_SIZE(whole)
    out = PyBytes_FromStringAndSize(NULL, PAIRS_AT + places * sizeof(Pair) + whole_size)
    data = <uint8_t *>PyBytes_AS_STRING(out)
    memcpy(data, MAGIC, 8)
    memcpy(data + 8, &kind, 4)
    memcpy(data + 12, &digits, 4)
    memcpy(data + 16, &places, 8)
    memcpy(data + 24, &whole_size, 8)
    for number in range(256):
        token = bytes_to_ids[number]
        memcpy(data + IDS_AT + 4 * number, &token, 4)
    memcpy(data + CLASSES_AT, PyBytes_AS_STRING(classes), CLASSES)
    fill_pairs(<Pair *>(data + PAIRS_AT), places, <const int32_t *>PyBytes_AS_STRING(merges), count)
    memcpy(data + PAIRS_AT + places * sizeof(Pair), PyBytes_AS_STRING(whole), whole_size)
    return out
