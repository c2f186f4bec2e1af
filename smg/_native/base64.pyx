"""Base64 to bytes in one pass without the GIL: an image in a request is megabytes of it (RFC 4648, 4; spec multimodal 3).

``binascii`` holds the GIL while it decodes, and wants whitespace taken out and padding put in first, in copies.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memset

cdef enum:
    SPACE = 64
    PAD = 65
    WRONG = 66

cdef uint8_t[256] _VALUES


cdef void _fill():
    cdef int number
    cdef const char *alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    memset(_VALUES, WRONG, 256)
    for number in range(64):
        _VALUES[<uint8_t>alphabet[number]] = <uint8_t>number
    for space in b" \t\r\n\v\f":
        _VALUES[<int>space] = SPACE
    _VALUES[<uint8_t>c"="] = PAD


_fill()


cdef Py_ssize_t _digits(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at, count = 0
    for at in range(size):
        count += _VALUES[text[at]] < 64
    return count


cdef Py_ssize_t _decode(const uint8_t *text, Py_ssize_t size, uint8_t *out) noexcept nogil:
    """Decode into ``out``; the number of bytes written, or -1 when ``text`` is no base64."""
    cdef Py_ssize_t at = 0, written = 0
    cdef uint32_t group = 0, a, b, c, d
    cdef int digits = 0, pads = 0
    cdef uint8_t value
    while at < size:
        # Four digits at a time as long as nothing else comes.
        while digits == 0 and pads == 0 and at + 4 <= size:
            a, b, c, d = _VALUES[text[at]], _VALUES[text[at + 1]], _VALUES[text[at + 2]], _VALUES[text[at + 3]]
            if (a | b | c | d) >= 64:
                break
            group = a << 18 | b << 12 | c << 6 | d
            out[written] = <uint8_t>(group >> 16)
            out[written + 1] = <uint8_t>(group >> 8)
            out[written + 2] = <uint8_t>group
            written += 3
            at += 4
        if at == size:
            break
        value = _VALUES[text[at]]
        at += 1
        if value == SPACE:
            continue
        if value == PAD:
            pads += 1
            continue
        if value == WRONG or pads:
            return -1
        group = group << 6 | value if digits else value
        digits += 1
        if digits == 4:
            out[written] = <uint8_t>(group >> 16)
            out[written + 1] = <uint8_t>(group >> 8)
            out[written + 2] = <uint8_t>group
            written += 3
            digits = 0
    # What is missing of the padding is forgiven, too much is not; one digit alone is not even a byte.
    if digits == 1 or pads > (4 - digits if digits else 0):
        return -1
    if digits == 2:
        out[written] = <uint8_t>(group >> 4)
        written += 1
    elif digits == 3:
        out[written] = <uint8_t>(group >> 10)
        out[written + 1] = <uint8_t>(group >> 2)
        written += 2
    return written


def decode(str text not None, Py_ssize_t start=0):
    """The bytes that ``text`` stands for from ``start`` on; whitespace and missing padding are forgiven. Raises
    ValueError."""
    cdef Py_ssize_t size = 0, digits, written
    cdef const char *data
    cdef bytes out
    cdef uint8_t *target
    if not text.isascii():
        raise ValueError("not base64")
    data = PyUnicode_AsUTF8AndSize(text, &size)
    if start < 0 or start > size:
        raise ValueError("not base64")
    data += start
    size -= start
    with nogil:
        digits = _digits(<const uint8_t *>data, size)
    out = PyBytes_FromStringAndSize(NULL, digits * 3 // 4)
    # Nobody else has seen these bytes yet, so they may still be written.
    target = <uint8_t *>PyBytes_AS_STRING(out)
    with nogil:
        written = _decode(<const uint8_t *>data, size, target)
    if written < 0:
        raise ValueError("not base64")
    return out
