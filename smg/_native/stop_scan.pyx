"""Aho-Corasick over bytes: stop strings in a stream of chunks, special tokens in a prompt.

All failure links are resolved when the automaton is built, so scanning is one table look-up per byte, and one
``memchr`` or byte-set search while nothing is partly matched. Bytes that no pattern uses share one column of the table.

The rule of spec text-pipeline 5 falls out of the automaton. It sees a match where it ends, so the earliest end wins; a
state knows the longest pattern that ends in it, so ties go to the longest. What has to be held back is the depth of the
state: the longest tail that still begins a pattern. All three depend on the bytes read and not on how they were cut.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memset

# A row of the table costs 4 bytes per column; real stop lists stay far below this.
cdef enum:
    MAX_TABLE_BYTES = 8 * 1024 * 1024
    # Bytes from which on others may run meanwhile. For less, having to wait for the GIL afterwards can cost far more.
    LONG = 64 << 10


cdef inline Py_ssize_t _skip(const Dfa *dfa, const unsigned char *data, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    """Return the offset of the next byte that leaves the root, from ``at`` on (``size``: none)."""
    cdef const unsigned char *hit
    if dfa.only >= 0:
        hit = <const unsigned char *>memchr(data + at, dfa.only, size - at)
        return hit - data if hit != NULL else size
    while at < size and not dfa.leaves_root[data[at]]:
        at += 1
    return at


cdef Py_ssize_t find(const Dfa *dfa, const unsigned char *data, Py_ssize_t size, int32_t *state) noexcept nogil:
    """Read ``data`` from ``state`` on; return the end offset of the first match or -1, and the new state."""
    cdef int32_t row = state[0] * dfa.classes, target
    cdef Py_ssize_t at = 0
    while at < size:
        if row == 0:
            at = _skip(dfa, data, at, size)
            if at == size:
                break
        target = dfa.target[row + dfa.class_of[data[at]]]
        at += 1
        if target < 0:
            state[0] = ~target // dfa.classes
            return at
        row = target
    state[0] = row // dfa.classes
    return -1


cdef Py_ssize_t longest_at(const Dfa *dfa, const unsigned char *data, Py_ssize_t size, int32_t *pattern) noexcept nogil:
    """Return the length of the longest pattern that begins at ``data`` (0: none) and its number."""
    cdef int32_t row = 0, target, state, number
    cdef Py_ssize_t at = 0, longest = 0
    while at < size:
        target = dfa.target[row + dfa.class_of[data[at]]]
        row = ~target if target < 0 else target
        state = row // dfa.classes
        at += 1
        # A smaller depth means that a failure link was taken: no pattern goes on like this.
        if dfa.depth[state] != at:
            break
        number = dfa.match[state]
        if number >= 0 and dfa.length[number] == at:
            longest = at
            pattern[0] = number
    return longest


cdef Py_ssize_t _next_match(
    const Dfa *dfa, const unsigned char *data, Py_ssize_t at, Py_ssize_t size, Py_ssize_t *length, int32_t *pattern
) noexcept nogil:
    """Return the end of the next match from ``at`` on, ``length`` and number of what matches; else ``size`` and 0."""
    length[0] = 0
    while length[0] == 0:
        at = _skip(dfa, data, at, size)
        if at == size:
            break
        length[0] = longest_at(dfa, data + at, size - at, pattern)
        at += length[0] if length[0] else 1
    return at


cdef class StopAutomaton:
    """Finds any of ``patterns`` (non-empty ``bytes``); a state is a small int that starts at 0.

    Raises ValueError for an empty pattern, and when the table would grow beyond 8 MiB.
    """

    def __cinit__(self, patterns):
        cdef bytes pattern
        self.patterns = tuple(patterns)
        for pattern in self.patterns:
            if pattern is None:
                raise TypeError("a pattern must be bytes, not None")
            if not pattern:
                raise ValueError("a stop string must not be empty")
        self.dfa.classes = self._number_classes()
        self.dfa.length = <int32_t *>malloc((len(self.patterns) + 1) * sizeof(int32_t))
        if self.dfa.length == NULL:
            raise MemoryError
        self._make_room(1)
        self.dfa.states = 1
        for number, pattern in enumerate(self.patterns):
            self._make_room(self.dfa.states + PyBytes_GET_SIZE(pattern))
            self._insert(pattern, number)
        self._link()

    def __dealloc__(self):
        free(self.dfa.target)
        free(self.dfa.depth)
        free(self.dfa.match)
        free(self.dfa.length)

    cdef int _make_room(self, Py_ssize_t states) except -1:
        """Make room for ``states`` states, which patterns that begin alike do not all use."""
        cdef Py_ssize_t row = self.dfa.classes * sizeof(int32_t), old = self.room
        cdef void *target
        cdef void *depth
        cdef void *match
        if states <= old:
            return 0
        if states * row > MAX_TABLE_BYTES:
            raise ValueError(f"{len(self.patterns)} stop strings are too many or too long to scan for")
        states = min(max(states, 2 * old), MAX_TABLE_BYTES // row)
        target = realloc(self.dfa.target, states * row)
        self.dfa.target = <int32_t *>target if target else self.dfa.target
        depth = realloc(self.dfa.depth, states * sizeof(int32_t))
        self.dfa.depth = <int32_t *>depth if depth else self.dfa.depth
        match = realloc(self.dfa.match, states * sizeof(int32_t))
        self.dfa.match = <int32_t *>match if match else self.dfa.match
        if not (target and depth and match):
            raise MemoryError
        memset(self.dfa.target + old * self.dfa.classes, 0, (states - old) * row)
        memset(self.dfa.depth + old, 0, (states - old) * sizeof(int32_t))
        memset(self.dfa.match + old, 0xFF, (states - old) * sizeof(int32_t))
        self.room = states
        return 0

    cdef int _number_classes(self) noexcept:
        """Give every byte of a pattern a column and let all others share the last; return their number."""
        cdef int byte, classes = 0, starts = 0
        cdef bytes pattern
        cdef const unsigned char *data
        cdef Py_ssize_t at
        cdef unsigned char used[256]
        memset(used, 0, 256)
        self.dfa.only = -1
        for pattern in self.patterns:
            data = <const unsigned char *>PyBytes_AS_STRING(pattern)
            for at in range(PyBytes_GET_SIZE(pattern)):
                used[data[at]] = 1
            if not self.dfa.leaves_root[data[0]]:
                self.dfa.leaves_root[data[0]] = 1
                self.dfa.only = data[0]
                starts += 1
        if starts > 1:
            self.dfa.only = -1
        for byte in range(256):
            if used[byte]:
                self.dfa.class_of[byte] = <unsigned char>classes
                classes += 1
        if classes == 256:
            return classes
        for byte in range(256):
            if not used[byte]:
                self.dfa.class_of[byte] = <unsigned char>classes
        return classes + 1

    cdef void _insert(self, bytes pattern, int32_t number) noexcept:
        """Add one pattern to the trie. While the trie grows, ``target`` holds state numbers and 0 means none."""
        cdef const unsigned char *data = <const unsigned char *>PyBytes_AS_STRING(pattern)
        cdef int32_t state = 0
        cdef int32_t *target
        cdef Py_ssize_t at, size = PyBytes_GET_SIZE(pattern)
        for at in range(size):
            target = &self.dfa.target[state * self.dfa.classes + self.dfa.class_of[data[at]]]
            if target[0] == 0:
                target[0] = self.dfa.states
                self.dfa.depth[self.dfa.states] = <int32_t>(at + 1)
                self.dfa.states += 1
            state = target[0]
        if self.dfa.match[state] < 0:
            self.dfa.match[state] = number
        self.dfa.length[number] = <int32_t>size

    cdef int _link(self) except -1:
        """Breadth first: resolve failure links into the table, inherit matches, then turn states into row offsets."""
        cdef Dfa *dfa = &self.dfa
        cdef int32_t state, child, fallback, column
        cdef Py_ssize_t at, read = 0, written = 1
        cdef int32_t *fail = <int32_t *>calloc(dfa.states, sizeof(int32_t))
        cdef int32_t *queue = <int32_t *>calloc(dfa.states, sizeof(int32_t))
        cdef int32_t *shrunk
        if not (fail and queue):
            free(fail)
            free(queue)
            raise MemoryError
        while read < written:
            state = queue[read]
            read += 1
            for column in range(dfa.classes):
                child = dfa.target[state * dfa.classes + column]
                fallback = dfa.target[fail[state] * dfa.classes + column] if state else 0
                if child == 0:
                    dfa.target[state * dfa.classes + column] = fallback
                    continue
                fail[child] = fallback
                if dfa.match[child] < 0:
                    dfa.match[child] = dfa.match[fallback]
                queue[written] = child
                written += 1
        free(fail)
        free(queue)
        for at in range(<Py_ssize_t>dfa.states * dfa.classes):
            state = dfa.target[at]
            dfa.target[at] = ~(state * dfa.classes) if dfa.match[state] >= 0 else state * dfa.classes
        shrunk = <int32_t *>realloc(dfa.target, <size_t>dfa.states * dfa.classes * sizeof(int32_t))
        if shrunk != NULL:
            dfa.target = shrunk
            self.room = dfa.states
        return 0

    @property
    def nbytes(self):
        """Bytes of the table."""
        return self.dfa.states * self.dfa.classes * sizeof(int32_t)

    def depth(self, int32_t state):
        """Return how many of the last bytes read begin a pattern, that is, must be held back in ``state``.

        Raises ValueError for a state that does not exist.
        """
        if not 0 <= state < self.dfa.states:
            raise ValueError(f"no state {state}")
        return self.dfa.depth[state]

    def scan(self, const unsigned char[::1] data not None, int32_t state=0):
        """Read ``data`` from ``state`` on and return ``(state, end, pattern)``.

        At the first match reading ends: ``end`` is the offset in ``data`` behind it and ``pattern`` its number. Without
        one both are -1. Raises ValueError for a state that does not exist.
        """
        cdef Py_ssize_t end = -1
        if not 0 <= state < self.dfa.states:
            raise ValueError(f"no state {state}")
        if data.shape[0] >= LONG:
            with nogil:
                end = find(&self.dfa, &data[0], data.shape[0], &state)
        elif data.shape[0]:
            end = find(&self.dfa, &data[0], data.shape[0], &state)
        return state, end, self.dfa.match[state] if end >= 0 else -1

    def leftmost(self, const unsigned char[::1] data not None):
        """Return ``(end, pattern)`` of each match in ``data``, left to right: the longest where it begins, no overlaps.

        This is how tokenizers cut their added tokens out of a text.
        """
        cdef list found = []
        cdef Py_ssize_t at = 0, size = data.shape[0], length = 0
        cdef int32_t pattern = -1
        while at < size:
            if size - at >= LONG:
                with nogil:
                    at = _next_match(&self.dfa, &data[0], at, size, &length, &pattern)
            else:
                at = _next_match(&self.dfa, &data[0], at, size, &length, &pattern)
            if length:
                found.append((at, pattern))
        return found
