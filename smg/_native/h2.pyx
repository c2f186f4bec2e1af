"""The client's side of one HTTP/2 connection that carries server-streaming gRPC calls (RFC 9113).

Bytes come in by ``receive`` or ``feed``: frames are taken apart and messages delivered to their streams without the GIL,
one call per readable batch. What needs a decision waits until Python asks: header blocks (``take_headers``), streams with
messages or an end (``take_ready``), the connection's own state.
Flow control: the connection's window goes back at once, a stream's only as its consumer releases messages, so a stalled
reader stalls its own stream alone. The beginning of a cut message is never held: a message may be larger than the window.

Faults of one stream reset it; faults of the connection set ``failure`` and send GOAWAY, after which input is ignored. So
do floods: frames that bring nothing, without end or unread answers (RFC 9113, 10.5).

Spec: engine-contract 4.2 and 4.4; DESIGN 6, engine side.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t

from smg._native.buffer cimport Buffer, buffer_append, buffer_clear, buffer_drop, buffer_reserve
from smg._native.grpc_stream cimport BROKEN, HEADERS_SEEN, REMOTE_CLOSED, StreamState, stream_data
from smg._native.h2_frames cimport (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_HEAD,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    INTERNAL_ERROR,
    LARGEST_FRAME,
    LARGEST_WINDOW,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    PADDED,
    PING,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    get31,
    get32,
    put32,
)
from smg._native.h2_streams cimport Streams

cdef extern from "<sys/socket.h>" nogil:
    Py_ssize_t recv(int fd, void *data, size_t size, int flags)

cdef enum:
    # Bytes asked of the socket at once.
    READ_SIZE = 256 << 10
    # The largest header block, compressed and with its frames' heads, and unpacked.
    MAX_BLOCK = 256 << 10
    MAX_HEADER_LIST = 64 << 10
    # What a header block that brings nothing counts for, as Python unpacks it: some are under way when we reset a stream,
    # but no engine announces other headers again and again.
    LATE_HEADERS = 5
    MORE_HEADERS = 50
    KEPT = 64 << 10


cdef struct HeaderEvent:
    uint32_t id
    bint end
    size_t size


cdef class Connection(Streams):
    """One connection. ``window`` and ``connection_window`` are in bytes; ``first_id`` is the first stream's id (odd)."""

    def __init__(self, int64_t window=256 << 10, int64_t connection_window=16 << 20, uint32_t first_id=1):
        cdef uint8_t[18] settings
        super().__init__(window, first_id)
        if not DEFAULT_WINDOW < connection_window <= LARGEST_WINDOW:
            raise ValueError("the connection's window must be 65536 to 2147483647 bytes")
        self.connection_window = connection_window
        for place, (name, value) in enumerate(
            ((ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, window), (MAX_HEADER_LIST_SIZE, MAX_HEADER_LIST))
        ):
            settings[6 * place], settings[6 * place + 1] = 0, <uint8_t>name
            put32(&settings[6 * place + 2], value)
        self.put(SETTINGS, 0, 0, settings, sizeof(settings))
        self.put_word(WINDOW_UPDATE, 0, <uint32_t>(connection_window - DEFAULT_WINDOW))

    def __dealloc__(self):
        buffer_clear(&self.input, 0)
        buffer_clear(&self.block, 0)
        buffer_clear(&self.header_events, 0)
        buffer_clear(&self.header_bytes, 0)
        buffer_clear(&self.go_text, 0)

    @property
    def steady(self):
        """Neither failed, nor told to go, nor out of stream ids: all that may be new belongs to streams."""
        return not self.has_failed and not self.told_to_go and self.next_id <= LARGEST_WINDOW

    @property
    def goaway(self):
        """(last stream id, HTTP/2 error code, debug text) once the peer has said GOAWAY, else None."""
        if not self.told_to_go:
            return None
        text = PyBytes_FromStringAndSize(<const char *>self.go_text.data, <Py_ssize_t>self.go_text.size)
        return self.last_id, self.go_error, text.decode("utf-8", "replace")

    def receive(self, int fd):
        """Read once from a non-blocking socket and work through it.

        Returns the number of bytes, 0 at the peer's end of file, -1 when nothing was there. Raises OSError.
        """
        cdef Py_ssize_t count
        cdef int fault = 0
        cdef uint8_t *end
        with nogil:
            end = buffer_reserve(&self.input, READ_SIZE)
            if end is NULL:
                self.fail(INTERNAL_ERROR, "no memory for input")
                count = -1
            else:
                count = recv(fd, end, READ_SIZE, 0)
                if count > 0:
                    self.input.size += <size_t>count
                    self.take_in()
                    self.settle_batches()
                elif count < 0:
                    fault = errno
        if fault and fault != EAGAIN and fault != EINTR:
            raise OSError(fault, "receiving failed")
        self.admit()
        return count

    def feed(self, const uint8_t[::1] data not None):
        """Work through bytes that somebody else has read."""
        cdef size_t size = <size_t>data.shape[0], used = 0
        if size == 0:
            return
        with nogil:
            if self.input.size == 0:
                used = self.consume(&data[0], size)
            if used < size:
                if not buffer_append(&self.input, &data[used], size - used):
                    self.fail(INTERNAL_ERROR, "no memory for input")
                self.take_in()
            self.settle_batches()
        self.admit()

    def take_headers(self):
        """Return the header blocks that have arrived, in order: (stream or None, block, end of stream).

        None: the stream is over, but the block must be decompressed all the same.
        """
        cdef HeaderEvent *event = <HeaderEvent *>self.header_events.data
        cdef size_t place, at = 0
        cdef list out = []
        for place in range(self.header_events.size // sizeof(HeaderEvent)):
            block = PyBytes_FromStringAndSize(<const char *>self.header_bytes.data + at, <Py_ssize_t>event.size)
            out.append((self.open_streams.get(event.id), block, bool(event.end)))
            at += event.size
            event += 1
        buffer_clear(&self.header_events, KEPT)
        buffer_clear(&self.header_bytes, KEPT)
        return out

    @property
    def unread(self):
        """The beginning of what has come and is no whole frame, or none that may come."""
        cdef size_t count = min(self.input.size, <size_t>FRAME_HEAD)
        return PyBytes_FromStringAndSize(<const char *>self.input.data, <Py_ssize_t>count)

    cdef void take_in(self) noexcept nogil:
        buffer_drop(&self.input, self.consume(self.input.data, self.input.size))

    cdef size_t consume(self, const uint8_t *data, size_t size) noexcept nogil:
        """Work through the whole frames in ``data``; return how many bytes that was."""
        cdef size_t at = 0, length
        while size - at >= FRAME_HEAD and not self.has_failed:
            length = <size_t>data[at] << 16 | <size_t>data[at + 1] << 8 | data[at + 2]
            if not self.settled and (data[at + 3] != SETTINGS or data[at + 4] & ACK):
                self.fail(PROTOCOL_ERROR, "the peer does not begin as an HTTP/2 server does")
            elif length > LARGEST_FRAME:
                self.fail(FRAME_SIZE_ERROR, "a frame beyond the size limit")
            elif size - at < FRAME_HEAD + length:
                break
            else:
                self.on_frame(data[at + 3], data[at + 4], get31(data + at + 5), data + at + FRAME_HEAD, length)
                at += FRAME_HEAD + length
        # What a peer has said that does not begin well is kept for who tells of it.
        return size if self.has_failed and self.settled else at

    cdef void on_frame(self, uint8_t kind, uint8_t flags, uint32_t id, const uint8_t *at, size_t size) noexcept nogil:
        cdef StreamState *state
        if kind != DATA and kind != HEADERS and kind != CONTINUATION:
            self.endure(1)
        if self.block_stream and (kind != CONTINUATION or id != self.block_stream):
            self.fail(PROTOCOL_ERROR, "a header block was interrupted")
        elif kind == DATA:
            self.on_data(flags, id, at, size)
        elif kind == HEADERS:
            self.on_headers(flags, id, at, size)
        elif kind == CONTINUATION:
            if self.block_stream == 0:
                self.fail(PROTOCOL_ERROR, "CONTINUATION without a header block")
            else:
                self.on_block(flags, at, size)
        elif kind == SETTINGS:
            self.on_settings(flags, id, at, size)
        elif kind == PUSH_PROMISE:
            self.fail(PROTOCOL_ERROR, "a push, which was refused")
        elif kind == PING:
            if size != 8:
                self.fail(FRAME_SIZE_ERROR, "PING of a wrong size")
            elif id:
                self.fail(PROTOCOL_ERROR, "PING on a stream")
            elif flags & ACK:
                self.pongs += 1
            else:
                self.put(PING, ACK, 0, at, size)
        elif kind == GOAWAY:
            if size < 8:
                self.fail(FRAME_SIZE_ERROR, "GOAWAY of a wrong size")
            elif id:
                self.fail(PROTOCOL_ERROR, "GOAWAY on a stream")
            else:
                # A graceful server says it twice; it may take back streams, but not give any.
                self.last_id = min(get31(at), self.last_id) if self.told_to_go else get31(at)
                self.told_to_go, self.go_error = True, get32(at + 4)
                buffer_clear(&self.go_text, KEPT)
                buffer_append(&self.go_text, at + 8, min(size - 8, <size_t>256))
        elif kind == RST_STREAM or kind == WINDOW_UPDATE:
            if size != 4:
                self.fail(FRAME_SIZE_ERROR, "a frame of a wrong size")
            elif kind == WINDOW_UPDATE:
                self.on_window(id, get31(at))
            elif self.idle(id):
                self.fail(PROTOCOL_ERROR, "RST_STREAM of a stream that is not open")
            else:
                state = self.find(id)
                if state is not NULL and not state.flags & (BROKEN | REMOTE_CLOSED):
                    state.flags |= BROKEN
                    state.error, state.reason = get32(at), "the peer reset the stream"
                    self.wake(state)
        elif kind == PRIORITY and size != 5:
            self.fail(FRAME_SIZE_ERROR, "PRIORITY of a wrong size")

    cdef void on_data(self, uint8_t flags, uint32_t id, const uint8_t *at, size_t size) noexcept nogil:
        cdef StreamState *state
        cdef uint32_t before, code
        cdef size_t padding = 0
        cdef const char *reason = NULL
        if self.idle(id):
            self.fail(PROTOCOL_ERROR, "DATA for a stream that is not open")
            return
        self.charged += <int64_t>size
        if self.charged >= self.connection_window // 2:
            self.put_word(WINDOW_UPDATE, 0, <uint32_t>self.charged)
            self.charged = 0
        if flags & PADDED:
            padding = <size_t>at[0] + 1 if size else 1
            if padding > size:
                self.fail(PROTOCOL_ERROR, "more padding than data")
                return
        state = self.find(id)
        if size > padding:
            self.relax(1)
        elif state is NULL or not flags & END_STREAM:
            self.endure(1)
        if state is NULL or state.flags & (BROKEN | REMOTE_CLOSED):
            return
        state.charged += <int64_t>size
        if not state.flags & HEADERS_SEEN:
            self.break_off(state, PROTOCOL_ERROR, "data before headers")
            return
        if state.charged > self.window:
            self.break_off(state, FLOW_CONTROL_ERROR, "more data than the stream's window")
            return
        before = state.messages
        if padding:
            at += 1
        code = stream_data(state, at, size - padding, &reason)
        if code:
            self.break_off(state, code, reason)
            return
        if flags & END_STREAM:
            state.flags |= REMOTE_CLOSED
        if state.messages != before or flags & END_STREAM:
            self.wake(state)
        self.return_window(state)

    cdef void on_headers(self, uint8_t flags, uint32_t id, const uint8_t *at, size_t size) noexcept nogil:
        cdef size_t front = 0, padding = 0
        if self.idle(id):
            self.fail(PROTOCOL_ERROR, "HEADERS for a stream that is not open")
            return
        if flags & PADDED:
            front += 1
            padding = at[0] if size else 0
        if flags & WITH_PRIORITY:
            front += 5
        if front + padding > size:
            self.fail(PROTOCOL_ERROR, "more padding than headers")
            return
        self.block_stream, self.block_flags, self.block_cost = id, flags, 0
        self.on_block(flags, at + front, size - front - padding)

    cdef void on_block(self, uint8_t flags, const uint8_t *at, size_t size) noexcept nogil:
        """Add a fragment to the header block; when it is whole, keep it for Python."""
        cdef HeaderEvent *event
        cdef StreamState *state
        # With the heads, because a peer can send empty fragments forever.
        self.block_cost += FRAME_HEAD + size
        if self.block_cost > MAX_BLOCK or not buffer_append(&self.block, at, size):
            self.fail(ENHANCE_YOUR_CALM, "a header block beyond the size limit")
            return
        if not flags & END_HEADERS:
            return
        state = self.find(self.block_stream)
        event = <HeaderEvent *>buffer_reserve(&self.header_events, sizeof(HeaderEvent))
        if event is NULL or not buffer_append(&self.header_bytes, self.block.data, self.block.size):
            self.fail(INTERNAL_ERROR, "no memory for headers")
            return
        event.id, event.size, event.end = 0, self.block.size, (self.block_flags & END_STREAM) != 0
        # For a stream that is over the block counts only for the compression state.
        if state is NULL or state.flags & (BROKEN | REMOTE_CLOSED):
            self.endure(LATE_HEADERS)
        else:
            if state.flags & HEADERS_SEEN and not event.end:
                self.endure(MORE_HEADERS)
            event.id = self.block_stream
            state.flags |= HEADERS_SEEN
            if event.end:
                state.flags |= REMOTE_CLOSED
        self.header_events.size += sizeof(HeaderEvent)
        self.block_stream = 0
        buffer_clear(&self.block, KEPT)

    cdef void on_settings(self, uint8_t flags, uint32_t id, const uint8_t *at, size_t size) noexcept nogil:
        cdef size_t place
        if id:
            self.fail(PROTOCOL_ERROR, "SETTINGS on a stream")
        elif size % 6 or (flags & ACK and size):
            self.fail(FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        elif not flags & ACK:
            # Each may concern every stream.
            self.endure(<int64_t>(size // 6))
            for place in range(0, size, 6):
                self.on_setting(<uint32_t>at[place] << 8 | at[place + 1], get32(at + place + 2))
            self.settled = True
            self.put(SETTINGS, ACK, 0, NULL, 0)

    cdef void on_setting(self, uint32_t name, uint32_t value) noexcept nogil:
        cdef StreamState *state
        cdef uint32_t bucket
        cdef int64_t change
        if name == ENABLE_PUSH and value:
            self.fail(PROTOCOL_ERROR, "a server that wants to be pushed to")
        elif name == MAX_CONCURRENT_STREAMS:
            self.peer_streams = value
        elif name == MAX_FRAME_SIZE:
            if value < LARGEST_FRAME or value > 0xFFFFFF:
                self.fail(PROTOCOL_ERROR, "an impossible frame size")
            else:
                self.peer_frame = value
        elif name == INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                self.fail(FLOW_CONTROL_ERROR, "an impossible window")
                return
            change = <int64_t>value - self.peer_window
            self.peer_window = value
            for bucket in range(self.bucket_count):
                state = self.buckets[bucket]
                while state is not NULL:
                    state.send_window += change
                    if state.send_window > LARGEST_WINDOW:
                        self.fail(FLOW_CONTROL_ERROR, "a window that grows too large")
                        return
                    state = state.next

    cdef void on_window(self, uint32_t id, uint32_t increment) noexcept nogil:
        cdef StreamState *state
        if id == 0:
            self.send_window += increment
            if increment == 0:
                self.fail(PROTOCOL_ERROR, "an empty WINDOW_UPDATE")
            elif self.send_window > LARGEST_WINDOW:
                self.fail(FLOW_CONTROL_ERROR, "a window that grows too large")
            return
        if self.idle(id):
            self.fail(PROTOCOL_ERROR, "WINDOW_UPDATE for a stream that is not open")
            return
        state = self.find(id)
        if state is NULL or state.flags & BROKEN:
            return
        state.send_window += increment
        if increment == 0:
            self.break_off(state, PROTOCOL_ERROR, "an empty WINDOW_UPDATE")
        elif state.send_window > LARGEST_WINDOW:
            self.break_off(state, FLOW_CONTROL_ERROR, "a window that grows too large")
