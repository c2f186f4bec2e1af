"""One server-streaming gRPC call on an HTTP/2 connection: its window, its messages, and who takes them.

Messages go to the stream's consumer (``inlet``): what it takes is given back to the stream's window at once, what it holds
stays charged until ``stream_release``.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from smg._native.buffer cimport Buffer
from smg._native.inlet cimport Consumer, Inlet

cdef enum:
    # Bits of StreamState.flags: what the peer has done, and what has become of the stream.
    HEADERS_SEEN = 1
    REMOTE_CLOSED = 2
    # We reset it because of ``error``, or the peer did.
    BROKEN = 4
    # In the connection's list of streams to look after.
    READY = 8
    # In the connection's list of streams with a request body to send.
    SENDING = 16
    # No longer on the connection.
    DROPPED = 32


cdef struct StreamState:
    # 0 before it is opened.
    uint32_t id
    uint32_t flags
    # An HTTP/2 error code, and why; the reason is a constant.
    uint32_t error
    const char *reason
    # What we may still send.
    int64_t send_window
    # Bytes the peer has sent and not got back, and those of them that are whole messages which nobody has released.
    int64_t charged
    int64_t held
    uint32_t messages
    uint32_t largest
    Consumer *consumer
    # The beginning of a message.
    Buffer partial
    # The framed request: the beginning, a rest that the Stream's ``request`` keeps, and how much of both has been sent.
    Buffer body
    const uint8_t *rest
    size_t rest_size
    size_t sent
    # Next in its bucket of the connection's table.
    StreamState *next
    # The Stream, borrowed; its connection holds it as long as it holds the state.
    void *owner


cdef void stream_release(StreamState *state, int64_t count) noexcept nogil
cdef uint32_t stream_data(StreamState *state, const uint8_t *data, size_t size, const char **reason) noexcept nogil


cdef class Stream(Inlet):
    cdef StreamState state
    cdef readonly object owner
    cdef readonly bytes headers
    # What ``state.rest`` points into, None for small requests and once all is sent.
    cdef bytes request
    # Bytes of messages handed out by the last ``collected``, still held.
    cdef int64_t taken
