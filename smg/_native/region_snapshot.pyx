"""The registry's snapshot in the region: one writer (control), many readers, never torn (spec routing 10.3 (6)).

There are two buffers. The writer fills the one that readers are not sent to, under that buffer's own sequence number
(odd while it is being written), then moves the version. A writer killed half-way leaves the other buffer good.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from smg._native.region_memory cimport BUFFER_HEAD, H_SNAPSHOT_VERSION
from smg._native.region_tenants cimport RegionTenants
from smg._native.words cimport (
    copy_in,
    copy_out,
    w_fence_acquire,
    w_fence_release,
    w_load,
    w_load_acquire,
    w_store,
    w_store_release,
    word,
)

# Words of a buffer's head.
cdef enum:
    _B_SEQUENCE = 0
    _B_VERSION = 1
    _B_LENGTH = 2


cdef class RegionSnapshot(RegionTenants):
    def publish(self, bytes blob not None):
        self._open()
        cdef word size = len(blob)
        if size > self._snapshot_bytes:
            raise ValueError(f"a snapshot of {size} bytes does not fit into {self._snapshot_bytes}")
        cdef const char *source = PyBytes_AS_STRING(blob)
        cdef word version = w_load(self._base + H_SNAPSHOT_VERSION) + 1
        cdef word *buffer = self._buffers + (version & 1) * self._buffer_words
        # Odd and new, also after a writer that died half-way.
        cdef word sequence = (w_load(buffer + _B_SEQUENCE) + 1) | 1
        with nogil:
            w_store(buffer + _B_SEQUENCE, sequence)
            w_fence_release()
            w_store(buffer + _B_VERSION, version)
            w_store(buffer + _B_LENGTH, size)
            copy_in(buffer + BUFFER_HEAD, source, size)
            w_store_release(buffer + _B_SEQUENCE, sequence + 1)
            w_store_release(self._base + H_SNAPSHOT_VERSION, version)
        return version

    def snapshot_version(self):
        self._open()
        return w_load_acquire(self._base + H_SNAPSHOT_VERSION)

    def snapshot(self):
        self._open()
        cdef word version, sequence, size
        cdef word *buffer
        cdef char *target
        cdef bint whole
        while True:
            version = w_load_acquire(self._base + H_SNAPSHOT_VERSION)
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
                copy_out(target, buffer + BUFFER_HEAD, size)
                whole = w_load(buffer + _B_VERSION) == version
                w_fence_acquire()
                whole = whole and w_load(buffer + _B_SEQUENCE) == sequence
            if whole:
                return version, blob
