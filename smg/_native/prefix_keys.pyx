"""A prompt as a chain of hashes, one per block: equal keys mean equal beginnings (spec routing 2.3, 10.3).

The key of block i commits to everything before it, so one look-up tells who holds the first i + 1 blocks, and no text
needs to be kept. Tokens are cut into blocks of the engine's page; the chain is the one KV events are defined by. Text is
cut by a ladder that is fine where prompts part and coarse further on: 8 × 16, 8 × 64, then 256 bytes each. What does
not fill a block at the end has no key.

``salt`` separates what must not meet: models, adapters, kinds of blocks.
"""

cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from smg._native.small_int cimport small_int
from smg._native.text_hash cimport text_key
from smg._native.xxh3 cimport xxh3_64

cdef extern from "Python.h":
    # Borrowed, and without a reference of our own: nothing else runs meanwhile.
    PyObject *PyList_GET_ITEM(object values, Py_ssize_t at)
    long long PyLong_AsLongLong(PyObject *value) except? -1
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

SEED = 1337
LADDER = ((8, 16), (8, 64), (0, 256))

cdef enum:
    _SEED = 1337
    _FINE = 16
    _MIDDLE = 64
    _COARSE = 256
    _STEPS = 8
    _FINE_END = 128
    _MIDDLE_END = 640
    # Below this many bytes, hashing takes less time (a tenth of a millisecond) than giving the GIL away can cost: who has
    # it next may be a thread of low priority that then waits for a processor.
    _LONG = 1 << 20


cdef uint64_t chain(uint64_t before, uint64_t content) noexcept nogil:
    """Hash of a prefix from the one before it and the hash of the block it ends with."""
    cdef uint64_t both[2]
    both[0] = before
    both[1] = content
    return xxh3_64(both, 16, _SEED)


cdef uint64_t salted(uint64_t prefix, uint64_t salt) noexcept nogil:
    cdef uint64_t key = prefix ^ salt
    # 0 means an empty place in the table.
    return key if key else 1


cdef uint64_t content_of(const unsigned char *data, int64_t size, uint64_t extra) noexcept nogil:
    """Hash of a block by itself; ``extra`` (an adapter's id) enters it as 8 more bytes unless it is 0."""
    cdef unsigned char *whole
    cdef uint64_t result
    if extra == 0:
        return xxh3_64(data, size, _SEED)
    whole = <unsigned char *>malloc(size + 8)
    if whole == NULL:
        return 0
    memcpy(whole, data, size)
    memcpy(whole + size, &extra, 8)
    result = xxh3_64(whole, size + 8, _SEED)
    free(whole)
    return result


cdef int64_t _steps(int64_t size) noexcept nogil:
    """Number of whole blocks of the ladder in ``size`` bytes."""
    if size <= _FINE_END:
        return size // _FINE
    if size <= _MIDDLE_END:
        return _STEPS + (size - _FINE_END) // _MIDDLE
    return 2 * _STEPS + (size - _MIDDLE_END) // _COARSE


cdef int64_t rung(int64_t number) noexcept nogil:
    """Bytes the first ``number`` blocks of the ladder cover."""
    if number <= _STEPS:
        return number * _FINE
    if number <= 2 * _STEPS:
        return _FINE_END + (number - _STEPS) * _MIDDLE
    return _MIDDLE_END + (number - 2 * _STEPS) * _COARSE


cdef void _climb(const unsigned char *text, uint64_t salt, int64_t count, uint64_t *keys) noexcept nogil:
    cdef uint64_t prefix = 0
    cdef int64_t number
    # One loop for each size of block, so that the compiler knows it.
    for number in range(min(count, <int64_t>_STEPS)):
        prefix = text_key(text + number * _FINE, _FINE, prefix)
        keys[number] = salted(prefix, salt)
    text += _FINE_END
    for number in range(_STEPS, min(count, <int64_t>(2 * _STEPS))):
        prefix = text_key(text + (number - _STEPS) * _MIDDLE, _MIDDLE, prefix)
        keys[number] = salted(prefix, salt)
    text += _MIDDLE_END - _FINE_END
    for number in range(2 * _STEPS, count):
        prefix = text_key(text + (number - 2 * _STEPS) * _COARSE, _COARSE, prefix)
        keys[number] = salted(prefix, salt)


cdef void _walk(
    const unsigned char *tokens, int64_t width, uint64_t salt, uint64_t adapter, int64_t count, uint64_t *keys
) noexcept nogil:
    cdef uint64_t prefix = content_of(tokens, width, adapter)
    cdef int64_t number
    keys[0] = salted(prefix, salt)
    for number in range(1, count):
        prefix = chain(prefix, xxh3_64(tokens + number * width, width, _SEED))
        keys[number] = salted(prefix, salt)


