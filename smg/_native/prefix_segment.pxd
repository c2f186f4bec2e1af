from libc.stdint cimport int64_t

from smg._native.atomics cimport cell
from smg._native.prefix_table cimport Table

cdef enum:
    GROUPS = 64
    COLUMNS = 4096
    # Instead of a plane: nothing is held, and it does not matter.
    NOWHERE = -1
    KEEPS = -2
    # Depths of a prompt: one of each column of each plane, and one more for who has none.
    NOBODY = 8192
    LANES = 8193
    H_EVENTS = 8  # whether any worker was ever live
    H_CHANGES = 9  # counts changes of tickets and of who is live
    H_TICK = 16


# A ticket: generation, slot, column + 1; 0 is no ticket.
cdef inline cell slot_of(cell ticket) noexcept nogil:
    return (ticket >> 16) & 0xFFFF


cdef inline cell column_of(cell ticket) noexcept nogil:
    return (ticket & 0xFFFF) - 1


cdef inline bint holds(cell ticket) noexcept nogil:
    return ticket & 0xFFFF != 0


cdef class PrefixSegment:
    cdef cell *_base
    cdef cell *_rows
    cdef cell *_map
    cdef cell *_live
    cdef Table _table
    cdef cell _size, _processes, _slots, _process
    cdef readonly int fd
    cdef readonly object boot_id

    cdef void _layout(self, cell processes, cell slots, cell bits, cell capacity)
    cdef int _map_in(self) except -1
    cdef int _open(self) except -1
    cdef int _known(self, int64_t slot) except -1
    # Moves after every change of which column a slot has and which plane it is asked in.
    cdef int64_t changes(self) noexcept nogil
    cdef void _note_change(self) noexcept nogil
    cdef void _enter(self) noexcept nogil
    cdef void _exit(self) noexcept nogil
    cdef bint _quiet(self) noexcept nogil
