"""Lists of slots as stretches of neighbours: what is read of neighbours is read several words at a time."""

from libc.stdint cimport int64_t


cdef struct Stretch:
    int at  # place in the list of the first
    int slot  # its slot; the others follow
    int count


cdef inline int64_t stretches_of(const int *slots, int64_t count, Stretch *out) noexcept nogil:
    """Write the stretches of a list, at most one for each slot; returns how many."""
    cdef int64_t at, found = 0
    for at in range(count):
        if found and slots[at] == out[found - 1].slot + out[found - 1].count:
            out[found - 1].count += 1
        else:
            out[found] = Stretch(<int>at, slots[at], 1)
            found += 1
    return found
