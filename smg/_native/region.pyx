"""The shared region: one memfd, mapped by every process of a gateway.

Everything is an aligned 64-bit word that is only touched through C11-style atomics; nothing waits for another process.

    header | process rows | sequences | worker table | statuses | gates | computed | in-flight matrix | snapshot × 2 |
    series tags | series keys | cells

* A process row, a matrix row and a row of cells have one writer: the process of that number. Sums are taken by readers,
  so a killed process is undone by zeroing its rows. ``inflight.pxd`` has the words of the matrix. Counters are the exception: they stay in the row, the replacement
  counts on from there, and a scrape can never see a sum go down.
* Statuses are a column of their own: control alone writes them, and every routing decision reads all of them. So are
  the gates of the circuit breakers (``breaker.pyx``), which are zero in their state bits while a worker does well, and
  what each worker has computed lately.
* ``changes`` counts what may make other workers ready than before: whoever has seen who is ready need not look again
  until it moves. It is counted after the change; what a killed process did not come to is counted when it is undone.
* The snapshot has two buffers. The writer fills the one that readers are not sent to, under that buffer's own sequence
  number (odd while it is being written), then moves the version. A writer killed half-way leaves the other buffer good.
* A series is claimed by a compare-and-swap on its tag (0 free, 1 claimed) and published by a release store of its key's
  hash. A process killed in between wastes one entry. Two processes that race for the same new key may each make an
  entry; ``read_series`` sums by key, so nobody needs to wait.

Spec: routing 10.3 (1, 3, 6, 7, 8), DESIGN 2 and 5.
"""

import fcntl
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from smg._native.gate cimport gate_admits, gate_now
from smg._native.inflight cimport (
    LOAD_MOST_REQUESTS,
    LOAD_MOST_TOKENS,
    load_made,
    load_requests,
    load_requests_seen,
    load_sums,
    load_tokens,
    load_tokens_seen,
)
from smg._native.prefix_index import PrefixIndex
from smg._native.stretches cimport Stretch

cdef extern from *:
    """
    #include <stdint.h>
    typedef int64_t word;
    #define REGION_MAGIC ((word)0x534D475245473031LL) /* "SMGREG01" */
    static inline word w_load(const word *p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
    static inline word w_load_acquire(const word *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline word w_load_total(const word *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
    static inline void w_store(word *p, word v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
    static inline void w_store_release(word *p, word v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline word w_add(word *p, word v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
    static inline word w_add_total(word *p, word v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
    static inline int w_claim(word *p) {
        word free_tag = 0;
        return __atomic_compare_exchange_n(p, &free_tag, (word)1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    static inline int w_swap(word *p, word before, word after) {
        return __atomic_compare_exchange_n(p, &before, after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    static inline void w_fence_acquire(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
    static inline void w_fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    _Static_assert(__atomic_always_lock_free(sizeof(word), 0), "64-bit atomics must not need a lock");
    """
    const word REGION_MAGIC
    word w_load(const word *p) nogil
    word w_load_acquire(const word *p) nogil
    word w_load_total(const word *p) nogil
    void w_store(word *p, word v) nogil
    void w_store_release(word *p, word v) nogil
    word w_add(word *p, word v) nogil
    word w_add_total(word *p, word v) nogil
    bint w_claim(word *p) nogil
    bint w_swap(word *p, word before, word after) nogil
    void w_fence_acquire() nogil
    void w_fence_release() nogil

LAYOUT_VERSION = 5
COUNTER = 1
GAUGE = 2
MAX_SERIES_KEY = 240

STATUS = 0
FAILURES = 1
PROCESSED = 2
LAST_OK = 3
RUNNING = 4
WAITING = 5
USAGE = 6
QUEUED_TOKENS = 7
COMPUTED = 8

# Sizes in words. A row that one process writes fills whole cache lines (8 words), so that rows never share one.
cdef enum:
    _VERSION = 5
    _HEADER = 24
    _PROCESS_ROW = 8
    _SEQUENCES = 256
    _SEQUENCE_ROW = 8
    _WORKER_ROW = 16
    _FIELDS = 9
    _GENERATION = 8
    _RECORD = 9  # what the breaker keeps: four words
    _BUFFER_HEAD = 8
    _KEY_BYTES = 240
    _KEY_ROW = 32  # kind, length, key bytes
    _MAX_PROCESSES = 1024
    _MAX_SERIES = 1 << 20
    _MAX_SLOTS = 1 << 16
    # Words whose sums are taken at once, and below how many that takes longer than one by one.
    _BATCH = 64
    _FEW = 8
    _MOST = 0x7FFFFFFF

