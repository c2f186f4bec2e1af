"""Incremental UTF-8 decoding with replacement, without the GIL.

Bytes go in as they come, whole characters come out. An incomplete character waits (at most 3 bytes); a byte that cannot
go on from it releases it as one U+FFFD: the longest possible beginning of a character is replaced as a unit, as
``bytes.decode("utf-8", "replace")`` does (cases TX-01 and TX-02).
"""

from libc.string cimport memcpy


cdef struct Utf8:
    # Bytes of the unfinished character, how many there are and how many more it takes.
    unsigned char kept[4]
    unsigned char have
    unsigned char need
    # Range of the next byte: E0, ED, F0 and F4 narrow it to shut out overlong forms, surrogates and what is too big.
    unsigned char low
    unsigned char high


cdef inline unsigned char *utf8_replacement(unsigned char *out) noexcept nogil:
    out[0] = 0xEF
    out[1] = 0xBF
    out[2] = 0xBD
    return out + 3


cdef inline bint utf8_lead(Utf8 *state, unsigned char byte) noexcept nogil:
    """Begin a character of several bytes; False when ``byte`` begins none."""
    if byte < 0xC2 or byte > 0xF4:
        return False
    state.low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
    state.high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
    state.need = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
    state.kept[0] = byte
    state.have = 1
    return True


cdef inline unsigned char *utf8_push(
    Utf8 *state, const unsigned char *data, Py_ssize_t size, unsigned char *out
) noexcept nogil:
    """Decode ``data`` into ``out``, which must have room for ``3 * size + 3`` bytes; return the end of the output."""
    cdef const unsigned char *end = data + size
    cdef unsigned char byte
    while data < end:
        byte = data[0]
        if state.have:
            if byte < state.low or byte > state.high:
                out = utf8_replacement(out)
                state.have = 0
                continue
            state.low = 0x80
            state.high = 0xBF
            state.kept[state.have] = byte
            state.have += 1
            state.need -= 1
            if state.need == 0:
                memcpy(out, state.kept, state.have)
                out += state.have
                state.have = 0
        elif byte < 0x80:
            out[0] = byte
            out += 1
        elif not utf8_lead(state, byte):
            out = utf8_replacement(out)
        data += 1
    return out


cdef inline unsigned char *utf8_flush(Utf8 *state, unsigned char *out) noexcept nogil:
    """The bytes are over: replace an unfinished character. ``out`` must have room for 3 bytes."""
    if state.have:
        state.have = 0
        out = utf8_replacement(out)
    return out
