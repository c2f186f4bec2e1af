"""JSON followed byte by byte as it arrives: how far it is valid as it stands (spec parsers 3).

The scanner takes whole units (a bracket, an escape, a number that has ended) as long as they are what JSON allows in
that place. It stops in front of everything else and leaves the judgement to Python: slips that models make, what may
be a slip once more has come, and the bracket that ends the value. What it has taken needs no second look, so a row can
pass arguments on without Python, and the reader in Python skips over long runs.

One state serves both. A row advances it over UTF-8, Python over a str; where one stops the other goes on.
"""

from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stdint cimport uint16_t, uint32_t

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

ctypedef fused Unit:
    unsigned char
    uint16_t
    uint32_t

# What may come next: a value; the first key or value of a bracket, or its closer; another one after a comma; a colon;
# a comma or the closer.
cdef enum:
    VALUE
    FIRST
    AGAIN
    COLON
    COMMA

# A unit that is longer is none that the scanner waits for: waiting costs another look at all of it.
cdef enum:
    MAX_UNIT = 256


cdef inline bint _blank(uint32_t unit) noexcept nogil:
    return unit == c" " or unit == c"\n" or unit == c"\t" or unit == c"\r"


cdef inline bint _digit(uint32_t unit) noexcept nogil:
    return c"0" <= unit <= c"9"


cdef inline bint _hex(uint32_t unit) noexcept nogil:
    return _digit(unit) or c"a" <= (unit | 0x20) <= c"f"


cdef inline bint _wants_key(const JsonState *state) noexcept nogil:
    return (state.due == FIRST or state.due == AGAIN) and state.depth > 0 and state.objects[state.depth - 1]


cdef inline bint _wants_value(const JsonState *state) noexcept nogil:
    return state.due <= AGAIN and not _wants_key(state)


