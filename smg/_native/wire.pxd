"""Protobuf reader of the hot message for other native modules (see ``wire.pyx``)."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

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


# Field numbers of a contract's answer and of its chunk; ``cold`` has a bit for each field that only the contract reads.
cdef struct ChunkLayout:
    uint32_t chunk
    uint32_t complete
    uint32_t ids
    uint32_t prompt_tokens
    uint32_t completion_tokens
    uint32_t cached_tokens
    uint32_t index
    uint64_t cold


cdef class Layout:
    cdef ChunkLayout fields


cdef int read_chunk(
    const uint8_t *data, size_t size, const ChunkLayout *layout, Chunk *chunk, Buffer *ids
) noexcept nogil