# What muster looks for.
cdef enum:
    STATUS_FIELD = 0
    COMPUTED_FIELD = 8
    STATUS_READY = 2
    GATE_STATE = 3

# Header words: what never changes, what every request may change, what hardly changes and every request reads.
cdef enum:
    _H_MAGIC = 0
    _H_VERSION = 1
    _H_BOOT = 2
    _H_SIZE = 3
    _H_PROCESSES = 4
    _H_WORKERS = 5
    _H_SERIES = 6
    _H_SNAPSHOT_BYTES = 7
    _H_TICKETS = 8
    _H_RATE = 9  # when the tokens taken from the bucket are all made up for
    _H_SNAPSHOT_VERSION = 16
    _H_DRAINING = 17
    _H_CHANGES = 18

# Words of a process row and of a snapshot buffer's head.
cdef enum:
    _P_PID = 0
    _P_REQUESTS = 1
    _P_WAITING = 2
    _P_HEAD = 3
    _P_ROUTES = 4  # whether anything was ever counted in its row of the matrix
    _B_SEQUENCE = 0
    _B_VERSION = 1
    _B_LENGTH = 2


cdef inline word _rate_wait(word paid, word now, word interval, word burst) noexcept nogil:
    """How long until one more token leaves the bucket at most ``burst`` behind."""
    return max(<word>0, max(paid, now) + interval - now - burst * interval)


cdef inline word _padded(word words) noexcept nogil:
    return (words + 7) & ~<word>7


cdef inline word _column_sum(const word *cell, word rows, word stride) noexcept nogil:
    cdef word total = 0, row
    for row in range(rows):
        total += w_load(cell + row * stride)
    return total


cdef inline void _take_apart(
    const word *loads, int64_t count, int *requests, int64_t *tokens, Loads *all
) noexcept nogil:
    """Write the requests and tokens of each load, and add them to what is known of all."""
    cdef int64_t at, sent = 0
    cdef int one, busy = 0, least = all.least, most = all.most
    for at in range(count):
        tokens[at] = load_tokens_seen(loads[at])
        sent += tokens[at]
    for at in range(count):
        one = load_requests_seen(loads[at])
        requests[at] = one
        busy += one
        least = min(least, one)
        most = max(most, one)
    all.tokens += sent
    all.requests += busy
    all.least = least
    all.most = most


cdef void _copy_in(word *target, const char *source, word size) noexcept nogil:
    """Store bytes word by word: readers may look at the same time, and a plain memcpy would be a data race."""
    cdef word whole = size >> 3, i, value
    for i in range(whole):
        memcpy(&value, source + (i << 3), 8)
        w_store(target + i, value)
    if size & 7:
        value = 0
        memcpy(&value, source + (whole << 3), size & 7)
        w_store(target + whole, value)


cdef void _copy_out(char *target, const word *source, word size) noexcept nogil:
    cdef word whole = size >> 3, i, value
    for i in range(whole):
        value = w_load(source + i)
        memcpy(target + (i << 3), &value, 8)
    if size & 7:
        value = w_load(source + whole)
        memcpy(target + (whole << 3), &value, size & 7)


cdef word _tag(const unsigned char *key, word size) noexcept nogil:
    """FNV-1a of the key, moved off the two reserved values."""
    cdef uint64_t value = 0xCBF29CE484222325ULL
    cdef word i
    for i in range(size):
        value = (value ^ key[i]) * 0x100000001B3ULL
    if value < 2:
        value += 2
    return <word>value


