"""The automaton of ``stop_scan`` for native callers that scan without the GIL."""

from libc.stdint cimport int32_t


cdef struct Dfa:
    int32_t classes
    int32_t states
    # The only byte that leaves the root, or -1 when there are several (or none).
    int32_t only
    unsigned char class_of[256]
    unsigned char leaves_root[256]
    # [states * classes] offset of the target's row; its complement when the target completes a pattern.
    int32_t *target
    # [states] length of the longest tail of what was read that begins a pattern.
    int32_t *depth
    # [states] number of the longest pattern that ends here, or -1.
    int32_t *match
    # [patterns] in bytes.
    int32_t *length


cdef Py_ssize_t find(const Dfa *dfa, const unsigned char *data, Py_ssize_t size, int32_t *state) noexcept nogil
cdef Py_ssize_t longest_at(const Dfa *dfa, const unsigned char *data, Py_ssize_t size, int32_t *pattern) noexcept nogil


cdef class StopAutomaton:
    cdef Dfa dfa
    cdef readonly tuple patterns
    # States that the arrays have room for.
    cdef Py_ssize_t room
    cdef int _make_room(self, Py_ssize_t states) except -1
    cdef int _number_classes(self) noexcept
    cdef void _insert(self, bytes pattern, int32_t number) noexcept
    cdef int _link(self) except -1
