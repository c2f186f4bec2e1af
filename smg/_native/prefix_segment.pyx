"""The memory of the prefix index, and the processes that write it (spec routing 10.3, option A).

    header | process rows | tickets × 2 planes | live | shards | entries

The table of shards and entries is explained in ``prefix_table.pxd``, tickets and who is live in
``prefix_tickets.pyx``.

Losing the index costs speed, never truth: what a dead process left half-done is forgotten.
"""

import fcntl
import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from smg._native.atomics cimport (
    c_add,
    c_alive,
    c_know_me,
    c_load,
    c_load_acquire,
    c_me,
    c_populate,
    c_store,
    c_store_release,
    c_swap,
    cell,
)
from smg._native.prefix_table cimport (
    PATIENTLY,
    PLANES,
    QUANTUM,
    TICK_SHIFT,
    Entry,
    Shard,
    empty,
    first_size,
    release,
)

c_know_me()

LAYOUT_VERSION = 2
MAX_WORKERS = 4096
MIN_BYTES = 1 << 16
MAX_BYTES = 1 << 34

cdef enum:
    _VERSION = 2
    _HEADER = 64
    _ROW = 8
    _SHARD = 8
    _PAGE = 512  # cells
    _MAX_PROCESSES = 1024
    _MAX_SLOTS = 65536

# Header cells; what all processes write has a cache line of its own.
cdef enum:
    _H_MAGIC = 0
    _H_VERSION = 1
    _H_BOOT = 2
    _H_SIZE = 3
    _H_PROCESSES = 4
    _H_SLOTS = 5
    _H_BITS = 6
    _H_CAPACITY = 7
    _H_FLOOR = 32

# Cells of a process row.
cdef enum:
    _R_PID = 0
    _R_WRITES = 1

cdef cell _MAGIC = 0x31305849474D53  # "SMGIX01"


cdef inline cell _paged(cell cells) noexcept nogil:
    return (cells + _PAGE - 1) & ~<cell>(_PAGE - 1)


