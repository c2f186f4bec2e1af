"""The streams of an HTTP/2 connection, for ``h2``."""

from libc.stdint cimport int64_t, uint32_t

from smg._native.buffer cimport Buffer
from smg._native.grpc_stream cimport StreamState
from smg._native.h2_output cimport Output


cdef class Streams(Output):
    # How many streams the peer allows at once, and each one's window for what it sends, in bytes.
    cdef uint32_t peer_streams
    cdef int64_t window
    cdef int64_t next_id
    # The peer's SETTINGS are here; it has said GOAWAY.
    cdef readonly bint settled
    cdef bint told_to_go
    # Pointers to StreamStates to look after.
    cdef Buffer ready
    # Streams by id: buckets of chains for nogil code, and the references that keep them alive.
    cdef StreamState **buckets
    cdef uint32_t bucket_count
    cdef dict open_streams
    cdef object queue

    cdef bint idle(self, uint32_t id) noexcept nogil
    cdef StreamState *find(self, uint32_t id) noexcept nogil
    cdef void link(self, StreamState *state) noexcept nogil
    cdef void unlink(self, StreamState *state) noexcept nogil
    cdef bint wide(self) noexcept nogil
    cdef void wake(self, StreamState *state) noexcept nogil
    cdef void break_off(self, StreamState *state, uint32_t code, const char *reason) noexcept nogil
    cdef void return_window(self, StreamState *state) noexcept nogil
    cdef void admit(self)
