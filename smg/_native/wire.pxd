"""Protobuf reader of the hot message for other native modules (see ``wire.pyx``)."""

from libc.stdint cimport uint8_t, uint32_t

from smg._native.buffer cimport Buffer

cdef enum Verdict:
    # A plain token chunk, read here.
    HOT = 1
    # Anything else that may be a message: for the generated contract to read.
    COLD = 0
    # No message of any kind.
    MALFORMED = -1
    NO_MEMORY = -2


cdef struct Chunk:
    uint32_t index
    uint32_t prompt_tokens
    uint32_t completion_tokens
    uint32_t cached_tokens


cdef int read_chunk(const uint8_t *data, size_t size, Chunk *chunk, Buffer *ids) noexcept nogil
