"""Rows of the StreamTable as C structs, and the loops that feed them: no Python object is touched.

A row keeps its text once: what may leave is a prefix of it, what is held back is the rest. Tokens cost a look-up, a
UTF-8 pass and a stop scan. There is nothing here for Python; native callers cimport ``stream_row.pxd``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from smg._native.json_scan cimport JsonState, json_follow
from smg._native.python_scan cimport PythonState, python_follow
from smg._native.sse cimport DIGITS, SEQUENCE, TEXT, escaped_size, hole_kind, write_decimal, write_escaped
from smg._native.stop_scan cimport Dfa, find
from smg._native.utf8 cimport utf8_flush, utf8_push, utf8_replacement
from smg._native.vocab_table cimport is_special, token_bytes


# UTF-8 of ``core.stream.SEAL``.
cdef const unsigned char *SEAL = b"\xef\xb7\x90"

cdef enum:
    # A parser gets to see what is kept for it at least this often (bytes), so that it can give up.
    MAX_KEPT = 64 << 10


cdef int _out_of_memory() except -1 with gil:
    raise MemoryError


cdef unsigned char *_more(Bytes *buffer, Py_ssize_t size) except NULL nogil:
    """Make room for ``size`` more bytes and return where they go."""
    cdef Py_ssize_t room = buffer.room
    cdef void *data
    if buffer.data == NULL or buffer.size + size > room:
        room = max(buffer.size + size, 2 * room, 64)
        data = realloc(buffer.data, room)
        if data == NULL:
            _out_of_memory()
        buffer.data = <unsigned char *>data
        buffer.room = room
    return buffer.data + buffer.size


cdef int32_t *ids_room(Ids *ids, Py_ssize_t count) except NULL nogil:
    """Make room for ``count`` more ids and return where they go."""
    cdef Py_ssize_t room = ids.room
    cdef void *data
    if ids.data == NULL or ids.size + count > room:
        room = max(ids.size + count, 2 * room, 16)
        data = realloc(ids.data, room * sizeof(int32_t))
        if data == NULL:
            _out_of_memory()
        ids.data = <int32_t *>data
        ids.room = room
    return ids.data + ids.size


cdef int ids_append(Ids *ids, int32_t token) except -1 nogil:
    ids_room(ids, 1)[0] = token
    ids.size += 1
    return 0


cdef bint _contains(const Ids *ids, int32_t token) noexcept nogil:
    cdef Py_ssize_t low = 0, high = ids.size, middle
    while low < high:
        middle = (low + high) // 2
        if ids.data[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low < ids.size and ids.data[low] == token


cdef Py_ssize_t _before(const Row *row, Py_ssize_t end, Py_ssize_t count) noexcept nogil:
    """Return where the last ``count`` bytes of text before ``end`` begin; a seal is no text and stays with its marker."""
    cdef const unsigned char *text = row.text.data
    if row.sealed.size == 0 or count == 0:
        return end - count
    while True:
        if end >= 3 and memcmp(text + end - 3, SEAL, 3) == 0:
            end -= 3
        elif count == 0:
            return end
        else:
            end -= 1
            count -= 1


cdef void _scan(Row *row, Py_ssize_t start) noexcept nogil:
    """Look for stops in the text from ``start`` on and move ``ready``. After a match no text is kept any more."""
    cdef Py_ssize_t end
    if row.stops == NULL:
        row.ready = row.text.size
        return
    if row.stop >= 0:
        row.text.size = row.ready
        return
    end = find(row.stops, row.text.data + start, row.text.size - start, &row.stop_state)
    while end >= 0 and row.taken.size <= row.min_tokens:
        start += end
        end = find(row.stops, row.text.data + start, row.text.size - start, &row.stop_state)
    if end < 0:
        row.ready = _before(row, row.text.size, row.stops.depth[row.stop_state])
        return
    row.stop = row.stops.match[row.stop_state]
    row.ready = start + end
    if not row.stop_visible:
        row.ready = _before(row, row.ready, row.stops.length[row.stop])
    row.text.size = row.ready
    row.over = True


cdef int _decode(Row *row, int32_t token) except -1 nogil:
    cdef Py_ssize_t size, start = row.text.size
    cdef const unsigned char *data = token_bytes(row.vocab, token, row.at_start, &size)
    cdef unsigned char *out = _more(&row.text, 3 * size + 3)
    row.at_start = False
    row.text.size = utf8_push(&row.utf8, data, size, out) - row.text.data
    if row.sealed.size:
        _unseal(row.text.data + start, row.text.size - start)
    if row.text.size > start:
        _scan(row, start)
    return 0


cdef void _unseal(unsigned char *text, Py_ssize_t size) noexcept nogil:
    """Put U+FFFD where decoded text spells a seal."""
    cdef Py_ssize_t at
    for at in range(size - 2):
        if text[at] == SEAL[0] and memcmp(text + at, SEAL, 3) == 0:
            utf8_replacement(text + at)


cdef int _end_bytes(Row *row) except -1 nogil:
    """Replace the beginning of a character that will get no end."""
    cdef Py_ssize_t start = row.text.size
    cdef unsigned char *out = _more(&row.text, 3)
    row.text.size = utf8_flush(&row.utf8, out) - row.text.data
    if row.text.size > start:
        _scan(row, start)
    return 0


cdef int _show(Row *row, int32_t token) except -1 nogil:
    """Decode ``token``, with the seal in front that its text may have."""
    if row.sealed.size and _contains(&row.sealed, token):
        _end_bytes(row)
        if row.stop < 0:
            memcpy(_more(&row.text, 3), SEAL, 3)
            row.text.size += 3
    return _decode(row, token)


cdef int row_flush(Row *row) except -1 nogil:
    """No token follows: replace what was not decoded and release what was held. Ends the row."""
    _end_bytes(row)
    row.ready = row.text.size
    row.over = True
    return 0


cdef int row_take(Row *row, int32_t token) except -1 nogil:
    """Take one token. ``text[sent:ready]`` may leave afterwards; ``over`` tells that the row takes no more."""
    ids_append(&row.taken, token)
    if _contains(&row.ends, token):
        row.ended = True
        if row.stop_visible:
            _show(row, token)
        row_flush(row)
    elif not (row.skip_special and is_special(row.vocab, token) and not _contains(&row.shown, token)):
        _show(row, token)
    return 0


cdef Py_ssize_t row_feed(Row *row, const int32_t *ids, Py_ssize_t count) except -1 nogil:
    """Take tokens up to the end of the row, if it comes, and return how many."""
    cdef Py_ssize_t at = 0
    while at < count and not row.over:
        row_take(row, ids[at])
        at += 1
    return at


cdef int template_write(
    const Template *template, const unsigned char *text, Py_ssize_t size, Bytes *out
) except -1 nogil:
    """Write one event behind those in ``out``, with the next number of the template's counter."""
    cdef Py_ssize_t hole, start = 0, escaped = escaped_size(text, size)
    cdef char digits[DIGITS]
    cdef int digit_count = 0 if template.counter == NULL else write_decimal(template.counter[0], digits)
    cdef Py_ssize_t room = template.ends[template.holes] + template.holes * max(escaped, digit_count)
    cdef char *at = <char *>_more(out, room)
    for hole in range(template.holes + 1):
        memcpy(at, template.pieces + start, template.ends[hole] - start)
        at += template.ends[hole] - start
        start = template.ends[hole]
        if hole == template.holes:
            break
        if template.kinds[hole] == TEXT:
            at = write_escaped(text, size, escaped, at)
        else:
            memcpy(at, digits + DIGITS - digit_count, digit_count)
            at += digit_count
    out.size = <unsigned char *>at - out.data
    if template.counter != NULL:
        template.counter[0] += 1
    return 0


