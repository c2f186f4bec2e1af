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
    uint32_t reasoning_tokens
    # Bytes of the message itself; NULL: the chunk has none.
    const uint8_t *label
    size_t label_size


# Field numbers of a contract's answer and of its chunk, 0 for what it does not have; ``cold`` has a bit for each field
# that only the contract reads.
cdef struct ChunkLayout:
    uint32_t chunk
    uint32_t complete
    uint32_t request_id
    uint32_t ids
    uint32_t prompt_tokens
    uint32_t completion_tokens
    uint32_t cached_tokens
    uint32_t index
    uint32_t reasoning_tokens
    uint32_t label
    uint64_t cold


cdef class Layout:
    cdef ChunkLayout fields


cdef int read_chunk(
    const uint8_t *data, size_t size, const ChunkLayout *layout, Chunk *chunk, Buffer *ids
) noexcept nogil
