"""JSON string escaping and server-sent-event templates with holes, to bytes.

Two passes over the text's UTF-8: one measures, one writes into a bytes object of exactly that size. Both touch no Python
object, so the cost per event is two scans and one allocation; for long texts they run without the GIL.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    # Bytes from which on others may run meanwhile. For less, having to wait for the GIL afterwards can cost far more.
    LONG = 256 << 10

# How many bytes each byte becomes: 1 as it is, 2 for \" \\ \b \f \n \r \t, 6 for the other controls (\u00XX).
cdef unsigned char WIDTH[256]
# The letter after the backslash of a two-byte escape.
cdef char LETTER[256]
cdef const char *HEX = b"0123456789abcdef"

cdef void _make_tables() noexcept:
    cdef int byte
    for byte in range(256):
        WIDTH[byte] = 6 if byte < 0x20 else 1
    for byte, letter in ((0x22, b'"'), (0x5C, b"\\"), (0x08, b"b"), (0x0C, b"f"), (0x0A, b"n"), (0x0D, b"r"), (0x09, b"t")):
        WIDTH[byte] = 2
        LETTER[byte] = letter[0]


_make_tables()


cdef Py_ssize_t escaped_size(const unsigned char *source, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t index, total = 0
    for index in range(size):
        total += WIDTH[source[index]]
    return total


cdef char *write_escaped(const unsigned char *source, Py_ssize_t size, Py_ssize_t escaped, char *out) noexcept nogil:
    """Write ``source`` escaped; ``escaped`` is what ``escaped_size`` returned. Returns the end of what was written."""
    cdef Py_ssize_t index
    cdef unsigned char byte, width
    if escaped == size:
        memcpy(out, source, size)
        return out + size
    for index in range(size):
        byte = source[index]
        width = WIDTH[byte]
        if width == 1:
            out[0] = <char>byte
        else:
            out[0] = b"\\"
            if width == 2:
                out[1] = LETTER[byte]
            else:
                memcpy(out + 1, b"u00", 3)
                out[4] = HEX[byte >> 4]
                out[5] = HEX[byte & 15]
        out += width
    return out


cdef int write_decimal(long long number, char *digits) noexcept nogil:
    """Write ``number`` right-aligned into ``digits`` (DIGITS bytes) and return how many bytes it takes."""
    # Negated as unsigned, because the smallest number has no positive counterpart.
    cdef unsigned long long rest = <unsigned long long>number
    cdef int at = DIGITS
    if number < 0:
        rest = 0 - rest
    while True:
        at -= 1
        digits[at] = <char>(48 + rest % 10)
        rest = rest // 10
        if rest == 0:
            break
    if number < 0:
        at -= 1
        digits[at] = b"-"
    return DIGITS - at


def escape(str text not None):
    """Return ``text`` as the inside of a JSON string, in UTF-8 (RFC 8259: quote, backslash, controls escaped).

    U+2028 and U+2029 stay as they are. Raises UnicodeEncodeError for unpaired surrogates.
    """
    cdef Py_ssize_t size, escaped
    cdef const unsigned char *source = <const unsigned char *>PyUnicode_AsUTF8AndSize(text, &size)
    escaped = _measured(source, size)
    cdef bytes result = PyBytes_FromStringAndSize(NULL, escaped)
    _written(source, size, escaped, PyBytes_AS_STRING(result))
    return result


cdef Py_ssize_t _measured(const unsigned char *source, Py_ssize_t size) noexcept:
    """As ``escaped_size``."""
    cdef Py_ssize_t escaped
    if size < LONG:
        return escaped_size(source, size)
    with nogil:
        escaped = escaped_size(source, size)
    return escaped


cdef char *_written(const unsigned char *source, Py_ssize_t size, Py_ssize_t escaped, char *out) noexcept:
    """As ``write_escaped``."""
    if size < LONG:
        return write_escaped(source, size, escaped, out)
    with nogil:
        out = write_escaped(source, size, escaped, out)
    return out


cdef int hole_kind(object name) except -1:
    if name == "text":
        return TEXT
    if name == "sequence":
        return SEQUENCE
    raise ValueError(f"unknown hole {name!r}")


def fill(tuple pieces not None, tuple holes not None, str text not None, long long sequence):
    """Join ``pieces`` with the holes' values: ``text`` escaped, ``sequence`` in decimal.

    Raises ValueError for a hole of another name or counts that do not fit, OverflowError beyond 64 bits,
    UnicodeEncodeError for unpaired surrogates.
    """
    cdef Py_ssize_t index, size, escaped, total = 0, count = len(holes)
    cdef char digits[DIGITS]
    cdef int digit_count = write_decimal(sequence, digits)
    cdef const unsigned char *source = <const unsigned char *>PyUnicode_AsUTF8AndSize(text, &size)
    cdef bytes piece
    if len(pieces) != count + 1:
        raise ValueError(f"{len(pieces)} pieces do not fit {count} holes")
    escaped = _measured(source, size)
    for index in range(count):
        total += escaped if hole_kind(holes[index]) == TEXT else digit_count
    for piece in pieces:
        if piece is None:
            raise TypeError("a piece must be bytes, not None")
        total += PyBytes_GET_SIZE(piece)

    cdef bytes result = PyBytes_FromStringAndSize(NULL, total)
    cdef char *out = PyBytes_AS_STRING(result)
    for index in range(count + 1):
        piece = pieces[index]
        memcpy(out, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
        out += PyBytes_GET_SIZE(piece)
        if index == count:
            break
        if hole_kind(holes[index]) == TEXT:
            out = _written(source, size, escaped, out)
        else:
            memcpy(out, digits + DIGITS - digit_count, digit_count)
            out += digit_count
    return result
