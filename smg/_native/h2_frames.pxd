"""HTTP/2 frames as numbers and bytes (RFC 9113, 4 to 7)."""

from libc.stdint cimport uint8_t, uint32_t

from smg._native.buffer cimport Buffer, buffer_append, buffer_reserve

cdef enum FrameType:
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9

cdef enum FrameFlag:
    END_STREAM = 0x1
    ACK = 0x1
    END_HEADERS = 0x4
    PADDED = 0x8
    WITH_PRIORITY = 0x20

cdef enum ErrorCode:
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    FRAME_SIZE_ERROR = 6
    CANCEL = 8
    ENHANCE_YOUR_CALM = 11

cdef enum Setting:
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6

cdef enum:
    FRAME_HEAD = 9
    # What a peer may send us, as we announce nothing else.
    LARGEST_FRAME = 16384
    DEFAULT_WINDOW = 65535
    LARGEST_WINDOW = 0x7FFFFFFF


cdef inline uint32_t get32(const uint8_t *at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline uint32_t get31(const uint8_t *at) noexcept nogil:
    return get32(at) & 0x7FFFFFFF


cdef inline void put32(uint8_t *at, uint32_t value) noexcept nogil:
    at[0], at[1], at[2], at[3] = value >> 24, value >> 16 & 0xFF, value >> 8 & 0xFF, value & 0xFF


cdef inline bint write_frame(
    Buffer *out, uint8_t kind, uint8_t flags, uint32_t stream, const void *payload, size_t size
) noexcept nogil:
    cdef uint8_t *at = buffer_reserve(out, FRAME_HEAD + size)
    if at is NULL:
        return False
    at[0], at[1], at[2] = size >> 16 & 0xFF, size >> 8 & 0xFF, size & 0xFF
    at[3], at[4] = kind, flags
    put32(at + 5, stream)
    out.size += FRAME_HEAD
    return buffer_append(out, payload, size)