cdef void row_wait(
    Row *row, const Dfa *marks, JsonState *json, PythonState *python, bint quoted, bint kept
) noexcept nogil:
    """From here on let a parser wait for what ``marks`` finds (NULL: nothing), what ``json`` does not take, or what ends
    ``python``. With ``kept`` all text before that waits too."""
    row.marks, row.mark, row.json, row.python = marks, 0, json, python
    row.seen, row.followed, row.quoted, row.kept = row.sent, row.sent, quoted, kept
    row.parsed = True
    row.due = False


cdef Py_ssize_t _unparsed(Row *row) noexcept nogil:
    """Return where the text ends that no parser has to see. Once one is due, no more text is looked at."""
    cdef Py_ssize_t end, free = row.ready
    if row.due:
        return row.sent
    if row.marks != NULL:
        end = find(row.marks, row.text.data + row.seen, row.ready - row.seen, &row.mark)
        row.due = end >= 0
        row.seen = row.seen + end if row.due else row.ready
        free = row.seen - row.marks.depth[row.mark]
    if row.json != NULL:
        free = row.sent + json_follow(row.json, row.text.data + row.sent, free - row.sent)
        row.due = row.due or row.json.stuck
    if row.python != NULL:
        row.followed += python_follow(row.python, row.text.data + row.followed, free - row.followed)
        row.due = row.due or row.python.over or row.python.stuck
    if row.kept:
        row.due = row.due or row.ready - row.sent >= MAX_KEPT
        return row.sent
    return free


