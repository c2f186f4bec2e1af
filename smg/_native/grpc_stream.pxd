"""One server-streaming gRPC call on an HTTP/2 connection: its window, its messages, and who takes them.

The seam for native consumers is ``Consumer``: a connection calls ``on_message`` once per whole message, without the GIL,
while it works through what a read brought. The two consumers of this module collect for Python (``collect_messages``,
``collect_tokens``); ``stream_feed`` has the one that feeds rows of a table, given to ``Stream.attach``. It answers
with a ``Delivery``: TAKEN gives the message's bytes back to the stream's window at once, HELD keeps them charged until
``stream_release``, so that an engine stops sending to a row whose client has stopped reading. After each read
``on_batch`` is called where messages came, if the consumer has one; it tells whether Python has to look at the stream.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from smg._native.buffer cimport Buffer

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
    Buffer records
    Buffer ids
    Buffer text


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
    Consumer consumer
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
cdef int collect_messages(void *row, const uint8_t *message, size_t size) noexcept nogil
cdef int collect_tokens(void *row, const uint8_t *message, size_t size) noexcept nogil
cdef uint32_t stream_data(StreamState *state, const uint8_t *data, size_t size, const char **reason) noexcept nogil


cdef class Tokens:
    cdef readonly uint32_t index
    cdef readonly list ids
    cdef readonly uint32_t prompt_tokens
    cdef readonly uint32_t cached_tokens


cdef class Stream:
    cdef StreamState state
    cdef readonly object owner
    cdef readonly bytes headers
    # What ``state.rest`` points into, None for small requests and once all is sent.
    cdef bytes request
    cdef Collection collection
    # What the consumer's ``row`` belongs to.
    cdef object feed
    # Bytes of messages handed out by the last ``collected``, still held.
    cdef int64_t taken
    cdef void attach(self, message_fn on_message, batch_fn on_batch, void *row, object feed) noexcept
    cdef list collected(self)
