"""The streams of an HTTP/2 connection: opened in order as the peer has places for them, found by id, dropped once.

A stream stays here until Python drops it, whatever the peer does to it, so that nothing depends on the order in which
Python asks for headers, messages and ends. ``READY`` streams wait for Python's attention.
"""

from collections import deque

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove

from smg._native.buffer cimport Buffer, buffer_append, buffer_clear
from smg._native.grpc_stream cimport (
    BROKEN,
    DROPPED,
    READY,
    REMOTE_CLOSED,
    SENDING,
    Stream,
    StreamState,
    stream_release,
)
from smg._native.h2_frames cimport (
    CANCEL,
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    INTERNAL_ERROR,
    LARGEST_WINDOW,
    RST_STREAM,
    WINDOW_UPDATE,
)
from smg._native.h2_output cimport Output

cdef enum:
    KEPT = 64 << 10


cdef class Streams(Output):
    """The streams of one connection. ``first_id`` is the first one's id (odd), ``window`` each one's, in bytes."""

    def __cinit__(self, *args, **kwargs):
        self.peer_streams = 0xFFFFFFFF
        self.open_streams = {}
        self.queue = deque()
        if not self.wide():
            raise MemoryError

    def __init__(self, int64_t window=256 << 10, uint32_t first_id=1):
        if not 0 < window <= LARGEST_WINDOW:
            raise ValueError("a window must be 1 to 2147483647 bytes")
        self.window = window
        self.next_id = first_id | 1

    def __dealloc__(self):
        buffer_clear(&self.ready, 0)
        free(self.buckets)

    @property
    def streams(self):
        """The streams on the connection, oldest first."""
        return list(self.open_streams.values())

    @property
    def queued(self):
        """The streams that wait for a place, in order."""
        return list(self.queue)

    @property
    def max_streams(self):
        """How many streams the peer allows at once."""
        return self.peer_streams

    @property
    def exhausted(self):
        """No further stream can be opened: the ids are used up."""
        return self.next_id > LARGEST_WINDOW

    def open(self, Stream stream not None):
        """Open ``stream`` as soon as the peer has a place for it, in the order of these calls."""
        if stream.state.id or stream.state.flags & DROPPED:
            raise ValueError("a stream is opened once")
        self.queue.append(stream)
        self.admit()

    cdef void admit(self):
        """Open queued streams while there is room."""
        cdef Stream stream
        cdef const uint8_t *block
        cdef size_t size, at, part
        cdef StreamState *state
        if not self.queue or not self.settled or self.told_to_go or self.has_failed:
            return
        while self.queue and <uint32_t>len(self.open_streams) < self.peer_streams and self.next_id <= LARGEST_WINDOW:
            if <uint32_t>len(self.open_streams) > self.bucket_count and not self.wide():
                raise MemoryError
            stream = self.queue.popleft()
            state = &stream.state
            state.id, state.send_window = self.next_id, self.peer_window
            self.next_id += 2
            self.open_streams[state.id] = stream
            self.link(state)
            block, size = stream.headers, <size_t>len(stream.headers)
            part = min(size, self.peer_frame)
            self.put(HEADERS, END_HEADERS if part == size else 0, state.id, block, part)
            at = part
            while at < size:
                part = min(size - at, self.peer_frame)
                self.put(CONTINUATION, END_HEADERS if at + part == size else 0, state.id, block + at, part)
                at += part
            if not buffer_append(&self.sending, &state, sizeof(StreamState *)):
                raise MemoryError
            state.flags |= SENDING

    def take(self, Stream stream not None):
        """Return what has arrived on ``stream``: bytes and Tokens, in order.

        What the call before returned counts as read from now on: its share of the stream's window goes back.
        """
        cdef list out
        stream_release(&stream.state, stream.taken)
        if not stream.state.rest_size:
            stream.request = None
        out = stream.collected()
        stream.taken = stream.state.held
        self.return_window(&stream.state)
        return out

    def drop(self, Stream stream not None, uint32_t code=CANCEL):
        """Let go of ``stream`` and its owner; reset it with ``code`` unless both sides have finished it. Idempotent."""
        cdef StreamState *state = &stream.state
        if state.id == 0 and stream in self.queue:
            self.queue.remove(stream)
            stream.owner = None
            state.flags |= DROPPED
        if self.open_streams.get(state.id) is not stream:
            return
        state.flags |= DROPPED
        if not state.flags & BROKEN and (not state.flags & REMOTE_CLOSED or state.flags & SENDING):
            self.put_word(RST_STREAM, state.id, code)
        self.unlink(state)
        # The owner holds the stream, too.
        stream.owner = None
        buffer_clear(&state.body, 0)
        buffer_clear(&state.partial, 0)
        state.rest_size, stream.request = 0, None
        del self.open_streams[state.id]
        self.admit()

    def take_ready(self):
        """Return the streams that have got messages, or an end other than by headers, since the last call."""
        cdef StreamState **place = <StreamState **>self.ready.data
        cdef size_t index
        cdef list out = []
        for index in range(self.ready.size // sizeof(StreamState *)):
            place[index].flags &= ~<uint32_t>READY
            out.append(<Stream>place[index].owner)
        buffer_clear(&self.ready, KEPT)
        return out

    cdef bint idle(self, uint32_t id) noexcept nogil:
        """No stream of that id was ever opened: 0, the peer's own numbers, numbers to come."""
        return id % 2 == 0 or id >= self.next_id

    cdef StreamState *find(self, uint32_t id) noexcept nogil:
        cdef StreamState *state = self.buckets[(id >> 1) & (self.bucket_count - 1)]
        while state is not NULL and state.id != id:
            state = state.next
        return state

    cdef void link(self, StreamState *state) noexcept nogil:
        cdef uint32_t bucket = (state.id >> 1) & (self.bucket_count - 1)
        state.next = self.buckets[bucket]
        self.buckets[bucket] = state

    cdef void unlink(self, StreamState *state) noexcept nogil:
        cdef StreamState **place = &self.buckets[(state.id >> 1) & (self.bucket_count - 1)]
        while place[0] is not state:
            place = &place[0].next
        place[0] = state.next
        if state.flags & READY:
            _remove(&self.ready, state)
        if state.flags & SENDING:
            _remove(&self.sending, state)

    cdef bint wide(self) noexcept nogil:
        """Make twice as many buckets (64 at first); False without memory."""
        cdef uint32_t count = self.bucket_count * 2 if self.bucket_count else 64
        cdef uint32_t before = self.bucket_count, bucket
        cdef StreamState **old = self.buckets
        cdef StreamState *state
        cdef StreamState *next
        cdef StreamState **fresh = <StreamState **>calloc(count, sizeof(StreamState *))
        if fresh is NULL:
            return False
        self.buckets, self.bucket_count = fresh, count
        for bucket in range(before):
            state = old[bucket]
            while state is not NULL:
                next = state.next
                self.link(state)
                state = next
        free(old)
        return True

    cdef void wake(self, StreamState *state) noexcept nogil:
        if state.flags & READY:
            return
        if buffer_append(&self.ready, &state, sizeof(StreamState *)):
            state.flags |= READY
        else:
            self.fail(INTERNAL_ERROR, "no memory for streams")

    cdef void settle_batches(self) noexcept nogil:
        """A read has been worked through: let consumers finish their batches, and keep for Python what needs it."""
        cdef StreamState **place = <StreamState **>self.ready.data
        cdef size_t count = self.ready.size // sizeof(StreamState *), index, kept = 0
        cdef StreamState *state
        cdef bint needed
        for index in range(count):
            state = place[index]
            needed = state.consumer.on_batch is NULL or state.consumer.on_batch(state.consumer.row)
            if needed or state.flags & (REMOTE_CLOSED | BROKEN):
                place[kept] = state
                kept += 1
            else:
                state.flags &= ~<uint32_t>READY
        self.ready.size = kept * sizeof(StreamState *)

    cdef void break_off(self, StreamState *state, uint32_t code, const char *reason) noexcept nogil:
        """Reset a stream that the peer has made a mistake on."""
        state.flags |= BROKEN
        state.error, state.reason = code, reason
        self.put_word(RST_STREAM, state.id, code)
        self.wake(state)

    cdef void return_window(self, StreamState *state) noexcept nogil:
        cdef int64_t free_bytes = state.charged - state.held
        if free_bytes * 2 >= self.window and not state.flags & (REMOTE_CLOSED | BROKEN | DROPPED):
            self.put_word(WINDOW_UPDATE, state.id, <uint32_t>free_bytes)
            state.charged -= free_bytes


cdef void _remove(Buffer *list, StreamState *state) noexcept nogil:
    """Remove ``state`` from a list of pointers, keeping the order."""
    cdef StreamState **place = <StreamState **>list.data
    cdef size_t count = list.size // sizeof(StreamState *), index
    for index in range(count):
        if place[index] is state:
            memmove(&place[index], &place[index + 1], (count - index - 1) * sizeof(StreamState *))
            list.size -= sizeof(StreamState *)
            return
