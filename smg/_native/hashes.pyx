"""XXH3-64 and BLAKE3 for Python: the hashes routing has in common with other gateways (spec routing 1.5, 1.6, 2.3)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

from smg._native.xxh3 cimport xxh3_64 as _xxh3_64

cdef enum:
    _CHUNK = 1024
    _CHUNK_START = 1
    _CHUNK_END = 2
    _PARENT = 4
    _ROOT = 8

cdef uint32_t *_INITIAL = [
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
]
cdef int *_ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]


cdef inline uint32_t _rotate(uint32_t value, int by) noexcept nogil:
    return (value >> by) | (value << (32 - by))


cdef inline void _quarter(
    uint32_t *state, int a, int b, int c, int d, uint32_t first, uint32_t second
) noexcept nogil:
    state[a] += state[b] + first
    state[d] = _rotate(state[d] ^ state[a], 16)
    state[c] += state[d]
    state[b] = _rotate(state[b] ^ state[c], 12)
    state[a] += state[b] + second
    state[d] = _rotate(state[d] ^ state[a], 8)
    state[c] += state[d]
    state[b] = _rotate(state[b] ^ state[c], 7)


cdef void _compress(
    uint32_t *chain, const unsigned char *block, uint32_t size, uint64_t counter, uint32_t flags
) noexcept nogil:
    """Replace the chaining value by the compression of a block of 64 bytes, ``size`` of which are input."""
    cdef uint32_t state[16]
    cdef uint32_t words[16]
    cdef uint32_t moved[16]
    cdef int turn, at
    memcpy(words, block, 64)
    memcpy(state, chain, 32)
    memcpy(state + 8, _INITIAL, 16)
    state[12] = <uint32_t>counter
    state[13] = <uint32_t>(counter >> 32)
    state[14] = size
    state[15] = flags
    for turn in range(7):
        for at in range(4):
            _quarter(state, at, 4 + at, 8 + at, 12 + at, words[2 * at], words[2 * at + 1])
        for at in range(4):
            _quarter(
                state, at, 4 + (at + 1) % 4, 8 + (at + 2) % 4, 12 + (at + 3) % 4, words[8 + 2 * at], words[9 + 2 * at]
            )
        for at in range(16):
            moved[at] = words[_ORDER[at]]
        memcpy(words, moved, 64)
    for at in range(8):
        chain[at] = state[at] ^ state[8 + at]


cdef void _chunk(
    uint32_t *chain, const unsigned char *data, uint64_t size, uint64_t counter, uint32_t flags
) noexcept nogil:
    """Hash one chunk of at most 1,024 bytes into ``chain``; ``flags`` go to its last block."""
    cdef unsigned char block[64]
    cdef uint32_t start = _CHUNK_START
    memcpy(chain, _INITIAL, 32)
    while size > 64:
        _compress(chain, data, 64, counter, start)
        start = 0
        data += 64
        size -= 64
    memset(block, 0, 64)
    memcpy(block, data, size)
    _compress(chain, block, <uint32_t>size, counter, start | _CHUNK_END | flags)


cdef void _tree(
    uint32_t *chain, const unsigned char *data, uint64_t size, uint64_t counter, uint32_t flags
) noexcept nogil:
    """Hash ``data`` into ``chain``: left subtrees are whole powers of two of chunks."""
    cdef uint32_t both[16]
    cdef uint64_t left = _CHUNK
    if size <= _CHUNK:
        _chunk(chain, data, size, counter, flags)
        return
    while 2 * left < size:
        left *= 2
    _tree(both, data, left, counter, 0)
    _tree(both + 8, data + left, size - left, counter + left // _CHUNK, 0)
    memcpy(chain, _INITIAL, 32)
    _compress(chain, <unsigned char *>both, 64, 0, _PARENT | flags)


def xxh3_64(bytes data not None, uint64_t seed=0):
    return _xxh3_64(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), seed)


def blake3_64(bytes data not None):
    cdef uint32_t chain[8]
    _tree(chain, <const unsigned char *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0, _ROOT)
    return chain[0] | (<uint64_t>chain[1] << 32)
