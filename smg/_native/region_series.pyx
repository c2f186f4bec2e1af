"""Metric cells in the region: a series has a cell for each process, and sums are taken by readers (spec routing 10.3 (8)).

A series is claimed by a compare-and-swap on its tag (0 free, 1 claimed) and published by a release store of its key's
hash. A process killed in between wastes one entry. Two processes that race for the same new key may each make an entry;
``read_series`` sums by key, so nobody needs to wait.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from smg._native.region_memory cimport KEY_ROW
from smg._native.region_snapshot cimport RegionSnapshot
from smg._native.words cimport (
    column_sum,
    copy_in,
    w_add,
    w_claim,
    w_load,
    w_load_acquire,
    w_store,
    w_store_release,
    word,
)

COUNTER = 1
GAUGE = 2
MAX_SERIES_KEY = 240

cdef enum:
    _COUNTER = 1
    _GAUGE = 2
    _KEY_BYTES = 240


cdef word _tag(const unsigned char *key, word size) noexcept nogil:
    """FNV-1a of the key, moved off the two reserved values."""
    cdef uint64_t value = 0xCBF29CE484222325ULL
    cdef word i
    for i in range(size):
        value = (value ^ key[i]) * 0x100000001B3ULL
    if value < 2:
        value += 2
    return <word>value


cdef class RegionSeries(RegionSnapshot):
    cdef void _clear_gauges(self, word process) noexcept nogil:
        cdef word *cells = self._cells + process * self._cell_row
        cdef word i
        for i in range(self._series):
            if w_load_acquire(self._tags + i) == 0:
                break
            if w_load(self._keys + i * KEY_ROW) == _GAUGE:
                w_store(cells + i, 0)

    cdef bint _is(self, word index, word tag, const char *key, word size) noexcept nogil:
        cdef word *row = self._keys + index * KEY_ROW
        return w_load(row + 1) == size and memcmp(row + 2, key, size) == 0

    def find_series(self, bytes key not None, word kind):
        self._open()
        cdef word size = len(key), i, seen, index = -1
        if size > _KEY_BYTES:
            raise ValueError(f"a series key of {size} bytes is longer than {_KEY_BYTES}")
        if kind != _COUNTER and kind != _GAUGE:
            raise ValueError(f"{kind} is not a kind of series")
        cdef const char *source = PyBytes_AS_STRING(key)
        cdef word tag = _tag(<const unsigned char *>source, size)
        cdef word *row
        with nogil:
            for i in range(self._series):
                seen = w_load_acquire(self._tags + i)
                if seen == 0:
                    if not w_claim(self._tags + i):
                        # Somebody was faster; it may be publishing this very key.
                        seen = w_load_acquire(self._tags + i)
                    else:
                        row = self._keys + i * KEY_ROW
                        w_store(row, kind)
                        w_store(row + 1, size)
                        copy_in(row + 2, source, size)
                        w_store_release(self._tags + i, tag)
                        index = i
                        break
                if seen == tag and self._is(i, tag, source, size):
                    index = i
                    break
        if index >= 0 and w_load(self._keys + index * KEY_ROW) != kind:
            raise ValueError(f"series {key!r} exists as another kind")
        return index

    cdef word *_cell(self, word process, word index) except? NULL:
        self._process(process)
        if index >= self._series:
            raise IndexError(f"series {index} of {self._series}")
        return NULL if index < 0 else self._cells + process * self._cell_row + index

    def cell_add(self, word process, word index, word amount):
        cdef word *cell = self._cell(process, index)
        if cell != NULL:
            w_add(cell, amount)

    def cell_set(self, word process, word index, word value):
        cdef word *cell = self._cell(process, index)
        if cell != NULL:
            w_store(cell, value)

    def series_end(self):
        self._open()
        cdef word i
        with nogil:
            for i in range(self._series):
                if w_load_acquire(self._tags + i) == 0:
                    break
            else:
                i = self._series
        return i

    def read_series(self, word start=0, word count=-1):
        self._open()
        if start < 0:
            raise IndexError(f"series {start}")
        cdef dict found = {}
        cdef word i, tag, kind, size
        cdef word end = self._series if count < 0 else min(self._series, start + count)
        cdef word *row
        for i in range(start, end):
            tag = w_load_acquire(self._tags + i)
            if tag == 0:
                break
            if tag == 1:
                continue
            row = self._keys + i * KEY_ROW
            kind = w_load(row)
            size = w_load(row + 1)
            key = PyBytes_FromStringAndSize(<char *>(row + 2), size)
            value = column_sum(self._cells + i, self._processes, self._cell_row)
            before = found.get(key)
            found[key] = (kind, value if before is None else before[1] + value)
        return [(key, kind, value) for key, (kind, value) in found.items()]
