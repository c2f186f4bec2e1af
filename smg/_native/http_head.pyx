"""The head of an ordinary HTTP/1.1 request: one pass over its bytes checks it and takes it apart.

Ordinary is a head of which nobody could think otherwise (RFC 9112 3, 5, 6): one Host, printable ASCII, at most one
Content-Length and no other word about the body. Whatever else comes is left to who reads heads in general, and has the
words for what is wrong with them.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.string cimport memchr, memcmp

cdef enum:
    # What a byte may be part of.
    TOKEN = 1
    PRINTABLE = 2
    VALUE = 4
    HOST = 8
    # Digits of a length that surely fit into 64 bits.
    DIGITS = 18

cdef unsigned char KIND[256]
cdef unsigned char LOWER[256]


cdef void _make_tables() noexcept:
    cdef int byte
    for byte in range(256):
        LOWER[byte] = byte + 32 if 65 <= byte <= 90 else byte
        if 0x21 <= byte <= 0x7E:
            KIND[byte] |= PRINTABLE
        if 0x20 <= byte <= 0x7E or byte == 9:
            KIND[byte] |= VALUE
    for byte in b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ":
        KIND[byte] |= TOKEN | HOST
    for byte in b"!#$%&'*+-.^_`|~":
        KIND[byte] |= TOKEN
    for byte in b"-._~":
        KIND[byte] |= HOST


_make_tables()


cdef Py_ssize_t _run(const unsigned char *data, Py_ssize_t start, unsigned char kind) noexcept nogil:
    """Where the bytes of ``kind`` from ``start`` on end; the line's end always ends them."""
    while KIND[data[start]] & kind:
        start += 1
    return start


cdef bint _is(const unsigned char *data, Py_ssize_t size, const char *word, Py_ssize_t length) noexcept nogil:
    """Whether ``data`` is ``word`` (in small letters), whatever the case of its letters."""
    cdef Py_ssize_t i
    if size != length:
        return False
    for i in range(size):
        if LOWER[data[i]] != <unsigned char>word[i]:
            return False
    return True


cdef bint _is_host(const unsigned char *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Whether this is a name or an IPv4 address, and perhaps a port."""
    cdef Py_ssize_t name = _run(data, start, HOST)
    if name == start:
        return False
    if name < end and data[name] == b":":
        name += 1
        while name < end and b"0" <= data[name] <= b"9":
            name += 1
    return name == end


cdef long long _length(const unsigned char *data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """The number these bytes are; -1: none, or too long a one."""
    cdef long long number = 0
    cdef Py_ssize_t i
    if start == end or end - start > DIGITS:
        return -1
    for i in range(start, end):
        if not b"0" <= data[i] <= b"9":
            return -1
        number = number * 10 + data[i] - 48
    return number


cdef Py_ssize_t _end(const unsigned char *data, Py_ssize_t size) noexcept nogil:
    """Where the empty line of a head is that has come whole, or -1."""
    cdef Py_ssize_t at = 0
    cdef const void *found
    while at + 4 <= size:
        found = memchr(data + at, b"\r", size - at - 3)
        if found == NULL:
            return -1
        at = <const unsigned char *>found - data
        if memcmp(data + at, b"\r\n\r\n", 4) == 0:
            return at
        at += 1
    return -1


cdef str _text(const unsigned char *data, Py_ssize_t start, Py_ssize_t end):
    return PyUnicode_DecodeASCII(<const char *>data + start, end - start, NULL)


cdef str _small(const unsigned char *data, Py_ssize_t start, Py_ssize_t end):
    """The bytes as text in small letters; they are few, or the text is made of a copy that is."""
    cdef char word[64]
    cdef Py_ssize_t i
    if end - start > 64:
        return _text(data, start, end).lower()
    for i in range(end - start):
        word[i] = <char>LOWER[data[start + i]]
    return PyUnicode_DecodeASCII(word, end - start, NULL)


def ordinary_head(bytearray buffer not None, Py_ssize_t limit):
    cdef const unsigned char *data = <const unsigned char *>PyByteArray_AS_STRING(buffer)
    cdef Py_ssize_t end = _end(data, PyByteArray_GET_SIZE(buffer))
    if end < 0 or end >= limit:
        return None
    cdef Py_ssize_t method = _run(data, 0, PRINTABLE)
    if method == 0 or data[method] != b" ":
        return None
    cdef Py_ssize_t url = _run(data, method + 1, PRINTABLE)
    if url == method + 1 or url + 9 > end or memcmp(data + url, b" HTTP/1.1\r\n", 11) != 0:
        return None
    cdef Py_ssize_t at = url + 9, name, colon, value, size
    cdef bint keep_alive = True, hosted = False
    cdef long long length = -1
    cdef list fields = []
    while at < end:
        name = at + 2
        colon = _run(data, name, TOKEN)
        if colon == name or data[colon] != b":":
            return None
        value = colon + 1
        while data[value] == b" " or data[value] == 9:
            value += 1
        at = _run(data, value, VALUE)
        # At the end of the head there is a line's end for certain, so none of this reads beyond it.
        if data[at] != b"\r" or data[at + 1] != b"\n":
            return None
        size = colon - name
        if _is(data + name, size, b"host", 4):
            if hosted or not _is_host(data, value, at):
                return None
            hosted = True
        elif _is(data + name, size, b"content-length", 14):
            if length >= 0:
                return None
            length = _length(data, value, at)
            if length < 0:
                return None
        elif _is(data + name, size, b"connection", 10):
            keep_alive = _is(data + value, at - value, b"keep-alive", 10)
        elif (
            _is(data + name, size, b"transfer-encoding", 17)
            or _is(data + name, size, b"expect", 6)
            or _is(data + name, size, b"upgrade", 7)
        ):
            return None
        fields.append((_small(data, name, colon), _text(data, value, at)))
    if not hosted:
        return None
    return (
        bytes(data[:end]),
        _text(data, 0, method),
        bytes(data[method + 1 : url]),
        fields,
        length,
        keep_alive,
    )
