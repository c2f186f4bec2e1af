from libc.stdint cimport int64_t

from smg._native.stretches cimport Stretch

ctypedef int64_t word


cdef struct Loads:
    # Of all together.
    int64_t requests
    int64_t tokens
    # Requests of one; ``least`` means nothing when there is none.
    int least
    int most


cdef class Region:
    cdef word *_base
    cdef word *_process_rows
    cdef word *_sequences
    cdef word *_slots
    cdef word *_statuses
    cdef word *_gates
    cdef word *_computed
    cdef word *_matrix
    cdef word *_buffers
    cdef word *_tags
    cdef word *_keys
    cdef word *_cells
    cdef word _size, _processes, _workers, _series, _snapshot_bytes
    cdef word _matrix_row, _cell_row, _buffer_words
    cdef readonly int fd
    cdef readonly object boot_id
    cdef readonly object index

    cdef void _layout(self, word processes, word workers, word series, word snapshot_bytes)
    cdef int _map(self) except -1
    cdef int _open(self) except -1
    cdef word *_process(self, word process) except NULL
    cdef word *_slot(self, word slot) except NULL
    cdef word *_field(self, word slot, word field) except NULL
    cdef bint _is(self, word index, word tag, const char *key, word size) noexcept nogil
    cdef word *_cell(self, word process, word index) except? NULL
    cdef word _row_sum(self, word field) except? -1
    # The breaker's word of a slot, and four more that it keeps its record in.
    cdef word *_gate(self, word slot) except NULL
    cdef word *_record(self, word slot) except NULL
    # Counts what may make other workers ready than before, a gate's opening included; whoever changes a gate tells.
    cdef int64_t changes(self) noexcept nogil
    cdef void note_change(self) noexcept nogil
    # The ready slots that are not skipped and whose gate admits: their numbers in the list, and they themselves; both
    # have room for ``count``. Returns how many. Slots are in range. ``moved``: those that ``numbers`` had before are not
    # the same, apart from how many they are; ``steady``: they stay the same until ``changes`` moves.
    cdef int64_t muster(
        self, const int *slots, int64_t count, const char *skip, int *numbers, int *places, bint *moved, bint *steady
    ) noexcept nogil
    cdef int64_t _routing(self, const word **rows) noexcept nogil
    # Requests and tokens in flight of each slot, over all processes.
    cdef Loads loads(self, const Stretch *stretches, int64_t count, int *requests, int64_t *tokens) noexcept nogil
    # Tokens each slot has computed lately; returns their sum.
    cdef int64_t computed(self, const Stretch *stretches, int64_t count, int64_t *tokens) noexcept nogil
    # A field of a slot that is no column of its own; both are in range.
    cdef word field_at(self, word slot, word field) noexcept nogil
