from smg._native.words cimport word

# Sizes in words. A row that one process writes fills whole cache lines (8 words), so that rows never share one.
cdef enum:
    HEADER = 24
    PROCESS_ROW = 8
    SEQUENCES = 256
    SEQUENCE_ROW = 8
    WORKER_ROW = 16
    TENANTS = 4096
    TENANT_ROW = 4  # tag, two buckets
    BUFFER_HEAD = 8
    KEY_ROW = 32  # of a metric series: kind, length, key bytes
    MAX_PROCESSES = 1024

# Header words: what never changes, what every request may change, what hardly changes and every request reads.
cdef enum:
    H_MAGIC = 0
    H_VERSION = 1
    H_BOOT = 2
    H_SIZE = 3
    H_PROCESSES = 4
    H_WORKERS = 5
    H_SERIES = 6
    H_SNAPSHOT_BYTES = 7
    H_TICKETS = 8
    H_RATE = 9  # when the tokens taken from the bucket are all made up for
    H_SNAPSHOT_VERSION = 16
    H_DRAINING = 17
    H_CHANGES = 18

# Words of a process row.
cdef enum:
    P_PID = 0
    P_REQUESTS = 1
    P_WAITING = 2
    P_HEAD = 3
    P_ROUTES = 4  # whether anything was ever counted in its row of the matrix


cdef class RegionMemory:
    cdef word *_base
    cdef word *_process_rows
    cdef word *_sequences
    cdef word *_slots
    cdef word *_statuses
    cdef word *_gates
    cdef word *_computed
    cdef word *_matrix
    cdef word *_tenants
    cdef word *_buffers
    cdef word *_tags
    cdef word *_keys
    cdef word *_cells
    cdef word _size, _processes, _workers, _series, _snapshot_bytes
    cdef word _matrix_row, _cell_row, _buffer_words
    cdef readonly int fd
    cdef readonly object boot_id

    cdef int _create(self, processes, workers, series, snapshot_bytes) except -1
    cdef int _attach(self, fd) except -1
    cdef void _layout(self, word processes, word workers, word series, word snapshot_bytes)
    cdef int _map(self) except -1
    cdef int _unmap(self) except -1
    cdef int _open(self) except -1
    cdef word *_process(self, word process) except NULL
    cdef word _row_sum(self, word field) except? -1