cdef uint32_t *narrow_ids(list ids, int64_t count) except NULL:
    """Copy the first ``count`` ids to an array; the caller frees it."""
    cdef int64_t at
    cdef long long value
    cdef PyObject *item
    cdef uint32_t *narrow = <uint32_t *>malloc((count + 1) * sizeof(uint32_t))
    if narrow == NULL:
        raise MemoryError
    try:
        for at in range(count):
            item = PyList_GET_ITEM(ids, at)
            if not small_int(item, &value):
                value = PyLong_AsLongLong(item)
            if value < 0 or value >> 32:
                raise ValueError(f"{value} is not a token id")
            narrow[at] = <uint32_t>value
    except BaseException:
        free(narrow)
        raise
    return narrow


@cython.freelist(16)
cdef class PrefixKeys:
    """Keys of one prompt's blocks; made by ``of_tokens`` and ``of_text``."""

    def __init__(self):
        raise TypeError("use PrefixKeys.of_tokens or PrefixKeys.of_text")

    def __dealloc__(self):
        if self.keys != self.few:
            free(self.keys)

    def __len__(self):
        return self.count

    @staticmethod
    def of_tokens(ids, int64_t block=16, uint64_t salt=0, uint64_t adapter=0):
        return keys_of_tokens(ids, block, salt, adapter)

    @staticmethod
    def of_text(text, uint64_t salt=0):
        return keys_of_text(text, salt)

    cdef int _allocate(self, int64_t count) except -1:
        self.count = count
        if count <= FEW:
            self.keys = self.few
        else:
            self.keys = <uint64_t *>malloc(count * sizeof(uint64_t))
        if self.keys == NULL:
            raise MemoryError
        return 0

    def covered(self, int64_t depth):
        if not 0 <= depth <= self.count:
            raise IndexError(f"block {depth} of {self.count}")
        return depth * self.block if self.block else rung(depth)

    def tolist(self):
        return [self.keys[at] for at in range(self.count)]


cdef PrefixKeys _of_array(PrefixKeys self, const uint32_t[::1] ids, int64_t block, uint64_t salt, uint64_t adapter):
    self.block = block
    self.units = ids.shape[0]
    self._allocate(self.units // block)
    if 4 * self.units >= _LONG:
        with nogil:
            _walk(<const unsigned char *>&ids[0], 4 * block, salt, adapter, self.count, self.keys)
    elif self.count:
        _walk(<const unsigned char *>&ids[0], 4 * block, salt, adapter, self.count, self.keys)
    return self


cdef PrefixKeys keys_of_tokens(object ids, int64_t block, uint64_t salt, uint64_t adapter):
    cdef PrefixKeys self = PrefixKeys.__new__(PrefixKeys)
    cdef list given
    cdef uint32_t *tokens
    if block < 1:
        raise ValueError(f"a block cannot have {block} tokens")
    if PyObject_CheckBuffer(ids):
        return _of_array(self, ids, block, salt, adapter)
    given = ids if type(ids) is list else list(ids)
    self.block = block
    self.units = PyList_GET_SIZE(given)
    self._allocate(self.units // block)
    if self.count == 0:
        return self
    tokens = narrow_ids(given, self.count * block)
    if 4 * self.units >= _LONG:
        with nogil:
            _walk(<unsigned char *>tokens, 4 * block, salt, adapter, self.count, self.keys)
    else:
        _walk(<unsigned char *>tokens, 4 * block, salt, adapter, self.count, self.keys)
    free(tokens)
    return self


cdef PrefixKeys keys_of_text(object text, uint64_t salt):
    cdef PrefixKeys self = PrefixKeys.__new__(PrefixKeys)
    cdef const unsigned char *data
    cdef Py_ssize_t size
    if isinstance(text, str):
        data = <const unsigned char *>PyUnicode_AsUTF8AndSize(text, &size)
    elif isinstance(text, bytes):
        data = <const unsigned char *>PyBytes_AS_STRING(text)
        size = PyBytes_GET_SIZE(text)
    else:
        raise TypeError("a text is str or UTF-8 bytes")
    self.units = size
    self._allocate(_steps(size))
    if size >= _LONG:
        with nogil:
            _climb(data, salt, self.count, self.keys)
    else:
        _climb(data, salt, self.count, self.keys)
    return self


def block_hash(tokens):
    cdef list given = list(tokens)
    cdef uint32_t *narrow = narrow_ids(given, PyList_GET_SIZE(given))
    cdef uint64_t result = xxh3_64(narrow, 4 * PyList_GET_SIZE(given), _SEED)
    free(narrow)
    return result


def chain_hash(uint64_t before, uint64_t content):
    return chain(before, content)
