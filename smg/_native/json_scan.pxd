"""The state of ``json_scan`` for native callers that follow JSON without the GIL."""

cdef enum:
    MAX_DEPTH = 128


cdef struct JsonState:
    # The open brackets, outermost first: 1 for an object, 0 for an array.
    unsigned char objects[MAX_DEPTH]
    int depth
    # What may come next (see ``json_scan.pyx``).
    unsigned char due
    bint in_string
    # What comes next is for Python to judge.
    bint stuck
    # Bytes that ``json_follow`` may still take, and characters it has taken that Python was not told of.
    Py_ssize_t room
    Py_ssize_t followed


cdef Py_ssize_t json_follow(JsonState *state, const unsigned char *data, Py_ssize_t size) noexcept nogil


cdef class JsonScan:
    cdef JsonState state
