"""Adding to metric cells whose places are known: what every request does a dozen times.

A family of ``telemetry.families`` inherits from one of these and finds the places of new label values in Python.
"""

from libc.math cimport rint

from smg._native.region_series cimport RegionSeries
from smg._native.words cimport w_add, word

cdef enum:
    _MILLION = 1_000_000


cdef class _Cells:
    """Where a family's process counts: in the region, or in anything with ``cell_add``."""

    cdef readonly object cells
    cdef readonly word process
    cdef readonly dict places
    cdef RegionSeries _region

    def __init__(self, cells, word process):
        self.cells = cells
        self.process = process
        self.places = {}
        self._region = cells if isinstance(cells, RegionSeries) else None

    cdef int _add(self, word place, word amount) except -1:
        cdef word *cell
        if self._region is None:
            self.cells.cell_add(self.process, place, amount)
            return 0
        cell = self._region._cell(self.process, place)
        if cell != NULL:
            w_add(cell, amount)
        return 0


cdef class Adding(_Cells):
    """See the stub."""

    def inc(self, *labels, word amount=1):
        place = self.places.get(labels)
        if place is None:
            place = self.find(labels)
        self._add(place, amount)


cdef class Observing(_Cells):
    """See the stub."""

    cdef readonly tuple limits

    def __init__(self, cells, word process, tuple limits not None):
        super().__init__(cells, process)
        self.limits = limits

    def observe(self, double seconds, *labels):
        cdef word amount = <word>rint(seconds * _MILLION) if seconds > 0 else 0
        cdef Py_ssize_t low = 0, high = len(self.limits), middle
        cdef list found
        while low < high:
            middle = (low + high) // 2
            if <word>self.limits[middle] < amount:
                low = middle + 1
            else:
                high = middle
        found = self.places.get(labels)
        if found is None or found[low] is None:
            found = self.find(labels, low)
        self._add(found[low], 1)
        self._add(found[len(self.limits) + 1], amount)
