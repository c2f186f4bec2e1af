"""The state of ``python_scan`` for native callers that look for the end of a call without the GIL."""

cdef enum:
    MAX_DEPTH = 128


cdef struct PythonState:
    # What closes each open bracket, outermost first.
    unsigned char closers[MAX_DEPTH]
    int depth
    # The kind of quote that is open, 0 outside of strings; how many of them have come in a row; whether three open and
    # close the string; whether the last character was a backslash; whether the string has not begun to say anything.
    unsigned char quote
    int quotes
    bint triple
    bint escaped
    bint opening
    # The outermost bracket has closed, or what comes next has no place.
    bint over
    bint stuck
    # Characters that ``python_follow`` has taken and Python has not run over.
    Py_ssize_t followed


cdef Py_ssize_t python_follow(PythonState *state, const unsigned char *data, Py_ssize_t size) noexcept nogil


cdef class PythonScan:
    cdef PythonState state