cdef class PrefixSegment:
    def __cinit__(self):
        self._base = NULL
        self.fd = -1

    def __init__(self):
        raise TypeError("use create or attach")

    def __dealloc__(self):
        if self._base != NULL:
            munmap(self._base, self._size)
            self._base = NULL

    @classmethod
    def create(cls, nbytes, processes=1, slots=4096):
        cdef PrefixSegment self = cls.__new__(cls)
        cdef cell bits = 4, shard
        for name, value, least, most in (
            ("nbytes", nbytes, MIN_BYTES, MAX_BYTES),
            ("processes", processes, 1, _MAX_PROCESSES),
            ("slots", slots, 1, _MAX_SLOTS),
        ):
            if not least <= value <= most:
                raise ValueError(f"{name} must be between {least} and {most}, not {value}")
        # So many that writers seldom meet and each is quick to lay out anew, and no more: the pages of all are in use.
        while nbytes >> (bits + 1) >= (1 << 16 if bits < 8 else 1 << 20) and bits < 12:
            bits += 1
        self._layout(processes, slots, bits, (nbytes >> bits) // (32 * QUANTUM) * QUANTUM)
        self.fd = os.memfd_create("smg-prefix-index", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, self._size)
            # Nobody can shrink it under a reader, which would be a SIGBUS.
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._map_in()
        except OSError:
            os.close(self.fd)
            raise
        self.boot_id = int.from_bytes(os.urandom(8), "little") >> 1
        c_store(self._base + _H_VERSION, _VERSION)
        c_store(self._base + _H_BOOT, self.boot_id)
        c_store(self._base + _H_SIZE, self._size)
        c_store(self._base + _H_PROCESSES, processes)
        c_store(self._base + _H_SLOTS, slots)
        c_store(self._base + _H_BITS, bits)
        c_store(self._base + _H_CAPACITY, self._table.capacity)
        c_store(self._table.floor, <cell>1 << TICK_SHIFT)
        c_store(self._base + H_TICK, 1)
        for shard in range(<cell>1 << bits):
            c_store(&self._table.shards[shard].size, first_size(&self._table))
            c_store(&self._table.shards[shard].limit, c_load(&self._table.shards[shard].size))
        c_store_release(self._base + _H_MAGIC, _MAGIC)
        self.join(0)
        return self

    @classmethod
    def attach(cls, fd):
        cdef PrefixSegment self = cls.__new__(cls)
        cdef cell head[_HEADER]
        cdef bytes raw
        try:
            size = os.fstat(fd).st_size
            raw = os.pread(fd, _HEADER * 8, 0)
        except OSError as error:
            raise ValueError(f"file descriptor {fd} is not a prefix index: {error.strerror}") from None
        if len(raw) != _HEADER * 8:
            raise ValueError(f"file descriptor {fd} is not a prefix index: too short")
        memcpy(head, PyBytes_AS_STRING(raw), _HEADER * 8)
        if head[_H_MAGIC] != _MAGIC:
            raise ValueError(f"file descriptor {fd} is not a prefix index: wrong magic")
        if head[_H_VERSION] != _VERSION:
            raise ValueError(f"prefix index layout {head[_H_VERSION]} is not {_VERSION}")
        if (
            not 1 <= head[_H_PROCESSES] <= _MAX_PROCESSES
            or not 1 <= head[_H_SLOTS] <= _MAX_SLOTS
            or not 4 <= head[_H_BITS] <= 12
            or not QUANTUM <= head[_H_CAPACITY] <= MAX_BYTES
        ):
            raise ValueError("prefix index header is damaged")
        self._layout(head[_H_PROCESSES], head[_H_SLOTS], head[_H_BITS], head[_H_CAPACITY])
        if head[_H_SIZE] != self._size or size != self._size:
            raise ValueError(f"prefix index has {size} bytes, its header describes {self._size}")
        self.fd = os.dup(fd)
        try:
            self._map_in()
        except OSError:
            os.close(self.fd)
            raise
        self.boot_id = head[_H_BOOT]
        return self

    cdef void _layout(self, cell processes, cell slots, cell bits, cell capacity):
        self._processes = processes
        self._slots = slots
        self._table.bits = bits
        self._table.capacity = capacity
        cdef cell before = _HEADER + processes * _ROW + (PLANES + 1) * slots
        before = ((before + 7) & ~<cell>7) + (<cell>_SHARD << bits)
        self._size = (_paged(before) + ((capacity * 4) << bits)) * 8

    cdef int _map_in(self) except -1:
        cdef void *base = mmap(NULL, self._size, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        cdef cell before = _HEADER + self._processes * _ROW + (PLANES + 1) * self._slots
        if base == MAP_FAILED:
            raise OSError("the prefix index cannot be mapped")
        self._base = <cell *>base
        self._rows = self._base + _HEADER
        self._map = self._rows + self._processes * _ROW
        self._live = self._map + PLANES * self._slots
        before = (before + 7) & ~<cell>7
        self._table.shards = <Shard *>(self._base + before)
        self._table.entries = <Entry *>(self._base + _paged(before + (<cell>_SHARD << self._table.bits)))
        self._table.floor = self._base + _H_FLOOR
        return 0

    cdef int _open(self) except -1:
        if self._base == NULL:
            raise ValueError("the prefix index is closed")
        return 0

    cdef int _known(self, int64_t slot) except -1:
        self._open()
        if not 0 <= slot < <int64_t>self._slots:
            raise IndexError(f"worker slot {slot} of {self._slots}")
        return 0

    def close(self):
        if self._base != NULL:
            munmap(self._base, self._size)
            self._base = NULL
            os.close(self.fd)
            self.fd = -1

    # processes

    def join(self, int64_t process):
        self._open()
        if not 0 <= process < <int64_t>self._processes:
            raise IndexError(f"process {process} of {self._processes}")
        cdef cell at
        self._process = process
        c_store(self._rows + process * _ROW + _R_WRITES, 0)
        c_store_release(self._rows + process * _ROW + _R_PID, c_me)
        for at in range(<cell>1 << self._table.bits):
            c_populate(
                self._table.entries + at * self._table.capacity, first_size(&self._table) * sizeof(Entry)
            )

    def clear_process(self, int64_t process):
        self._open()
        if not 0 <= process < <int64_t>self._processes:
            raise IndexError(f"process {process} of {self._processes}")
        cdef cell *row = self._rows + process * _ROW
        cdef cell pid = c_load(row + _R_PID), at
        cdef Shard *shard
        if pid != 0:
            for at in range(<cell>1 << self._table.bits):
                shard = self._table.shards + at
                if c_load(&shard.lock) == pid and c_swap(&shard.lock, pid, c_me):
                    empty(&self._table, shard)
                    release(shard)
        c_store(row + _R_WRITES, 0)
        c_store_release(row + _R_PID, 0)
        # It may have died before it came to that.
        self._note_change()

    cdef int64_t changes(self) noexcept nogil:
        return <int64_t>c_load_acquire(self._base + H_CHANGES)

    cdef void _note_change(self) noexcept nogil:
        c_add(self._base + H_CHANGES, 1)

    cdef void _enter(self) noexcept nogil:
        # Sequentially consistent, before any ticket is read: whoever takes a ticket away and then sees no write under
        # way knows that none will use it.
        c_add(self._rows + self._process * _ROW + _R_WRITES, 1)

    cdef void _exit(self) noexcept nogil:
        c_add(self._rows + self._process * _ROW + _R_WRITES, <cell>-1)

    cdef bint _quiet(self) noexcept nogil:
        """See every process once without a write under way."""
        cdef cell process, turn
        cdef cell *row
        for process in range(self._processes):
            row = self._rows + process * _ROW
            turn = 0
            # An atomic read and write: ordered after the tickets were taken away.
            while c_add(row + _R_WRITES, 0) != 0 and c_alive(c_load(row + _R_PID)):
                turn += 1
                if turn > PATIENTLY:
                    return False
        return True
