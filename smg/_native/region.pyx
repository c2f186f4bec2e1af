"""The shared region: one memfd, mapped by every process of a gateway, and the prefix index that goes with it.

A class for each thing that is kept in it, one built on the other; this one is what all of it is for a process.
``region_memory.pyx`` tells what lies where, and who may write what.

Spec: routing 10.3 (1, 3, 6, 7, 8), DESIGN 2 and 5.
"""

from smg._native.prefix_index import PrefixIndex
from smg._native.region_memory cimport H_DRAINING, P_HEAD, P_PID, P_REQUESTS, P_WAITING, SEQUENCE_ROW, SEQUENCES
from smg._native.region_memory import LAYOUT_VERSION
from smg._native.region_series cimport RegionSeries
from smg._native.region_series import COUNTER, GAUGE, MAX_SERIES_KEY
from smg._native.region_workers import (
    COMPUTED,
    FAILURES,
    LAST_OK,
    PROCESSED,
    QUEUED_TOKENS,
    RUNNING,
    STATUS,
    USAGE,
    WAITING,
)
from smg._native.words cimport w_add, w_load, w_load_acquire, w_store, w_store_release, word


cdef class Region(RegionSeries):
    @staticmethod
    def create(processes, workers=4096, series=4096, snapshot_bytes=4 << 20, index_bytes=1 << 20):
        cdef Region self = Region.__new__(Region)
        self._create(processes, workers, series, snapshot_bytes)
        self.index = PrefixIndex.create(index_bytes, processes, workers)
        return self

    @staticmethod
    def attach(fd):
        cdef Region self = Region.__new__(Region)
        self._attach(fd)
        return self

    def close(self):
        self._unmap()
        if self.index is not None:
            self.index.close()

    # processes

    def claim_process(self, word process, word pid):
        w_store(self._process(process) + P_PID, pid)

    def process_pid(self, word process):
        return w_load(self._process(process) + P_PID)

    def clear_process(self, word process):
        cdef word *row = self._process(process)
        cdef word *matrix = self._matrix + process * self._matrix_row
        cdef word i
        with nogil:
            for i in range(self._workers):
                # A row is mostly zeros, and a store would allocate its page.
                if w_load(matrix + i) != 0:
                    w_store(matrix + i, 0)
            self._clear_gauges(process)
            w_store(row + P_REQUESTS, 0)
            w_store(row + P_WAITING, 0)
            w_store(row + P_HEAD, 0)
            w_store_release(row + P_PID, 0)
        self.note_change()
        if self.index is not None:
            self.index.clear_process(process)

    # draining

    def set_draining(self):
        self._open()
        w_store_release(self._base + H_DRAINING, 1)

    def draining(self):
        self._open()
        return w_load_acquire(self._base + H_DRAINING) != 0

    # sequences

    def sequence_next(self, word sequence):
        self._open()
        if not 0 <= sequence < SEQUENCES:
            raise IndexError(f"sequence {sequence} of {SEQUENCES}")
        return w_add(self._sequences + sequence * SEQUENCE_ROW, 1)
