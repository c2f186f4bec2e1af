"""Rows and templates of the StreamTable, for native sources that feed them without the GIL."""

from libc.stdint cimport int32_t

from smg._native.json_scan cimport JsonState
from smg._native.python_scan cimport PythonState
from smg._native.stop_scan cimport Dfa
from smg._native.utf8 cimport Utf8
from smg._native.vocab_table cimport Vocab


cdef struct Bytes:
    unsigned char *data
    Py_ssize_t size
    Py_ssize_t room


cdef struct Ids:
    int32_t *data
    Py_ssize_t size
    Py_ssize_t room


cdef struct Template:
    # The pieces joined, and where each ends.
    unsigned char *pieces
    Py_ssize_t *ends
    # Kind of each hole (``sse.TEXT``, ``sse.SEQUENCE``).
    unsigned char *kinds
    Py_ssize_t holes
    # Where the running numbers come from (``counter.Counter.value``); NULL when there is no hole for one.
    long long *counter


cdef struct Row:
    const Vocab *vocab
    # NULL without stop strings.
    const Dfa *stops
    int32_t stop_state
    # Number of the stop string that was found, or -1.
    int32_t stop
    # A stop string that is complete within the first so many tokens does not count.
    Py_ssize_t min_tokens
    Utf8 utf8
    # ``text`` has everything decoded: up to ``sent`` handed on, up to ``ready`` free to go, the rest held.
    Bytes text
    Py_ssize_t sent
    Py_ssize_t ready
    # What a parser of a direct row waits for (NULL: nothing): beginnings of markers, JSON that it has to judge, and the
    # end of an expression in Python's notation. The text has been looked at up to ``seen``, the expression up to
    # ``followed``.
    const Dfa *marks
    int32_t mark
    JsonState *json
    PythonState *python
    Py_ssize_t seen
    Py_ssize_t followed
    # Nothing goes on until the parser is due.
    bint kept
    # The text goes on as the inside of a JSON string, which is made in ``inside``.
    bint quoted
    Bytes inside
    # A parser reads the row: it goes direct only for as long as the parser can wait, and is tapped batch by batch.
    bint parsed
    # What the parser waits for has come, or begins with what comes next.
    bint due
    Ids taken
    # Ascending: the tokens that end the row, the special tokens shown in spite of ``skip_special``, and the markers that
    # get a seal in front of them.
    Ids ends
    Ids shown
    Ids sealed
    bint skip_special
    bint stop_visible
    bint at_start
    # An end token came: the last of ``taken``.
    bint ended
    bint over


cdef int32_t *ids_room(Ids *ids, Py_ssize_t count) except NULL nogil
cdef int ids_append(Ids *ids, int32_t token) except -1 nogil
cdef int template_fill(Template *template, tuple pieces, tuple holes, long long *counter) except -1
cdef void template_free(Template *template) noexcept
cdef int row_take(Row *row, int32_t token) except -1 nogil
cdef int row_flush(Row *row) except -1 nogil
cdef void row_wait(
    Row *row, const Dfa *marks, JsonState *json, PythonState *python, bint quoted, bint kept
) noexcept nogil
cdef Py_ssize_t row_feed(Row *row, const int32_t *ids, Py_ssize_t count) except -1 nogil
cdef int row_write_ready(Row *row, const Template *template, Bytes *out) except -1 nogil
cdef int template_write(
    const Template *template, const unsigned char *text, Py_ssize_t size, Bytes *out
) except -1 nogil
cdef Py_ssize_t row_feed_direct(
    Row *row, const Template *template, const int32_t *ids, Py_ssize_t count, Bytes *out
) except -1 nogil