cdef int row_write_ready(Row *row, const Template *template, Bytes *out) except -1 nogil:
    """Write the text that may leave, if any, as one event."""
    cdef Py_ssize_t end = _unparsed(row) if row.parsed else row.ready
    cdef Py_ssize_t size = end - row.sent, inside
    cdef const unsigned char *text
    if size <= 0:
        return 0
    text = row.text.data + row.sent
    if row.parsed and row.quoted:
        inside = escaped_size(text, size)
        row.inside.size = 0
        write_escaped(text, size, inside, <char *>_more(&row.inside, inside))
        text, size = row.inside.data, inside
    template_write(template, text, size, out)
    row.sent = end
    return 0


cdef Py_ssize_t row_feed_direct(
    Row *row, const Template *template, const int32_t *ids, Py_ssize_t count, Bytes *out
) except -1 nogil:
    """Do what ``row_feed`` does, and write one event for each token that yields text."""
    cdef Py_ssize_t at = 0
    while at < count and not row.over:
        row_take(row, ids[at])
        row_write_ready(row, template, out)
        at += 1
    return at


cdef int template_fill(Template *template, tuple pieces, tuple holes, long long *counter) except -1:
    """Read an (empty) template, whose numbers are those of ``counter``, if it has any. ``template_free`` is due also after
    an error. Raises ValueError if pieces and holes do not fit."""
    cdef Py_ssize_t index, total = 0, count = len(holes)
    cdef bytes piece
    cdef unsigned char kind
    if len(pieces) != count + 1:
        raise ValueError(f"{len(pieces)} pieces do not fit {count} holes")
    kinds = bytes([hole_kind(hole) for hole in holes])
    joined = b"".join(pieces)
    template.pieces = <unsigned char *>malloc(len(joined) + 1)
    template.kinds = <unsigned char *>malloc(count + 1)
    template.ends = <Py_ssize_t *>malloc((count + 1) * sizeof(Py_ssize_t))
    if not (template.pieces and template.kinds and template.ends):
        raise MemoryError
    memcpy(template.pieces, PyBytes_AS_STRING(joined), len(joined))
    for index in range(count + 1):
        piece = pieces[index]
        total += PyBytes_GET_SIZE(piece)
        template.ends[index] = total
    for index in range(count):
        kind = kinds[index]
        template.kinds[index] = kind
        if kind == SEQUENCE:
            template.counter = counter
    template.holes = count
    return 0


cdef void template_free(Template *template) noexcept:
    free(template.pieces)
    free(template.kinds)
    free(template.ends)
