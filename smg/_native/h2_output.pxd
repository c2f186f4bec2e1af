"""The sending half of an HTTP/2 connection, for ``h2_streams`` and ``h2``."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from smg._native.buffer cimport Buffer
from smg._native.grpc_stream cimport StreamState


cdef class Output:
    # What the peer allows: frame size, initial window of a stream, bytes on the connection now.
    cdef uint32_t peer_frame
    cdef int64_t peer_window
    cdef int64_t send_window
    # Frames to be sent, from ``sent`` on; pointers to StreamStates whose requests are not sent yet.
    cdef Buffer out
    cdef size_t sent
    cdef Buffer sending
    # Why the connection is of no more use; the reason is a constant.
    cdef bint has_failed
    cdef uint32_t error
    cdef const char *reason
    # How many frames that bring nothing are still taken, and when that was last counted (seconds).
    cdef int64_t patience
    cdef double counted_at

    cdef void fill(self) noexcept nogil
    cdef bint send_some(self, StreamState *state) noexcept nogil
    cdef void put(self, uint8_t kind, uint8_t flags, uint32_t stream, const void *payload, size_t size) noexcept nogil
    cdef void put_word(self, uint8_t kind, uint32_t stream, uint32_t word) noexcept nogil
    cdef void endure(self, int64_t cost) noexcept nogil
    cdef void relax(self, int64_t count) noexcept nogil
    cdef void fail(self, uint32_t code, const char *reason) noexcept nogil
