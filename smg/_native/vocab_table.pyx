"""One tokenizer's id to bytes table in one piece of memory, which workers can share and files can hold.

Layout, numbers in native byte order, offsets from the start of the blob:

    0   8 bytes  "SMGVOCB1"
    8   uint32   size: ids run from 0 to size - 1
    12  uint32   firsts: number of tokens whose bytes differ at the start of a text
    16  uint64   bytes of the blob
    24  8 bytes  zero
    32  uint32   offsets [size + firsts + 1]
        uint32   first ids [firsts], ascending
        uint8    special [size], 0 or 1
        uint8    blob
"""

import struct
from array import array
from weakref import WeakKeyDictionary

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memcpy

cdef enum:
    HEADER = 32

cdef const char *MAGIC = b"SMGVOCB1"

_tables = WeakKeyDictionary()


def _pack(decoder):
    """Ask ``decoder`` for every id and lay the answers out."""
    size = decoder.size
    offsets = array("I", [0])
    first_ids = array("I")
    blob = bytearray()
    firsts = []
    for token in range(size):
        inner = decoder.token_bytes(token)
        first = decoder.first_bytes(token)
        blob += inner
        offsets.append(len(blob))
        if first != inner:
            first_ids.append(token)
            firsts.append(first)
    for first in firsts:
        blob += first
        offsets.append(len(blob))
    special = bytes(1 if decoder.is_special(token) else 0 for token in range(size))
    header = struct.pack("=8sIIQ8x", MAGIC, size, len(firsts), len(blob))
    return b"".join((header, offsets.tobytes(), first_ids.tobytes(), special, blob))


cdef int32_t _id(long long token) noexcept:
    """Narrow an id; -1, which no vocabulary has, for what does not fit."""
    return <int32_t>token if 0 <= token < 2**31 else -1


# No cycle of references leads through it, and the collector would tear the buffer off it while its owner is in use.
@cython.no_gc
cdef class VocabTable:
    """Id to bytes of one tokenizer, from the layout above; also a ``core.stream.Decoder``.

    ``buffer`` is kept and read in place. Raises ValueError when it does not hold such a table.
    """

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self._open(buffer)

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef int _open(self, object buffer) except -1:
        cdef const unsigned char *at = <const unsigned char *>self.view.buf
        cdef uint64_t room = <uint64_t>self.view.len, entries, blob, index
        if room < HEADER or memcmp(at, MAGIC, 8) != 0 or <uintptr_t>at % sizeof(uint32_t):
            raise ValueError("not a vocabulary table")
        memcpy(&self.vocab.size, at + 8, 4)
        memcpy(&self.vocab.firsts, at + 12, 4)
        memcpy(&blob, at + 16, 8)
        entries = <uint64_t>self.vocab.size + self.vocab.firsts
        # Ids are handled as 31-bit numbers; the bound also keeps the sum below from overflowing.
        if self.vocab.size >= 2**31 or self.vocab.firsts > self.vocab.size or blob > room:
            raise ValueError("the vocabulary table is damaged")
        if room != HEADER + 4 * (entries + 1) + 4 * <uint64_t>self.vocab.firsts + self.vocab.size + blob:
            raise ValueError("the vocabulary table is damaged")
        self.vocab.offsets = <const uint32_t *>(at + HEADER)
        self.vocab.first_ids = self.vocab.offsets + entries + 1
        self.vocab.special = <const unsigned char *>(self.vocab.first_ids + self.vocab.firsts)
        self.vocab.blob = self.vocab.special + self.vocab.size
        for index in range(entries):
            if self.vocab.offsets[index] > self.vocab.offsets[index + 1]:
                raise ValueError("the vocabulary table is damaged")
        if self.vocab.offsets[0] != 0 or self.vocab.offsets[entries] != blob:
            raise ValueError("the vocabulary table is damaged")
        return 0

    @staticmethod
    def of(decoder):
        """Return the table of ``decoder``: itself, the one built before, or a new one.

        Building asks the decoder for every id, which takes a second for the largest vocabularies: do it where a
        tokenizer is loaded, not on an event loop.
        """
        if isinstance(decoder, VocabTable):
            return decoder
        table = _tables.get(decoder)
        if table is None:
            table = _tables[decoder] = VocabTable(_pack(decoder))
        return table

    @property
    def size(self):
        """Number of ids."""
        return self.vocab.size

    def token_bytes(self, long long token):
        """Bytes of ``token`` inside a text; empty for ids outside the vocabulary."""
        cdef Py_ssize_t size
        cdef const unsigned char *data = token_bytes(&self.vocab, _id(token), False, &size)
        return PyBytes_FromStringAndSize(<const char *>data, size)

    def first_bytes(self, long long token):
        """Bytes of ``token`` at the very start of a text."""
        cdef Py_ssize_t size
        cdef const unsigned char *data = token_bytes(&self.vocab, _id(token), True, &size)
        return PyBytes_FromStringAndSize(<const char *>data, size)

    def is_special(self, long long token):
        """Tell whether ``token`` is a special token; False for ids outside the vocabulary."""
        return is_special(&self.vocab, _id(token))

    def tobytes(self):
        """Copy of the whole table in its layout, to be written to a file or shared memory."""
        return PyBytes_FromStringAndSize(<const char *>self.view.buf, self.view.len)
