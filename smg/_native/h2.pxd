"""The HTTP/2 connection for other native modules (consumers of its streams: ``grpc_stream.pxd``)."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from smg._native.buffer cimport Buffer
from smg._native.h2_streams cimport Streams


cdef class Connection(Streams):
    # The connection's window for what the peer sends, and how much of it is used.
    cdef int64_t connection_window
    cdef int64_t charged
    # Frames that are not whole yet.
    cdef Buffer input
    # A header block that is not whole yet: its stream (0: none), flags and bytes, and those with the frames' heads.
    cdef uint32_t block_stream
    cdef uint8_t block_flags
    cdef size_t block_cost
    cdef Buffer block
    # Whole header blocks: HeaderEvents, and their bytes one after another.
    cdef Buffer header_events
    cdef Buffer header_bytes
    # The peer's answers to pings, and its GOAWAY.
    cdef readonly uint32_t pongs
    cdef uint32_t last_id
    cdef uint32_t go_error
    cdef Buffer go_text

    cdef size_t consume(self, const uint8_t *data, size_t size) noexcept nogil
    cdef void take_in(self) noexcept nogil
    cdef void on_frame(self, uint8_t kind, uint8_t flags, uint32_t id, const uint8_t *at, size_t size) noexcept nogil
    cdef void on_data(self, uint8_t flags, uint32_t id, const uint8_t *at, size_t size) noexcept nogil
    cdef void on_headers(self, uint8_t flags, uint32_t id, const uint8_t *at, size_t size) noexcept nogil
    cdef void on_block(self, uint8_t flags, const uint8_t *at, size_t size) noexcept nogil
    cdef void on_settings(self, uint8_t flags, uint32_t id, const uint8_t *at, size_t size) noexcept nogil
    cdef void on_setting(self, uint32_t name, uint32_t value) noexcept nogil
    cdef void on_window(self, uint32_t id, uint32_t increment) noexcept nogil
