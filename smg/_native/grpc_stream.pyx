"""One server-streaming gRPC call on an HTTP/2 connection: its window, its messages, and who takes them.

A message is 1 byte of flags (0: not compressed, which is all we accept), 4 bytes of length, and the bytes; DATA frames
cut it anywhere. Whole messages go to the stream's consumer from where they lie; only a cut one is copied together.

Spec: engine-contract 4.4; DESIGN 6, engine side.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from smg._native.buffer cimport Buffer, buffer_append, buffer_clear
from smg._native.inlet cimport HELD, Inlet
from smg._native.wire cimport Layout

cdef enum:
    PREFIX = 5
    # Memory a stream keeps between reads, in bytes per buffer.
    KEPT = 64 << 10
    # A larger request is not copied but kept.
    COPIED = 64 << 10
    # HTTP/2 error codes (RFC 9113, 7).
    INTERNAL_ERROR = 2

# The largest message accepted: what engines themselves accept at most (spec engine-contract 4.2).
cdef uint32_t LARGEST = 256 << 20


cdef void stream_release(StreamState *state, int64_t count) noexcept nogil:
    """Give ``count`` held bytes free: the consumer has done with them."""
    state.held -= count


cdef inline uint32_t _length(const uint8_t *prefix) noexcept nogil:
    return <uint32_t>prefix[1] << 24 | <uint32_t>prefix[2] << 16 | <uint32_t>prefix[3] << 8 | prefix[4]


cdef inline const char *_prefix_fault(StreamState *state, const uint8_t *prefix) noexcept nogil:
    if prefix[0] != 0:
        return "a compressed message, which was not offered"
    if _length(prefix) > state.largest:
        return "a message beyond the size limit"
    return NULL


cdef inline const char *_deliver(StreamState *state, const uint8_t *message, size_t size) noexcept nogil:
    cdef int delivery = state.consumer.on_message(state.consumer.row, message, size)
    if delivery < 0:
        return "no memory for a message"
    if delivery == HELD:
        state.held += <int64_t>(PREFIX + size)
    state.messages += 1
    return NULL


cdef const char *_complete(StreamState *state, const uint8_t **at, const uint8_t *end) noexcept nogil:
    """Take what the cut message still lacks from ``at``; deliver it when it is whole."""
    cdef Buffer *partial = &state.partial
    cdef size_t wanted, share
    cdef const char *fault
    while True:
        wanted = PREFIX
        if partial.size >= PREFIX:
            fault = _prefix_fault(state, partial.data)
            if fault is not NULL:
                return fault
            wanted += _length(partial.data)
            if partial.size == wanted:
                fault = _deliver(state, partial.data + PREFIX, wanted - PREFIX)
                buffer_clear(partial, KEPT)
                return fault
        share = min(wanted - partial.size, <size_t>(end - at[0]))
        if share == 0:
            return NULL
        if not buffer_append(partial, at[0], share):
            return "no memory for a message"
        at[0] += share


cdef uint32_t stream_data(StreamState *state, const uint8_t *data, size_t size, const char **reason) noexcept nogil:
    """Cut the payload of a DATA frame into messages and deliver them.

    Returns 0, or the HTTP/2 error code to reset the stream with, and why.
    """
    cdef const uint8_t *at = data
    cdef const uint8_t *end = data + size
    cdef const char *fault = NULL
    cdef size_t whole
    if state.partial.size and size:
        fault = _complete(state, &at, end)
    while fault is NULL and at < end:
        if <size_t>(end - at) >= PREFIX:
            fault = _prefix_fault(state, at)
            if fault is not NULL:
                break
            whole = PREFIX + <size_t>_length(at)
            if <size_t>(end - at) >= whole:
                fault = _deliver(state, at + PREFIX, whole - PREFIX)
                at += whole
                continue
        fault = _complete(state, &at, end)
    if fault is NULL:
        return 0
    reason[0] = fault
    return INTERNAL_ERROR


cdef class Stream(Inlet):
    """One call. Made by ``Connection.open``; ``owner`` is whatever was given there."""

    def __init__(self, object owner, bytes headers not None, bytes body not None, Layout layout, uint32_t largest=LARGEST):
        cdef uint32_t size = <uint32_t>len(body)
        cdef uint8_t[PREFIX] prefix
        if len(body) > 0xFFFFFFFF:
            raise ValueError("the request has more than 4 GiB")
        self.owner = owner
        self.headers = headers
        self.state.owner = <void *>self
        self.state.largest = largest
        super().__init__(layout)
        self.state.consumer = &self.consumer
        prefix[0] = 0
        prefix[1], prefix[2], prefix[3], prefix[4] = size >> 24, size >> 16 & 0xFF, size >> 8 & 0xFF, size & 0xFF
        if not buffer_append(&self.state.body, prefix, PREFIX):
            raise MemoryError
        if size > COPIED:
            # With images a request is megabytes, and a copy would hold up every other stream.
            self.request = body
            self.state.rest, self.state.rest_size = <const uint8_t *>body, size
        elif not buffer_append(&self.state.body, <const uint8_t *>body, size):
            raise MemoryError

    def __dealloc__(self):
        buffer_clear(&self.state.partial, 0)
        buffer_clear(&self.state.body, 0)

    @property
    def id(self):
        return self.state.id

    @property
    def messages(self):
        """Whole messages that have arrived so far."""
        return self.state.messages

    @property
    def closed(self):
        """The peer will send nothing more on this stream."""
        return self.state.flags & (REMOTE_CLOSED | BROKEN) != 0

    @property
    def cut(self):
        """A message has begun and not ended."""
        return self.state.partial.size != 0

    @property
    def error(self):
        """(HTTP/2 error code, why) once the stream was reset, else None."""
        if not self.state.flags & BROKEN:
            return None
        return self.state.error, self.state.reason.decode()
