"""The memory of the region: one memfd, what lies where in it, and how it is made, found and mapped.

Everything is an aligned 64-bit word that is only touched through C11-style atomics; nothing waits for another process.

    header | process rows | sequences | worker table | statuses | gates | computed | in-flight matrix | tenants |
    snapshot × 2 | series tags | series keys | cells

* A process row, a matrix row and a row of cells have one writer: the process of that number. Sums are taken by readers,
  so a killed process is undone by zeroing its rows. Counters are the exception: they stay in the row, the replacement
  counts on from there, and a scrape can never see a sum go down.
* ``inflight.pxd`` has the words of the matrix, ``region_tenants.pyx`` the rows of tenants, ``region_snapshot.pyx`` the
  two buffers, ``region_series.pyx`` tags and keys.
* Statuses are a column of their own: control alone writes them, and every routing decision reads all of them. So are
  the gates of the circuit breakers (``gate.pxd``), which are zero in their state bits while a worker does well, and
  what each worker has computed lately.
* ``changes`` in the header counts what may make other workers ready than before: whoever has seen who is ready need not
  look again until it moves. It is counted after the change; what a killed process did not come to is counted when it is
  undone.

Spec: routing 10.3 (1, 3, 6, 7, 8), DESIGN 2 and 5.
"""

import fcntl
import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from smg._native.words cimport padded, w_load_total, w_store, w_store_release, word

LAYOUT_VERSION = 5

cdef enum:
    _VERSION = 5
    _MAX_SERIES = 1 << 20
    _MAX_SLOTS = 1 << 16
    _MAX_SNAPSHOT = 1 << 30

cdef word _MAGIC = 0x534D475245473031  # "SMGREG01"


cdef class RegionMemory:
    def __cinit__(self):
        self._base = NULL
        self.fd = -1

    def __init__(self):
        raise TypeError("use Region.create or Region.attach")

    def __dealloc__(self):
        if self._base != NULL:
            munmap(self._base, self._size)
            self._base = NULL

    @property
    def processes(self):
        return self._processes

    @property
    def workers(self):
        return self._workers

    @property
    def series(self):
        return self._series

    cdef int _create(self, processes, workers, series, snapshot_bytes) except -1:
        for name, value, limit in (
            ("processes", processes, MAX_PROCESSES),
            ("workers", workers, _MAX_SLOTS),
            ("series", series, _MAX_SERIES),
            ("snapshot_bytes", snapshot_bytes, _MAX_SNAPSHOT),
        ):
            if not 1 <= value <= limit:
                raise ValueError(f"{name} must be between 1 and {limit}, not {value}")
        self._layout(processes, workers, series, snapshot_bytes)
        self.fd = os.memfd_create("smg-region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, self._size)
            # Nobody can shrink it under a reader, which would be a SIGBUS.
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._map()
        except OSError:
            os.close(self.fd)
            raise
        self.boot_id = int.from_bytes(os.urandom(8), "little") >> 1
        w_store(self._base + H_VERSION, _VERSION)
        w_store(self._base + H_BOOT, self.boot_id)
        w_store(self._base + H_SIZE, self._size)
        w_store(self._base + H_PROCESSES, self._processes)
        w_store(self._base + H_WORKERS, self._workers)
        w_store(self._base + H_SERIES, self._series)
        w_store(self._base + H_SNAPSHOT_BYTES, self._snapshot_bytes)
        w_store_release(self._base + H_MAGIC, _MAGIC)
        return 0

    cdef int _attach(self, fd) except -1:
        cdef word head[HEADER]
        cdef bytes raw
        try:
            size = os.fstat(fd).st_size
            raw = os.pread(fd, HEADER * 8, 0)
        except OSError as error:
            raise ValueError(f"file descriptor {fd} is not a region: {error.strerror}") from None
        if len(raw) != HEADER * 8:
            raise ValueError(f"file descriptor {fd} is not a region: too short")
        memcpy(head, PyBytes_AS_STRING(raw), HEADER * 8)
        if head[H_MAGIC] != _MAGIC:
            raise ValueError(f"file descriptor {fd} is not a region: wrong magic")
        if head[H_VERSION] != _VERSION:
            raise ValueError(f"region layout {head[H_VERSION]} is not {_VERSION}")
        if (
            not 1 <= head[H_PROCESSES] <= MAX_PROCESSES
            or not 1 <= head[H_WORKERS] <= _MAX_SLOTS
            or not 1 <= head[H_SERIES] <= _MAX_SERIES
            or not 1 <= head[H_SNAPSHOT_BYTES] <= _MAX_SNAPSHOT
        ):
            raise ValueError("region header is damaged")
        self._layout(head[H_PROCESSES], head[H_WORKERS], head[H_SERIES], head[H_SNAPSHOT_BYTES])
        if head[H_SIZE] != self._size or size != self._size:
            raise ValueError(f"region has {size} bytes, its header describes {self._size}")
        self.fd = os.dup(fd)
        try:
            self._map()
        except OSError:
            os.close(self.fd)
            raise
        self.boot_id = head[H_BOOT]
        return 0

    cdef void _layout(self, word processes, word workers, word series, word snapshot_bytes):
        self._processes = processes
        self._workers = workers
        self._series = series
        self._snapshot_bytes = snapshot_bytes
        self._matrix_row = padded(workers)
        self._cell_row = padded(series)
        self._buffer_words = BUFFER_HEAD + padded((snapshot_bytes + 7) >> 3)
        cdef word words = HEADER + processes * PROCESS_ROW + SEQUENCES * SEQUENCE_ROW
        words += workers * WORKER_ROW + 3 * padded(workers)
        words += processes * self._matrix_row + TENANTS * TENANT_ROW + 2 * self._buffer_words
        words += padded(series) + series * KEY_ROW + processes * self._cell_row
        self._size = words * 8

    cdef int _map(self) except -1:
        cdef void *base = mmap(NULL, self._size, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if base == MAP_FAILED:
            raise OSError("the shared region cannot be mapped")
        self._base = <word *>base
        self._process_rows = self._base + HEADER
        self._sequences = self._process_rows + self._processes * PROCESS_ROW
        self._slots = self._sequences + SEQUENCES * SEQUENCE_ROW
        self._statuses = self._slots + self._workers * WORKER_ROW
        self._gates = self._statuses + padded(self._workers)
        self._computed = self._gates + padded(self._workers)
        self._matrix = self._computed + padded(self._workers)
        self._tenants = self._matrix + self._processes * self._matrix_row
        self._buffers = self._tenants + TENANTS * TENANT_ROW
        self._tags = self._buffers + 2 * self._buffer_words
        self._keys = self._tags + padded(self._series)
        self._cells = self._keys + self._series * KEY_ROW
        return 0

    cdef int _open(self) except -1:
        if self._base == NULL:
            raise ValueError("the region is closed")
        return 0

    cdef word *_process(self, word process) except NULL:
        self._open()
        if not 0 <= process < self._processes:
            raise IndexError(f"process {process} of {self._processes}")
        return self._process_rows + process * PROCESS_ROW

    cdef word _row_sum(self, word field) except? -1:
        self._open()
        cdef word total = 0, i
        for i in range(self._processes):
            total += w_load_total(self._process_rows + i * PROCESS_ROW + field)
        return total

    cdef int _unmap(self) except -1:
        if self._base != NULL:
            munmap(self._base, self._size)
            self._base = NULL
            os.close(self.fd)
            self.fd = -1
        return 0