cdef class Region:
    def __cinit__(self):
        self._base = NULL
        self.fd = -1
        self.index = None

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

    @staticmethod
    def create(processes, workers=4096, series=4096, snapshot_bytes=4 << 20, index_bytes=1 << 20):
        cdef Region self = Region.__new__(Region)
        for name, value, limit in (
            ("processes", processes, _MAX_PROCESSES),
            ("workers", workers, _MAX_SLOTS),
            ("series", series, _MAX_SERIES),
            ("snapshot_bytes", snapshot_bytes, 1 << 30),
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
        w_store(self._base + _H_VERSION, _VERSION)
        w_store(self._base + _H_BOOT, self.boot_id)
        w_store(self._base + _H_SIZE, self._size)
        w_store(self._base + _H_PROCESSES, self._processes)
        w_store(self._base + _H_WORKERS, self._workers)
        w_store(self._base + _H_SERIES, self._series)
        w_store(self._base + _H_SNAPSHOT_BYTES, self._snapshot_bytes)
        w_store_release(self._base + _H_MAGIC, REGION_MAGIC)
        self.index = PrefixIndex.create(index_bytes, processes, workers)
        return self

    @staticmethod
    def attach(fd):
        cdef Region self = Region.__new__(Region)
        cdef word head[_HEADER]
        cdef bytes raw
        try:
            size = os.fstat(fd).st_size
            raw = os.pread(fd, _HEADER * 8, 0)
        except OSError as error:
            raise ValueError(f"file descriptor {fd} is not a region: {error.strerror}") from None
        if len(raw) != _HEADER * 8:
            raise ValueError(f"file descriptor {fd} is not a region: too short")
        memcpy(head, PyBytes_AS_STRING(raw), _HEADER * 8)
        if head[_H_MAGIC] != REGION_MAGIC:
            raise ValueError(f"file descriptor {fd} is not a region: wrong magic")
        if head[_H_VERSION] != _VERSION:
            raise ValueError(f"region layout {head[_H_VERSION]} is not {_VERSION}")
        if (
            not 1 <= head[_H_PROCESSES] <= _MAX_PROCESSES
            or not 1 <= head[_H_WORKERS] <= _MAX_SLOTS
            or not 1 <= head[_H_SERIES] <= _MAX_SERIES
            or not 1 <= head[_H_SNAPSHOT_BYTES] <= 1 << 30
        ):
            raise ValueError("region header is damaged")
        self._layout(head[_H_PROCESSES], head[_H_WORKERS], head[_H_SERIES], head[_H_SNAPSHOT_BYTES])
        if head[_H_SIZE] != self._size or size != self._size:
            raise ValueError(f"region has {size} bytes, its header describes {self._size}")
        self.fd = os.dup(fd)
        try:
            self._map()
        except OSError:
            os.close(self.fd)
            raise
        self.boot_id = head[_H_BOOT]
        return self

    cdef void _layout(self, word processes, word workers, word series, word snapshot_bytes):
        self._processes = processes
        self._workers = workers
        self._series = series
        self._snapshot_bytes = snapshot_bytes
        self._matrix_row = _padded(workers)
        self._cell_row = _padded(series)
        self._buffer_words = _BUFFER_HEAD + _padded((snapshot_bytes + 7) >> 3)
        cdef word words = _HEADER + processes * _PROCESS_ROW + _SEQUENCES * _SEQUENCE_ROW
        words += workers * _WORKER_ROW + 3 * _padded(workers)
        words += processes * self._matrix_row + 2 * self._buffer_words
        words += _padded(series) + series * _KEY_ROW + processes * self._cell_row
        self._size = words * 8

    cdef int _map(self) except -1:
        cdef void *base = mmap(NULL, self._size, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if base == MAP_FAILED:
            raise OSError("the shared region cannot be mapped")
        self._base = <word *>base
        self._process_rows = self._base + _HEADER
        self._sequences = self._process_rows + self._processes * _PROCESS_ROW
        self._slots = self._sequences + _SEQUENCES * _SEQUENCE_ROW
        self._statuses = self._slots + self._workers * _WORKER_ROW
        self._gates = self._statuses + _padded(self._workers)
        self._computed = self._gates + _padded(self._workers)
        self._matrix = self._computed + _padded(self._workers)
        self._buffers = self._matrix + self._processes * self._matrix_row
        self._tags = self._buffers + 2 * self._buffer_words
        self._keys = self._tags + _padded(self._series)
        self._cells = self._keys + self._series * _KEY_ROW
        return 0

    cdef int _open(self) except -1:
        if self._base == NULL:
            raise ValueError("the region is closed")
        return 0

    cdef word *_process(self, word process) except NULL:
        self._open()
        if not 0 <= process < self._processes:
            raise IndexError(f"process {process} of {self._processes}")
        return self._process_rows + process * _PROCESS_ROW

    cdef word *_slot(self, word slot) except NULL:
        self._open()
        if not 0 <= slot < self._workers:
            raise IndexError(f"worker slot {slot} of {self._workers}")
        return self._slots + slot * _WORKER_ROW

    cdef word *_field(self, word slot, word field) except NULL:
        if not 0 <= field < _FIELDS:
            raise IndexError(f"worker field {field} of {_FIELDS}")
        cdef word *row = self._slot(slot)
        if field == STATUS_FIELD:
            return self._statuses + slot
        return self._computed + slot if field == COMPUTED_FIELD else row + field

    def close(self):
        """Unmap and close. Further calls raise ValueError. Idempotent."""
        if self._base != NULL:
            munmap(self._base, self._size)
            self._base = NULL
            os.close(self.fd)
            self.fd = -1
            if self.index is not None:
                self.index.close()

    # processes

    def claim_process(self, word process, word pid):
        w_store(self._process(process) + _P_PID, pid)

    def process_pid(self, word process):
        return w_load(self._process(process) + _P_PID)

    def clear_process(self, word process):
        cdef word *row = self._process(process)
        cdef word *matrix = self._matrix + process * self._matrix_row
        cdef word *cells = self._cells + process * self._cell_row
        cdef word i
        with nogil:
            for i in range(self._workers):
                # A row is mostly zeros, and a store would allocate its page.
                if w_load(matrix + i) != 0:
                    w_store(matrix + i, 0)
            for i in range(self._series):
                if w_load_acquire(self._tags + i) == 0:
                    break
                if w_load(self._keys + i * _KEY_ROW) == 2:
                    w_store(cells + i, 0)
            w_store(row + _P_REQUESTS, 0)
            w_store(row + _P_WAITING, 0)
            w_store(row + _P_HEAD, 0)
            w_store_release(row + _P_PID, 0)
        self.note_change()
        if self.index is not None:
            self.index.clear_process(process)

    # draining

    def set_draining(self):
        self._open()
        w_store_release(self._base + _H_DRAINING, 1)

    def draining(self):
        self._open()
        return w_load_acquire(self._base + _H_DRAINING) != 0

    # in-flight

    def inflight_add(self, word process, word slot, word requests, word tokens):
        cdef word *row = self._process(process)
        self._slot(slot)
        if abs(requests) > LOAD_MOST_REQUESTS or abs(tokens) > LOAD_MOST_TOKENS:
            raise ValueError(f"{requests} requests with {tokens} tokens are more than can be counted at once")
        w_store(row + _P_ROUTES, 1)
        w_add(self._matrix + process * self._matrix_row + slot, load_made(requests, tokens))

    def inflight(self, word slot):
        self._slot(slot)
        cdef word load = _column_sum(self._matrix + slot, self._processes, self._matrix_row)
        return load_requests(load), load_tokens(load)

    def inflight_many(self, slots):
        cdef list out = []
        cdef word slot
        for slot in slots:
            self._slot(slot)
            out.append(load_requests(_column_sum(self._matrix + slot, self._processes, self._matrix_row)))
        return out

    cdef int64_t changes(self) noexcept nogil:
        return w_load_acquire(self._base + _H_CHANGES)

    cdef void note_change(self) noexcept nogil:
        w_add_total(self._base + _H_CHANGES, 1)

    cdef int64_t muster(
        self, const int *slots, int64_t count, const char *skip, int *numbers, int *places, bint *moved, bint *steady
    ) noexcept nogil:
        cdef int64_t at, found = 0
        cdef const word *statuses = self._statuses
        cdef const word *gates = self._gates
        cdef word gate, now = 0
        cdef int different = 0, unsteady = 0, before, ready
        for at in range(count):
            ready = (not skip[at]) & (w_load(statuses + slots[at]) == STATUS_READY)
            gate = w_load(gates + slots[at])
            if gate & GATE_STATE:
                # With time it may admit again, or no more.
                unsteady |= ready
                now = now or gate_now()
                ready = ready and gate_admits(gate, now)
            # Written always and counted if it is one: no branch to guess wrong.
            before = numbers[found]
            different |= (before ^ <int>at) & -ready
            numbers[found] = <int>at if ready else before
            places[found] = slots[at]
            found += ready
        moved[0] = different != 0
        steady[0] = not unsteady
        return found

    cdef Loads loads(self, const Stretch *stretches, int64_t count, int *requests, int64_t *tokens) noexcept nogil:
        cdef const word *rows[_MAX_PROCESSES]
        cdef word sums[_BATCH]
        cdef Stretch part
        cdef Loads all
        cdef int64_t number, row, at, some, routing = self._routing(rows)
        all.requests = all.tokens = 0
        all.least = _MOST
        all.most = 0
        for number in range(count):
            part = stretches[number]
            while part.count > 0:
                some = min(part.count, <int>_BATCH)
                if some < _FEW:
                    for at in range(some):
                        sums[at] = 0
                        for row in range(routing):
                            sums[at] += w_load(rows[row] + part.slot + at)
                else:
                    load_sums(sums, rows, routing, part.slot, some)
                _take_apart(sums, some, requests + part.at, tokens + part.at, &all)
                part.at += _BATCH
                part.slot += _BATCH
                part.count -= _BATCH
        return all

    cdef int64_t _routing(self, const word **rows) noexcept nogil:
        """The rows in which anything was ever counted; control and the supervisor never route."""
        cdef word process
        cdef int64_t found = 0
        for process in range(self._processes):
            if w_load(self._process_rows + process * _PROCESS_ROW + _P_ROUTES):
                rows[found] = self._matrix + process * self._matrix_row
                found += 1
        return found

    def requests_add(self, word process, word delta):
        # Sequentially consistent: of two processes that add at once, at least one sees both.
        w_add_total(self._process(process) + _P_REQUESTS, delta)
        return self.requests_total()

    def requests_total(self):
        return self._row_sum(_P_REQUESTS)

    cdef word _row_sum(self, word field) except? -1:
        self._open()
        cdef word total = 0, i
        for i in range(self._processes):
            total += w_load_total(self._process_rows + i * _PROCESS_ROW + field)
        return total

    # waiting for admission

    def waiting_add(self, word process, word delta):
        w_add_total(self._process(process) + _P_WAITING, delta)
        return self._row_sum(_P_WAITING)

    def waiting_total(self):
        return self._row_sum(_P_WAITING)

    def waiting_ticket(self):
        self._open()
        return w_add_total(self._base + _H_TICKETS, 1) + 1

    def waiting_head_set(self, word process, word ticket):
        w_store_release(self._process(process) + _P_HEAD, ticket)

    def waiting_head(self):
        self._open()
        cdef word head = 0, ticket, i
        for i in range(self._processes):
            ticket = w_load_acquire(self._process_rows + i * _PROCESS_ROW + _P_HEAD)
            if ticket and (head == 0 or ticket < head):
                head = ticket
        return head

    # rate

    def rate_wait(self, word now, word interval, word burst):
        self._open()
        return _rate_wait(w_load_total(self._base + _H_RATE), now, interval, burst)

    def rate_take(self, word now, word interval, word burst):
        self._open()
        cdef word *place = self._base + _H_RATE
        cdef word before, wait
        while True:
            before = w_load_total(place)
            wait = _rate_wait(before, now, interval, burst)
            if wait > 0 or w_swap(place, before, max(before, now) + interval):
                return wait

    # worker slots

    cdef word field_at(self, word slot, word field) noexcept nogil:
        return w_load(self._slots + slot * _WORKER_ROW + field)

    cdef int64_t computed(self, const Stretch *stretches, int64_t count, int64_t *tokens) noexcept nogil:
        cdef int64_t number, at, total = 0, seen
        cdef const word *column
        cdef int64_t *out
        for number in range(count):
            column = self._computed + stretches[number].slot
            out = tokens + stretches[number].at
            for at in range(stretches[number].count):
                # What is taken back may have been halved meanwhile. A plain read, as those of the matrix.
                seen = column[at]
                seen &= ~(seen >> 63)
                out[at] = seen
                total += seen
        return total

    def worker_get(self, word slot, word field):
        return w_load(self._field(slot, field))

    def worker_set(self, word slot, word field, word value):
        w_store(self._field(slot, field), value)
        if field == STATUS_FIELD:
            self.note_change()

    def worker_add(self, word slot, word field, word delta):
        cdef word after = w_add(self._field(slot, field), delta) + delta
        if field == STATUS_FIELD:
            self.note_change()
        return after

    def worker_reset(self, word slot):
        cdef word *row = self._slot(slot)
        cdef word i
        for i in range(_GENERATION):
            w_store(row + i, 0)
        for i in range(4):
            w_store(row + _RECORD + i, 0)
        w_store(self._gates + slot, 0)
        w_store(self._statuses + slot, 0)
        w_store(self._computed + slot, 0)
        self.note_change()
        return w_add_total(row + _GENERATION, 1) + 1

    cdef word *_gate(self, word slot) except NULL:
        self._slot(slot)
        return self._gates + slot

    cdef word *_record(self, word slot) except NULL:
        return self._slot(slot) + _RECORD

    def worker_generation(self, word slot):
        return w_load_acquire(self._slot(slot) + _GENERATION)

    # sequences

    def sequence_next(self, word sequence):
        self._open()
        if not 0 <= sequence < _SEQUENCES:
            raise IndexError(f"sequence {sequence} of {_SEQUENCES}")
        return w_add(self._sequences + sequence * _SEQUENCE_ROW, 1)

    # snapshot

    def publish(self, bytes blob not None):
        self._open()
        cdef word size = len(blob)
        if size > self._snapshot_bytes:
            raise ValueError(f"a snapshot of {size} bytes does not fit into {self._snapshot_bytes}")
        cdef const char *source = PyBytes_AS_STRING(blob)
        cdef word version = w_load(self._base + _H_SNAPSHOT_VERSION) + 1
        cdef word *buffer = self._buffers + (version & 1) * self._buffer_words
        # Odd and new, also after a writer that died half-way.
        cdef word sequence = (w_load(buffer + _B_SEQUENCE) + 1) | 1
        with nogil:
            w_store(buffer + _B_SEQUENCE, sequence)
            w_fence_release()
            w_store(buffer + _B_VERSION, version)
            w_store(buffer + _B_LENGTH, size)
            _copy_in(buffer + _BUFFER_HEAD, source, size)
            w_store_release(buffer + _B_SEQUENCE, sequence + 1)
            w_store_release(self._base + _H_SNAPSHOT_VERSION, version)
        return version

    def snapshot_version(self):
        self._open()
        return w_load_acquire(self._base + _H_SNAPSHOT_VERSION)

    def snapshot(self):
        self._open()
        cdef word version, sequence, size
        cdef word *buffer
        cdef char *target
        cdef bint whole
        while True:
            version = w_load_acquire(self._base + _H_SNAPSHOT_VERSION)
            if version == 0:
                return 0, b""
            buffer = self._buffers + (version & 1) * self._buffer_words
            sequence = w_load_acquire(buffer + _B_SEQUENCE)
            size = w_load(buffer + _B_LENGTH)
            if sequence & 1 or not 0 <= size <= self._snapshot_bytes:
                continue
            blob = PyBytes_FromStringAndSize(NULL, size)
            target = PyBytes_AS_STRING(blob)
            with nogil:
                _copy_out(target, buffer + _BUFFER_HEAD, size)
                whole = w_load(buffer + _B_VERSION) == version
                w_fence_acquire()
                whole = whole and w_load(buffer + _B_SEQUENCE) == sequence
            if whole:
                return version, blob

    # metric series

    cdef bint _is(self, word index, word tag, const char *key, word size) noexcept nogil:
        cdef word *row = self._keys + index * _KEY_ROW
        return w_load(row + 1) == size and memcmp(row + 2, key, size) == 0

    def find_series(self, bytes key not None, word kind):
        self._open()
        cdef word size = len(key), i, seen, index = -1
        if size > _KEY_BYTES:
            raise ValueError(f"a series key of {size} bytes is longer than {_KEY_BYTES}")
        if kind != 1 and kind != 2:
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
                        row = self._keys + i * _KEY_ROW
                        w_store(row, kind)
                        w_store(row + 1, size)
                        _copy_in(row + 2, source, size)
                        w_store_release(self._tags + i, tag)
                        index = i
                        break
                if seen == tag and self._is(i, tag, source, size):
                    index = i
                    break
        if index >= 0 and w_load(self._keys + index * _KEY_ROW) != kind:
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

    def read_series(self):
        self._open()
        cdef dict found = {}
        cdef word i, tag, kind, size
        cdef word *row
        for i in range(self._series):
            tag = w_load_acquire(self._tags + i)
            if tag == 0:
                break
            if tag == 1:
                continue
            row = self._keys + i * _KEY_ROW
            kind = w_load(row)
            size = w_load(row + 1)
            key = PyBytes_FromStringAndSize(<char *>(row + 2), size)
            value = _column_sum(self._cells + i, self._processes, self._cell_row)
            before = found.get(key)
            found[key] = (kind, value if before is None else before[1] + value)
        return [(key, kind, value) for key, (kind, value) in found.items()]
