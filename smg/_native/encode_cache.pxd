"""Layout of the encode cache."""

from libc.stdint cimport int32_t, int64_t, uint64_t


cdef struct Key:
    uint64_t low
    uint64_t high
    # Twice the length in bytes, plus the flag.
    uint64_t size


cdef struct Node:
    Key key
    # Next in the bucket; neighbours by last use.
    Node *chained
    Node *newer
    Node *older
    # The ids of a node are its parent's and then its own ``count``, which lie behind it.
    Node *parent
    int64_t count
    int64_t total


cdef class EncodeCache:
    cdef uint64_t secret[2]
    cdef Node **buckets
    cdef uint64_t bucket_count
    cdef Node *newest
    cdef Node *oldest
    cdef readonly int64_t max_bytes
    cdef readonly int64_t max_entries
    cdef readonly int64_t nbytes
    cdef readonly int64_t entries
    cdef readonly int64_t hits
    cdef readonly int64_t misses
    cdef readonly int64_t evictions
    cdef void _digest(self, const unsigned char *data, const int64_t *cuts, int64_t count, int flag, Key *keys) noexcept
    cdef Node *_find(self, const Key *key) noexcept
    cdef void _unlink(self, Node *node) noexcept
    cdef void _link_behind(self, Node *node, Node *newer) noexcept
    cdef void _touch(self, Node *node) noexcept
    cdef void _evict(self) noexcept
    cdef bint _make_room(self, int64_t size, Node *parent) noexcept
    cdef int _grow(self) noexcept
    cdef Node *_add(self, const Key *key, Node *parent, const int32_t *ids, int64_t count) noexcept
    cdef object _lookup(self, const Key *keys, int64_t count)
    cdef void _insert(self, const Key *keys, const int64_t *counts, int64_t count, const int32_t *ids) noexcept