cdef Py_ssize_t _string(JsonState *state, const Unit *data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """Go on inside a string, up to behind its quote or to where the scanner stops."""
    cdef Py_ssize_t place
    while at < size:
        if data[at] == c'"':
            if state.depth == 0:
                state.stuck = True
                return at
            state.in_string = False
            return at + 1
        if data[at] < 0x20:
            state.stuck = True
            return at
        if data[at] != c"\\":
            at += 1
            continue
        if at + 1 == size:
            return at
        if data[at + 1] in (c'"', c"\\", c"/", c"b", c"f", c"n", c"r", c"t"):
            at += 2
            continue
        if data[at + 1] != c"u":
            state.stuck = True
            return at
        for place in range(at + 2, at + 6):
            if place == size:
                return at
            # D8 to DF: half a surrogate pair, whose other half has to be looked for.
            if not _hex(data[place]) or (
                place == at + 3 and (data[at + 2] | 0x20) == c"d" and data[place] >= c"8"
            ):
                state.stuck = True
                return at
        at += 6
    return at


cdef bint _is_number(const Unit *data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 1 if data[0] == c"-" else 0
    cdef Py_ssize_t start = at
    while at < size and _digit(data[at]):
        at += 1
    if at == start or (data[start] == c"0" and at > start + 1):
        return False
    if at < size and data[at] == c".":
        at += 1
        start = at
        while at < size and _digit(data[at]):
            at += 1
        if at == start:
            return False
    if at < size and (data[at] | 0x20) == c"e":
        at += 1
        if at < size and (data[at] == c"+" or data[at] == c"-"):
            at += 1
        start = at
        while at < size and _digit(data[at]):
            at += 1
        if at == start:
            return False
    return at == size


cdef bint _is_word(const Unit *data, Py_ssize_t size) noexcept nogil:
    cdef const char *word = b"true" if data[0] == c"t" else b"false" if data[0] == c"f" else b"null"
    cdef Py_ssize_t at = 0
    while at < size and word[at] and data[at] == <Unit>word[at]:
        at += 1
    return at == size and not word[at]


cdef Py_ssize_t _scalar(JsonState *state, const Unit *data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """A number or a word, which only what follows it can end."""
    cdef Py_ssize_t start = at
    cdef bint well
    while at < size and (_digit(data[at]) or c"a" <= (data[at] | 0x20) <= c"z" or data[at] in (c"+", c"-", c".")):
        at += 1
    if at == size:
        return start
    well = _blank(data[at]) or data[at] == c"," or data[at] == c"]" or data[at] == c"}"
    if well and (_is_number(data + start, at - start) or _is_word(data + start, at - start)):
        state.due = COMMA
        return at
    state.stuck = True
    return start


cdef inline bint _begins_value(uint32_t unit) noexcept nogil:
    return unit in (c'"', c"{", c"[", c"-", c"t", c"f", c"n") or _digit(unit)


cdef Py_ssize_t _comma(JsonState *state, const Unit *data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """A comma and the white space behind it, once it is clear that what it promises follows."""
    cdef Py_ssize_t place = at + 1
    while place < size and _blank(data[place]):
        place += 1
    if place == size:
        return at
    if data[place] == c'"' if state.objects[state.depth - 1] else _begins_value(data[place]):
        state.due = AGAIN
        return place
    state.stuck = True
    return at


cdef Py_ssize_t _unit(JsonState *state, const Unit *data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """Take one unit outside of strings; ``at`` again when the scanner stops here."""
    cdef uint32_t unit = data[at]
    if unit == c'"':
        if state.depth and (_wants_key(state) or _wants_value(state)):
            state.due = COLON if _wants_key(state) else COMMA
            state.in_string = True
            return at + 1
    elif unit == c"{" or unit == c"[":
        if _wants_value(state) and state.depth < MAX_DEPTH:
            state.objects[state.depth] = unit == c"{"
            state.depth += 1
            state.due = FIRST
            return at + 1
    elif unit == c"}" or unit == c"]":
        # The last one ends the value, and one behind a comma must not leave with it.
        if state.depth > 1 and state.due in (FIRST, COMMA) and state.objects[state.depth - 1] == (unit == c"}"):
            state.depth -= 1
            state.due = COMMA
            return at + 1
    elif unit == c":":
        if state.due == COLON:
            state.due = VALUE
            return at + 1
    elif unit == c",":
        if state.due == COMMA and state.depth:
            return _comma(state, data, at, size)
    elif _begins_value(unit) and state.depth and _wants_value(state):
        return _scalar(state, data, at, size)
    state.stuck = True
    return at


cdef Py_ssize_t _run(JsonState *state, const Unit *data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t before
    state.stuck = False
    while at < size:
        if state.in_string:
            at = _string(state, data, at, size)
            if state.in_string:
                break
            continue
        if _blank(data[at]):
            at += 1
            continue
        before = at
        at = _unit(state, data, at, size)
        if at == before:
            break
    if size - at > MAX_UNIT:
        state.stuck = True
    return at


cdef Py_ssize_t json_follow(JsonState *state, const unsigned char *data, Py_ssize_t size) noexcept nogil:
    """Take what can be taken of ``size`` bytes of whole UTF-8 characters and return how many; see ``stuck`` then."""
    cdef Py_ssize_t at, end
    if size > state.room:
        state.stuck = True
        return 0
    end = _run(state, data, 0, size)
    state.room -= end
    for at in range(end):
        state.followed += (data[at] & 0xC0) != 0x80
    return end


cdef class JsonScan:
    """Follows one JSON value, whose text the caller passes on."""

    @property
    def over(self):
        """Whether the value has ended."""
        return self.state.depth == 0 and self.state.due == COMMA and not self.state.in_string

    @property
    def depth(self):
        """How many brackets are open."""
        return self.state.depth

    @property
    def in_string(self):
        """Whether the text is inside a string."""
        return self.state.in_string

    @property
    def stuck(self):
        """Whether ``run`` has stopped at what is not for it to judge; False where it waits for more."""
        return self.state.stuck

    def run(self, str text not None, Py_ssize_t at=0):
        """Take what can be taken of ``text`` from ``at`` on, and return where that ends.

        Raises IndexError for a place outside the text.
        """
        cdef Py_ssize_t size = PyUnicode_GET_LENGTH(text)
        cdef int kind = PyUnicode_KIND(text)
        cdef void *data = PyUnicode_DATA(text)
        if not 0 <= at <= size:
            raise IndexError(at)
        if kind == 1:
            return _run(&self.state, <const unsigned char *>data, at, size)
        if kind == 2:
            return _run(&self.state, <const uint16_t *>data, at, size)
        return _run(&self.state, <const uint32_t *>data, at, size)

    def follow(self, str text not None):
        """Take what a row would take of ``text``, within what was lent, and return where that ends."""
        cdef Py_ssize_t size, before = self.state.followed
        cdef const char *data = PyUnicode_AsUTF8AndSize(text, &size)
        json_follow(&self.state, <const unsigned char *>data, size)
        return self.state.followed - before

    def take(self, str char not None):
        """Take a bracket, a colon or a comma that ``run`` has left; False where it has no place."""
        cdef JsonState *state = &self.state
        cdef uint32_t unit = ord(char)
        if unit == c"{" or unit == c"[":
            if not _wants_value(state) or state.depth == MAX_DEPTH:
                return False
            state.objects[state.depth] = unit == c"{"
            state.depth += 1
            state.due = FIRST
        elif unit == c"}" or unit == c"]":
            if not state.depth or state.due not in (FIRST, AGAIN, COMMA):
                return False
            if state.objects[state.depth - 1] != (unit == c"}"):
                return False
            state.depth -= 1
            state.due = COMMA
        elif unit == c":" and state.due == COLON:
            state.due = VALUE
        elif unit == c"," and state.due == COMMA:
            state.due = AGAIN
        else:
            return False
        return True

    def scalar(self, bint quoted):
        """Take a scalar; a quoted one is open from now on. False where it has no place."""
        cdef bint key = _wants_key(&self.state)
        if self.state.due > AGAIN or (key and not quoted):
            return False
        self.state.due = COLON if key else COMMA
        self.state.in_string = quoted
        return True

    def close_string(self):
        """Take the quote that ends a string outside of any bracket."""
        self.state.in_string = False

    def lend(self, Py_ssize_t room):
        """Allow a row to take up to ``room`` bytes."""
        self.state.room = room

    def followed(self):
        """Return how many characters rows have taken since the last call."""
        cdef Py_ssize_t count = self.state.followed
        self.state.followed = 0
        return count
