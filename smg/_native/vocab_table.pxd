"""The vocabulary of ``vocab_table`` for native callers that decode without the GIL."""

from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, uint32_t


cdef struct Vocab:
    uint32_t size
    # Number of tokens whose bytes differ at the start of a text.
    uint32_t firsts
    # [size + firsts + 1] into ``blob``: the tokens by id, then those of ``first_ids``.
    const uint32_t *offsets
    # [firsts], ascending.
    const uint32_t *first_ids
    # [size] 1 for a special token.
    const unsigned char *special
    const unsigned char *blob


cdef inline bint is_special(const Vocab *vocab, int32_t token) noexcept nogil:
    return 0 <= token < <int32_t>vocab.size and vocab.special[token]


cdef inline const unsigned char *token_bytes(
    const Vocab *vocab, int32_t token, bint first, Py_ssize_t *size
) noexcept nogil:
    """Return the bytes of ``token`` and their number; none for an id outside the vocabulary."""
    cdef uint32_t entry = <uint32_t>token, low = 0, high = vocab.firsts, middle
    size[0] = 0
    if token < 0 or entry >= vocab.size:
        return vocab.blob
    if first:
        while low < high:
            middle = (low + high) // 2
            if vocab.first_ids[middle] < entry:
                low = middle + 1
            else:
                high = middle
        if low < vocab.firsts and vocab.first_ids[low] == entry:
            entry = vocab.size + low
    size[0] = vocab.offsets[entry + 1] - vocab.offsets[entry]
    return vocab.blob + vocab.offsets[entry]


cdef class VocabTable:
    cdef Vocab vocab
    cdef Py_buffer view
    cdef bint held
    # WeakKeyDictionary keeps tables by decoder.
    cdef object __weakref__
    cdef int _open(self, object buffer) except -1
