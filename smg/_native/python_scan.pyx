"""Where a bracketed expression in Python's notation ends, followed byte by byte as it arrives (spec parsers 6.5, case
TP-09).

Brackets are matched, and inside strings they do not count; nothing else is judged, so the reader of the whole expression
still has to. A row follows UTF-8 while it keeps the text back, Python a str; what a row has followed Python skips.
"""

from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stdint cimport uint16_t, uint32_t

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

ctypedef fused Unit:
    unsigned char
    uint16_t
    uint32_t


cdef inline void _close_string(PythonState *state) noexcept nogil:
    state.quote = 0
    state.quotes = 0
    state.triple = False
    state.opening = False


cdef inline bint _begins(PythonState *state, uint32_t unit) noexcept nogil:
    """Count the quotes that open a string. False: ``unit`` is none of them, and is still to be read."""
    if unit == state.quote:
        state.quotes += 1
        if state.quotes == 3:
            state.triple = True
            state.opening = False
            state.quotes = 0
        return True
    if state.quotes == 2:
        # An empty string, which is over.
        _close_string(state)
    else:
        state.opening = False
        state.quotes = 0
    return False


cdef inline void _inside(PythonState *state, uint32_t unit) noexcept nogil:
    if state.escaped:
        state.escaped = False
        state.quotes = 0
    elif unit == c"\\":
        state.escaped = True
    elif unit == state.quote:
        state.quotes += 1
        if not state.triple or state.quotes == 3:
            _close_string(state)
    else:
        state.quotes = 0


cdef inline void _outside(PythonState *state, uint32_t unit) noexcept nogil:
    if unit == c'"' or unit == c"'":
        state.quote = <unsigned char>unit
        state.opening = True
        state.quotes = 1
    elif unit == c"(" or unit == c"[" or unit == c"{":
        if state.depth == MAX_DEPTH:
            state.stuck = True
            return
        state.closers[state.depth] = c")" if unit == c"(" else c"]" if unit == c"[" else c"}"
        state.depth += 1
    elif unit == c")" or unit == c"]" or unit == c"}":
        if state.depth == 0 or state.closers[state.depth - 1] != unit:
            state.stuck = True
            return
        state.depth -= 1
        state.over = state.depth == 0


cdef Py_ssize_t _run(PythonState *state, const Unit *data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    state.stuck = False
    while at < size and not state.over:
        if state.opening and _begins(state, data[at]):
            at += 1
            continue
        if state.quote:
            _inside(state, data[at])
        else:
            _outside(state, data[at])
            if state.stuck:
                break
        at += 1
    return at


cdef Py_ssize_t python_follow(PythonState *state, const unsigned char *data, Py_ssize_t size) noexcept nogil:
    """Follow ``size`` bytes of whole UTF-8 characters, and return how many were taken; see ``over`` and ``stuck``."""
    cdef Py_ssize_t at, end = _run(state, data, 0, size)
    for at in range(end):
        state.followed += (data[at] & 0xC0) != 0x80
    return end


cdef class PythonScan:
    """Follows one expression, which begins with its opening bracket."""

    @property
    def over(self):
        """Whether the outermost bracket has closed."""
        return self.state.over

    @property
    def stuck(self):
        """Whether ``run`` has stopped at a bracket that has no place."""
        return self.state.stuck

    def run(self, str text not None, Py_ssize_t at=0):
        """Follow ``text`` from ``at`` on, where a row may have followed it already, and return where that ends.

        Raises IndexError for a place outside the text.
        """
        cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text)
        cdef int kind = PyUnicode_KIND(text)
        cdef void *data = PyUnicode_DATA(text)
        if not 0 <= at <= size:
            raise IndexError(at)
        at = min(at + self.state.followed, size)
        self.state.followed = 0
        if kind == 1:
            return _run(&self.state, <const unsigned char *>data, at, size)
        if kind == 2:
            return _run(&self.state, <const uint16_t *>data, at, size)
        return _run(&self.state, <const uint32_t *>data, at, size)

    def follow(self, str text not None):
        """Do what a row does with ``text``, and return how many of its characters were taken."""
        cdef Py_ssize_t size, before = self.state.followed
        cdef const char *data = PyUnicode_AsUTF8AndSize(text, &size)
        python_follow(&self.state, <const unsigned char *>data, size)
        return self.state.followed - before
