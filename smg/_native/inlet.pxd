"""Messages of one generation, and who takes them (see ``inlet.pyx``).

A consumer's ``on_message`` answers with a ``Delivery``: it is done with the message's bytes (TAKEN), so whoever received
them may ask for more, or it keeps them until Python has taken them (HELD), so that an engine stops sending to a row whose
client has stopped reading.
"""

from libc.stdint cimport uint8_t, uint32_t

from smg._native.buffer cimport Buffer
from smg._native.wire cimport Chunk, ChunkLayout, Layout

cdef enum Delivery:
    TAKEN = 0
    HELD = 1
    NO_ROOM = -1

ctypedef int (*message_fn)(void *row, const uint8_t *message, size_t size) noexcept nogil
ctypedef bint (*batch_fn)(void *row) noexcept nogil


cdef struct Consumer:
    message_fn on_message
    # NULL: Python looks at every batch.
    batch_fn on_batch
    void *row


# What the collecting consumers have: records, and the ids and bytes they are about.
cdef struct Collection:
    # NULL: all messages stay bytes.
    const ChunkLayout *layout
    # That of the last chunk that had a new one, which Python was shown.
    Buffer label
    Buffer records
    Buffer ids
    Buffer text


cdef int read_tokens(
    const Collection *collection, const uint8_t *message, size_t size, Chunk *chunk, Buffer *ids
) noexcept nogil
cdef int collect_messages(void *row, const uint8_t *message, size_t size) noexcept nogil
cdef int collect_tokens(void *row, const uint8_t *message, size_t size) noexcept nogil


cdef class Tokens:
    cdef readonly uint32_t index
    cdef readonly list ids
    cdef readonly uint32_t prompt_tokens
    cdef readonly uint32_t cached_tokens
    cdef readonly uint32_t reasoning_tokens


cdef class Inlet:
    cdef Consumer consumer
    cdef Collection collection
    # What ``collection.layout`` is part of, and what the consumer's ``row`` belongs to.
    cdef Layout layout
    cdef object feed
    cdef void attach(self, message_fn on_message, batch_fn on_batch, void *row, object feed) noexcept
    cdef list collected(self)
