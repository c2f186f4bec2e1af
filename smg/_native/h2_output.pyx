"""The sending half of an HTTP/2 connection: frames to write, request bodies and the windows they need (RFC 9113, 5.2).

Requests become DATA frames only as the peer's windows and the socket take them, one frame of each stream in turn, so a
long prompt holds up nobody and is not copied twice.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t

from smg._native.buffer cimport Buffer, buffer_append, buffer_clear, buffer_drop
from smg._native.grpc_stream cimport BROKEN, SENDING, StreamState
from smg._native.h2_frames cimport (
    DATA,
    DEFAULT_WINDOW,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GOAWAY,
    INTERNAL_ERROR,
    LARGEST_FRAME,
    NO_ERROR,
    PING,
    put32,
    write_frame,
)
from smg._native.monotonic cimport monotonic

cdef extern from "<sys/socket.h>" nogil:
    Py_ssize_t send(int fd, const void *data, size_t size, int flags)
    int MSG_NOSIGNAL

cdef enum:
    # Bytes written ahead of the socket before another stream's turn has to wait.
    WRITE_SIZE = 64 << 10
    # Bytes sent until others on the event loop have their turn: a peer on this machine takes them as fast as we write.
    TURN = 128 << 10
    # A peer that lets so many bytes pile up on our side does not read.
    MAX_BACKLOG = 4 << 20
    KEPT = 64 << 10
    # Frames that bring nothing: so many at once, and so many in each second. Peers that work well need some tens.
    PATIENCE = 10_000
    PATIENCE_PER_SECOND = 1_000
    # What a peer may have to say about one DATA frame of ours: windows, and pings that measure the way.
    REPLIES = 4


cdef class Output:
    """What a connection sends, and whether it has failed."""

    def __cinit__(self, *args, **kwargs):
        self.peer_frame = LARGEST_FRAME
        self.peer_window = self.send_window = DEFAULT_WINDOW
        self.patience, self.counted_at = PATIENCE, monotonic()
        if not buffer_append(&self.out, <const char *>b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24):
            raise MemoryError

    def __dealloc__(self):
        buffer_clear(&self.out, 0)
        buffer_clear(&self.sending, 0)

    @property
    def failure(self):
        """(HTTP/2 error code, why) once the connection is of no more use, else None."""
        return (self.error, self.reason.decode()) if self.has_failed else None

    @property
    def pending(self):
        """There is something to send, and the peer's windows allow it."""
        if self.out.size == self.sent and self.sending.size:
            with nogil:
                self.fill()
        return self.out.size > self.sent

    def send(self, int fd):
        """Send on a non-blocking socket, some ``TURN`` bytes at most. Raises OSError.

        Returns True when nothing is left to be sent now.
        """
        cdef Py_ssize_t count = 0
        cdef size_t total = 0
        cdef int fault = 0
        with nogil:
            while True:
                self.fill()
                if self.out.size == self.sent:
                    break
                if total >= TURN:
                    fault = EAGAIN
                    break
                count = send(fd, self.out.data + self.sent, self.out.size - self.sent, MSG_NOSIGNAL)
                if count < 0:
                    fault = errno
                    break
                self.sent += <size_t>count
                total += <size_t>count
        if fault == EAGAIN or fault == EINTR:
            return False
        if fault:
            raise OSError(fault, "sending failed")
        return True

    def output(self):
        """Return what is to be sent now, in pieces of some 64 KiB; empty when there is nothing."""
        cdef bytes out
        with nogil:
            self.fill()
        out = PyBytes_FromStringAndSize(<const char *>self.out.data + self.sent, <Py_ssize_t>(self.out.size - self.sent))
        self.sent = self.out.size
        return out

    def ping(self):
        """Ask for a sign of life; ``pongs`` counts the answers."""
        self.put(PING, 0, 0, <const char *>b"smg-ping", 8)

    def shutdown(self, uint32_t code=NO_ERROR):
        """Tell the peer that we go, and the HTTP/2 error code that says why."""
        self.fail(code, "closed by us")

    cdef void fill(self) noexcept nogil:
        """Turn request bodies into DATA frames, one of each stream in turn, as far as windows and ``WRITE_SIZE`` go."""
        cdef StreamState *state
        cdef size_t blocked = 0
        if self.sent == self.out.size:
            self.sent = 0
            buffer_clear(&self.out, KEPT)
        elif self.sent > WRITE_SIZE:
            buffer_drop(&self.out, self.sent)
            self.sent = 0
        while blocked < self.sending.size and self.out.size - self.sent < WRITE_SIZE:
            if self.send_window <= 0 or self.has_failed:
                return
            state = (<StreamState **>self.sending.data)[0]
            buffer_drop(&self.sending, sizeof(StreamState *))
            blocked = 0 if self.send_some(state) else blocked + sizeof(StreamState *)
            if state.flags & BROKEN or state.sent == state.body.size + state.rest_size:
                state.flags &= ~<uint32_t>SENDING
                buffer_clear(&state.body, 0)
                state.rest_size = state.sent = 0
            else:
                # There is room: it has just been taken out.
                buffer_append(&self.sending, &state, sizeof(StreamState *))

    cdef bint send_some(self, StreamState *state) noexcept nogil:
        """Write one DATA frame of a request; False when the windows are used up."""
        cdef size_t left = state.body.size + state.rest_size - state.sent
        # However large the peer takes frames: they are copied, and count as backlog.
        cdef int64_t frame = min(<int64_t>self.peer_frame, <int64_t>WRITE_SIZE)
        cdef int64_t room = min(min(state.send_window, self.send_window), frame)
        cdef const uint8_t *data = <const uint8_t *>state.body.data + state.sent
        cdef size_t part = left
        if state.sent < state.body.size:
            part = state.body.size - state.sent
        else:
            data = state.rest + (state.sent - state.body.size)
        part = min(part, <size_t>max(room, 0))
        if part == 0 or state.flags & BROKEN:
            return False
        self.put(DATA, END_STREAM if part == left else 0, state.id, data, part)
        state.sent += part
        state.send_window -= <int64_t>part
        self.send_window -= <int64_t>part
        self.relax(REPLIES)
        return True

    cdef void put(self, uint8_t kind, uint8_t flags, uint32_t stream, const void *payload, size_t size) noexcept nogil:
        # Nothing follows GOAWAY.
        if self.has_failed:
            return
        if self.out.size - self.sent > MAX_BACKLOG:
            self.fail(ENHANCE_YOUR_CALM, "the peer does not read")
        elif not write_frame(&self.out, kind, flags, stream, payload, size):
            self.fail(INTERNAL_ERROR, "no memory for output")

    cdef void put_word(self, uint8_t kind, uint32_t stream, uint32_t word) noexcept nogil:
        """Write a frame whose payload is one number: WINDOW_UPDATE, RST_STREAM."""
        cdef uint8_t[4] payload
        put32(payload, word)
        self.put(kind, 0, stream, payload, 4)

    cdef void endure(self, int64_t cost) noexcept nogil:
        """Count a frame that brings nothing; too many of them in too short a time are an attack (RFC 9113, 10.5)."""
        cdef double now
        self.patience -= cost
        if self.patience < 0:
            now = monotonic()
            self.relax(<int64_t>min((now - self.counted_at) * PATIENCE_PER_SECOND, <double>PATIENCE))
            self.counted_at = now
            if self.patience < 0:
                self.fail(ENHANCE_YOUR_CALM, "a flood of frames that bring nothing")

    cdef void relax(self, int64_t count) noexcept nogil:
        """Something useful has happened: as many useless frames more are taken."""
        self.patience = min(self.patience + count, <int64_t>PATIENCE)

    cdef void fail(self, uint32_t code, const char *reason) noexcept nogil:
        """The connection is of no more use: say so, once."""
        cdef uint8_t[8] payload
        if self.has_failed:
            return
        self.has_failed, self.error, self.reason = True, code, reason
        put32(payload, 0)
        put32(payload + 4, code)
        write_frame(&self.out, GOAWAY, 0, 0, payload, 8)
