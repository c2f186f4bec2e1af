"""Protobuf reader of the hot message: one Generate chunk with token ids (spec engine-contract 3.2 to 3.6 and 4.4).

    GenerateResponse    { chunk | complete }
    GenerateStreamChunk { token_ids; prompt_tokens; completion_tokens; cached_tokens; index; … }

Contracts differ in the numbers of these fields (``Layout``). Nearly every message of a stream is this one, so it is read
here, straight into arrays. Whatever else may come is COLD and left to the generated contract, which alone decides on it:
Complete, log probabilities, a chunk in several pieces, groups, oversized varints, text that may not be UTF-8. Unknown
fields are skipped. MALFORMED is only what no protobuf reader accepts.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from smg._native.buffer cimport Buffer, buffer_clear, buffer_reserve

cdef enum:
    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    GROUP = 3
    FIXED32 = 5


cdef int _varint(const uint8_t **at, const uint8_t *end, uint64_t *value) noexcept nogil:
    """Read a varint of up to ten bytes and move ``at`` past it. COLD: the tenth byte has bits beyond the 64th."""
    cdef const uint8_t *place = at[0]
    cdef uint64_t result = 0
    cdef int shift = 0
    cdef uint8_t byte
    while place < end:
        byte = place[0]
        place += 1
        if shift == 63 and byte > 1:
            return MALFORMED if byte & 0x80 else COLD
        result |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            at[0] = place
            value[0] = result
            return HOT
        shift += 7
    return MALFORMED


cdef int _length(const uint8_t **at, const uint8_t *end, uint64_t *value) noexcept nogil:
    """Read the length of a field that must lie before ``end`` as a whole."""
    cdef int verdict = _varint(at, end, value)
    if verdict == HOT and value[0] > <uint64_t>(end - at[0]):
        return MALFORMED
    return verdict


cdef int _tag(const uint8_t **at, const uint8_t *end, uint32_t *field, uint32_t *kind) noexcept nogil:
    cdef uint64_t tag = 0
    cdef int verdict = _varint(at, end, &tag)
    if verdict != HOT:
        return verdict
    if tag >> 32:
        return COLD
    field[0] = <uint32_t>(tag >> 3)
    kind[0] = <uint32_t>(tag & 7)
    return HOT if field[0] else MALFORMED


cdef int _skip(const uint8_t **at, const uint8_t *end, uint32_t kind) noexcept nogil:
    """Move ``at`` past the value of an unknown field."""
    cdef uint64_t value = 0
    cdef int verdict
    if kind == VARINT:
        return _varint(at, end, &value)
    if kind == BYTES:
        verdict = _length(at, end, &value)
    elif kind == FIXED64 or kind == FIXED32:
        value = 8 if kind == FIXED64 else 4
        verdict = HOT if value <= <uint64_t>(end - at[0]) else MALFORMED
    else:
        return COLD if kind == GROUP else MALFORMED
    if verdict == HOT:
        at[0] += value
    return verdict


cdef int _text(const uint8_t **at, const uint8_t *end, const uint8_t **text, size_t *size) noexcept nogil:
    """Read a string. COLD: it is not ASCII, so it may be none that a protobuf reader accepts."""
    cdef uint64_t length = 0
    cdef uint8_t seen = 0
    cdef size_t place
    cdef int verdict = _length(at, end, &length)
    if verdict != HOT:
        return verdict
    text[0], size[0] = at[0], <size_t>length
    for place in range(size[0]):
        seen |= text[0][place]
    at[0] += length
    return COLD if seen & 0x80 else HOT


cdef int _packed(const uint8_t *at, const uint8_t *end, Buffer *ids) noexcept nogil:
    """Append the varints up to ``end``, which must not cut the last one."""
    cdef uint64_t value = 0
    cdef int verdict
    # Each takes at least one byte there.
    cdef uint32_t *out = <uint32_t *>buffer_reserve(ids, <size_t>(end - at) * sizeof(uint32_t))
    if out is NULL:
        return NO_MEMORY
    while at < end:
        if at[0] < 0x80:
            out[0] = at[0]
            at += 1
        else:
            verdict = _varint(&at, end, &value)
            if verdict != HOT:
                return verdict
            out[0] = <uint32_t>value
        out += 1
    ids.size = <size_t>(<uint8_t *>out - ids.data)
    return HOT


cdef int _chunk(
    const uint8_t *at, const uint8_t *end, const ChunkLayout *layout, Chunk *chunk, Buffer *ids
) noexcept nogil:
    """Read a GenerateStreamChunk."""
    cdef uint32_t field = 0, kind = 0
    cdef uint64_t value = 0
    cdef uint32_t *out
    cdef int verdict
    while at < end:
        verdict = _tag(&at, end, &field, &kind)
        if verdict != HOT:
            return verdict
        if kind == BYTES and field == layout.ids:
            verdict = _length(&at, end, &value)
            if verdict == HOT:
                verdict = _packed(at, at + value, ids)
                at += value
        elif kind == VARINT:
            verdict = _varint(&at, end, &value)
            if verdict != HOT:
                return verdict
            if field == layout.ids:
                out = <uint32_t *>buffer_reserve(ids, sizeof(uint32_t))
                if out is NULL:
                    return NO_MEMORY
                out[0] = <uint32_t>value
                ids.size += sizeof(uint32_t)
            elif field == layout.prompt_tokens:
                chunk.prompt_tokens = <uint32_t>value
            elif field == layout.completion_tokens:
                chunk.completion_tokens = <uint32_t>value
            elif field == layout.cached_tokens:
                chunk.cached_tokens = <uint32_t>value
            elif field == layout.index:
                chunk.index = <uint32_t>value
            elif field == layout.reasoning_tokens:
                chunk.reasoning_tokens = <uint32_t>value
        elif kind == BYTES and field == layout.label:
            verdict = _text(&at, end, &chunk.label, &chunk.label_size)
        elif kind == BYTES and field < 64 and layout.cold >> field & 1:
            return COLD
        else:
            verdict = _skip(&at, end, kind)
        if verdict != HOT:
            return verdict
    return HOT


cdef int read_chunk(
    const uint8_t *data, size_t size, const ChunkLayout *layout, Chunk *chunk, Buffer *ids
) noexcept nogil:
    """Read a GenerateResponse; when it is HOT, ``chunk`` is filled and its ids (uint32) are appended to ``ids``.

    ``ids`` is as before in every other case. Returns a ``Verdict``.
    """
    cdef const uint8_t *at = data
    cdef const uint8_t *end = data + size
    cdef const uint8_t *inner = NULL
    cdef size_t before = ids.size
    cdef const uint8_t *text = NULL
    cdef size_t text_size = 0
    cdef uint64_t value = 0, inner_size = 0
    cdef uint32_t field = 0, kind = 0
    cdef int verdict
    while at < end:
        verdict = _tag(&at, end, &field, &kind)
        if verdict != HOT:
            return verdict
        if kind == BYTES and (field == layout.chunk or field == layout.complete):
            # Pieces of one chunk are to be merged, and a Complete beside it wins if it comes last.
            if field == layout.complete or inner is not NULL:
                return COLD
            verdict = _length(&at, end, &value)
            if verdict == HOT:
                inner, inner_size = at, value
                at += value
        elif kind == BYTES and field == layout.request_id:
            verdict = _text(&at, end, &text, &text_size)
        else:
            verdict = _skip(&at, end, kind)
        if verdict != HOT:
            return verdict
    if inner is NULL:
        return COLD
    memset(chunk, 0, sizeof(Chunk))
    verdict = _chunk(inner, inner + inner_size, layout, chunk, ids)
    if verdict != HOT:
        ids.size = before
    return verdict


cdef class Layout:
    """Field numbers of one contract's GenerateResponse (the first three) and of its GenerateStreamChunk; 0: not there.

    ``label`` is a text that seldom changes. A chunk with one of the fields ``cold`` is left to the contract.
    """

    def __init__(
        self,
        *,
        uint32_t chunk,
        uint32_t complete,
        uint32_t request_id=0,
        uint32_t ids,
        uint32_t prompt_tokens,
        uint32_t completion_tokens,
        uint32_t cached_tokens,
        uint32_t index,
        uint32_t reasoning_tokens=0,
        uint32_t label=0,
        cold=(),
    ):
        cold = list(cold)
        counts = [prompt_tokens, completion_tokens, cached_tokens]
        optional = [number for number in (reasoning_tokens, label) if number]
        _different([chunk, complete, *([request_id] if request_id else [])])
        _different([ids, index, *counts, *optional, *cold])
        self.fields = ChunkLayout(
            chunk,
            complete,
            request_id,
            ids,
            prompt_tokens,
            completion_tokens,
            cached_tokens,
            index,
            reasoning_tokens,
            label,
            0,
        )
        for field in cold:
            self.fields.cold |= <uint64_t>1 << <int>field

    def read(self, bytes message not None):
        """Read a GenerateResponse that is a plain chunk.

        Returns (index, ids, prompt, completion, cached and reasoning tokens, label); None for anything the generated
        contract should read: Complete, log probabilities, unusual encodings. Raises ValueError for what is no protobuf
        message.
        """
        cdef Buffer ids
        cdef Chunk found
        cdef const uint8_t *data = message
        cdef size_t size = len(message), place
        cdef int verdict
        ids.data, ids.size, ids.room = NULL, 0, 0
        with nogil:
            verdict = read_chunk(data, size, &self.fields, &found, &ids)
        try:
            if verdict == NO_MEMORY:
                raise MemoryError
            if verdict == MALFORMED:
                raise ValueError("not a protobuf message")
            if verdict == COLD:
                return None
            numbers = [(<uint32_t *>ids.data)[place] for place in range(ids.size // sizeof(uint32_t))]
            return (
                found.index,
                numbers,
                found.prompt_tokens,
                found.completion_tokens,
                found.cached_tokens,
                found.reasoning_tokens,
                found.label[: found.label_size].decode() if found.label is not NULL else "",
            )
        finally:
            buffer_clear(&ids, 0)


cdef int _different(list fields) except -1:
    """Raise ValueError unless these can be the numbers of different fields."""
    if not all(0 < field < 64 for field in fields) or len(set(fields)) < len(fields):
        raise ValueError("fields have different numbers from 1 to 63")
    return 0
