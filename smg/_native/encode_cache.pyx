"""Bounded memory of encoded texts and text beginnings (spec text-pipeline 3).

**Keys.** A text is known by its length, a flag and its 128-bit SipHash-2-4 under a secret of the process; the text
itself is not kept. Prompts of different clients meet here and a wrong match would hand one of them the other's prompt,
so the hash has to stand up to clients who look for collisions. SipHash is made for that, and without the secret nobody
can compute it. Among a million entries chance alone finds a pair with probability 2**-89. It is also sequential, so
one pass over a text yields the keys of all its beginnings.

**Storage.** A node holds the ids between its parent's cut and its own, 4 bytes each, so a growing conversation is kept
once and not once per turn. A use moves a node and then its ancestors to the front: no parent is older than its child,
hence the oldest node never has children and can always go. Nothing dangles, and the bound is exact.

The hash tables are touched only while the GIL is held (or the object's lock in a build without one), and no Python code
runs in between; long texts are hashed without it.
"""

import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyObject_CheckBuffer
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from smg._native.id_list cimport id_list, narrow
from smg._native.siphash cimport Sip, sip_absorb, sip_finish, sip_start, sip_word

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    # Below this, hashing takes less time than giving the GIL away can cost.
    LONG_TEXT = 16 * 1024
    # Positions that are looked for between two times with the GIL.
    FOUND = 256
    # What the allocator and the bucket of a node take, about.
    OVERHEAD = 32


cdef void _digest_all(
    const uint64_t *secret, const unsigned char *data, const int64_t *cuts, int64_t count, int flag, Key *keys
) noexcept nogil:
    """Make the keys of ``data[:cut]`` for each of the ascending ``cuts``."""
    cdef Sip sip = sip_start(secret)
    cdef int64_t number, at = 0
    for number in range(count):
        while at + 8 <= cuts[number]:
            sip_absorb(&sip, sip_word(data + at))
            at += 8
        sip_finish(sip, data, cuts[number], &keys[number].low, &keys[number].high)
        keys[number].size = 2 * <uint64_t>cuts[number] + flag


cdef inline int32_t *_ids_of(Node *node) noexcept nogil:
    return <int32_t *>(node + 1)


cdef inline int64_t _cost(int64_t count) noexcept nogil:
    return sizeof(Node) + count * <int64_t>sizeof(int32_t) + OVERHEAD


cdef int64_t *_checked_cuts(object cuts, int64_t size) except NULL:
    """Copy cuts to an array; the caller frees it. Raises ValueError unless they ascend within ``size``."""
    cdef int64_t at, last = 0, count = len(cuts)
    cdef int64_t *narrow = <int64_t *>malloc((count + 1) * sizeof(int64_t))
    if narrow == NULL:
        raise MemoryError
    try:
        for at in range(count):
            narrow[at] = cuts[at]
            if narrow[at] < last or narrow[at] > size:
                raise ValueError("cuts and counts must ascend and lie within the text and its ids")
            last = narrow[at]
    except BaseException:
        free(narrow)
        raise
    return narrow


cdef class EncodeCache:
    """Ids by text or by beginning of a text; the least recently used go first.

    Holds at most ``max_bytes`` (nodes and ids; 0 keeps nothing) and ``max_entries`` (0: no such bound). ``secret`` is
    16 bytes and random unless given. ``hits`` and ``misses`` count look-ups, ``evictions`` what had to go, ``entries``
    and ``nbytes`` what is held now.
    """

    def __cinit__(self, int64_t max_bytes, int64_t max_entries=0, bytes secret=None):
        if secret is None:
            secret = os.urandom(16)
        if PyBytes_GET_SIZE(secret) != 16:
            raise ValueError("the secret must be 16 bytes")
        memcpy(self.secret, PyBytes_AS_STRING(secret), 16)
        self.max_bytes = max_bytes
        self.max_entries = max_entries
        self.bucket_count = 64
        self.buckets = <Node **>calloc(self.bucket_count, sizeof(void *))
        if self.buckets == NULL:
            raise MemoryError

    def __dealloc__(self):
        while self.oldest != NULL:
            self._evict()
        free(self.buckets)

    def __len__(self):
        return self.entries

    def digest(self, bytes data not None):
        """SipHash-2-4 of ``data`` with 128 bits, as 16 bytes (the function behind the keys)."""
        cdef Key key
        cdef int64_t cut = PyBytes_GET_SIZE(data)
        self._digest(<const unsigned char *>PyBytes_AS_STRING(data), &cut, 1, 0, &key)
        return PyBytes_FromStringAndSize(<char *>&key, 16)

    def get(self, str text not None, bint flag=False):
        """Return the ids of ``text`` under ``flag``, or None. Raises UnicodeEncodeError for unpaired surrogates."""
        cdef Key key
        cdef Py_ssize_t size
        cdef const unsigned char *data = <const unsigned char *>PyUnicode_AsUTF8AndSize(text, &size)
        cdef int64_t cut = size
        self._digest(data, &cut, 1, flag, &key)
        found = self._lookup(&key, 1)
        return None if found is None else found[1]

    def put(self, str text not None, bint flag, ids not None):
        """Keep the ids of ``text`` under ``flag``. Raises UnicodeEncodeError for unpaired surrogates."""
        cdef Key key
        cdef Py_ssize_t size
        cdef const unsigned char *data = <const unsigned char *>PyUnicode_AsUTF8AndSize(text, &size)
        cdef int64_t cut = size, count = 0
        cdef int32_t *kept = narrow(ids, &count)
        self._digest(data, &cut, 1, flag, &key)
        with cython.critical_section(self):
            self._insert(&key, &count, 1, kept)
        free(kept)

    def longest(self, bytes data not None, cuts):
        """Return ``(number, ids)`` of the last of the ascending ``cuts`` up to which ``data`` is known, or None.

        Raises ValueError for offsets that do not ascend or lie outside.
        """
        cdef int64_t count = len(cuts)
        cdef int64_t *narrow = _checked_cuts(cuts, PyBytes_GET_SIZE(data))
        cdef Key *keys = <Key *>malloc((count + 1) * sizeof(Key))
        try:
            if keys == NULL:
                raise MemoryError
            self._digest(<const unsigned char *>PyBytes_AS_STRING(data), narrow, count, 0, keys)
            return self._lookup(keys, count)
        finally:
            free(narrow)
            free(keys)

    def extend(self, bytes data not None, cuts, counts, ids not None):
        """Keep ``data`` up to each of the ascending ``cuts``: the first ``counts[i]`` of ``ids`` belong to ``cuts[i]``.

        Raises ValueError for cuts or counts that do not ascend, lie outside or are not as many.
        """
        cdef int64_t count = len(cuts)
        cdef int64_t *narrow_cuts = NULL
        cdef int64_t *narrow_counts = NULL
        cdef int32_t *kept = NULL
        cdef int64_t size = 0
        cdef Key *keys = <Key *>malloc((count + 1) * sizeof(Key))
        if len(counts) != count:
            free(keys)
            raise ValueError(f"{len(counts)} counts do not fit {count} cuts")
        try:
            if keys == NULL:
                raise MemoryError
            narrow_cuts = _checked_cuts(cuts, PyBytes_GET_SIZE(data))
            narrow_counts = _checked_cuts(counts, len(ids))
            kept = narrow(ids, &size)
            self._digest(<const unsigned char *>PyBytes_AS_STRING(data), narrow_cuts, count, 0, keys)
            with cython.critical_section(self):
                self._insert(keys, narrow_counts, count, kept)
        finally:
            free(narrow_cuts)
            free(narrow_counts)
            free(kept)
            free(keys)

    cdef void _digest(
        self, const unsigned char *data, const int64_t *cuts, int64_t count, int flag, Key *keys
    ) noexcept:
        if count and cuts[count - 1] >= LONG_TEXT:
            with nogil:
                _digest_all(self.secret, data, cuts, count, flag, keys)
        else:
            _digest_all(self.secret, data, cuts, count, flag, keys)

    cdef object _lookup(self, const Key *keys, int64_t count):
        """Return ``(number, ids)`` of the last known key, or None."""
        cdef Node *node = NULL
        cdef Node *part
        cdef int64_t number = count, total = 0
        cdef int32_t *ids = NULL
        # Ids are copied first: a list that is being made can wake the garbage collector, and that any code.
        with cython.critical_section(self):
            while number > 0 and node == NULL:
                number -= 1
                node = self._find(&keys[number])
            if node == NULL:
                self.misses += 1
            else:
                self.hits += 1
                total = node.total
                ids = <int32_t *>malloc((total + 1) * sizeof(int32_t))
                part = node
                while part != NULL and ids != NULL:
                    memcpy(ids + part.total - part.count, _ids_of(part), part.count * sizeof(int32_t))
                    part = part.parent
                self._touch(node)
        if node == NULL:
            return None
        if ids == NULL:
            raise MemoryError
        try:
            return number, id_list(ids, total)
        finally:
            free(ids)

    cdef void _insert(self, const Key *keys, const int64_t *counts, int64_t count, const int32_t *ids) noexcept:
        cdef Node *node
        cdef Node *parent = NULL
        cdef int64_t number, start
        for number in range(count):
            node = self._find(&keys[number])
            if node == NULL:
                start = parent.total if parent != NULL else 0
                # Only a collision could have made the known beginning longer than this one.
                if counts[number] < start:
                    break
                node = self._add(&keys[number], parent, ids + start, counts[number] - start)
                if node == NULL:
                    break
            parent = node
        if parent != NULL:
            self._touch(parent)

    cdef Node *_find(self, const Key *key) noexcept:
        cdef Node *node = self.buckets[key.low & (self.bucket_count - 1)]
        while node != NULL:
            if node.key.low == key.low and node.key.high == key.high and node.key.size == key.size:
                return node
            node = node.chained
        return NULL

    cdef Node *_add(self, const Key *key, Node *parent, const int32_t *ids, int64_t count) noexcept:
        """Add a node just behind its parent; NULL when it does not fit."""
        cdef Node *node
        cdef Node **bucket
        if not self._make_room(_cost(count), parent) or self._grow() < 0:
            return NULL
        node = <Node *>malloc(sizeof(Node) + count * sizeof(int32_t))
        if node == NULL:
            return NULL
        bucket = &self.buckets[key.low & (self.bucket_count - 1)]
        node.key = key[0]
        node.parent = parent
        node.count = count
        node.total = count + (parent.total if parent != NULL else 0)
        if count:
            memcpy(_ids_of(node), ids, count * sizeof(int32_t))
        node.chained = bucket[0]
        bucket[0] = node
        self._link_behind(node, parent)
        self.entries += 1
        self.nbytes += _cost(count)
        return node

    cdef bint _make_room(self, int64_t size, Node *parent) noexcept:
        """Let the oldest go until ``size`` more bytes fit; ``parent`` must stay."""
        if size > self.max_bytes:
            return False
        while self.nbytes + size > self.max_bytes or (self.max_entries and self.entries >= self.max_entries):
            if self.oldest == parent:
                return False
            self._evict()
            self.evictions += 1
        return True

    cdef int _grow(self) noexcept:
        """Keep the buckets at least as many as the nodes."""
        cdef uint64_t count = 2 * self.bucket_count, at
        cdef Node **buckets
        cdef Node *node
        cdef Node *rest
        if <uint64_t>self.entries < self.bucket_count:
            return 0
        buckets = <Node **>calloc(count, sizeof(void *))
        if buckets == NULL:
            return -1
        for at in range(self.bucket_count):
            node = self.buckets[at]
            while node != NULL:
                rest = node.chained
                node.chained = buckets[node.key.low & (count - 1)]
                buckets[node.key.low & (count - 1)] = node
                node = rest
        free(self.buckets)
        self.buckets = buckets
        self.bucket_count = count
        return 0

    cdef void _evict(self) noexcept:
        """Drop the oldest node, which has no children."""
        cdef Node *node = self.oldest
        cdef Node **link = &self.buckets[node.key.low & (self.bucket_count - 1)]
        while link[0] != node:
            link = &link[0].chained
        link[0] = node.chained
        self._unlink(node)
        self.entries -= 1
        self.nbytes -= _cost(node.count)
        free(node)

    cdef void _unlink(self, Node *node) noexcept:
        if node.newer != NULL:
            node.newer.older = node.older
        else:
            self.newest = node.older
        if node.older != NULL:
            node.older.newer = node.newer
        else:
            self.oldest = node.newer

    cdef void _link_behind(self, Node *node, Node *newer) noexcept:
        """Put ``node`` next to ``newer`` on its older side; in front of all for NULL."""
        cdef Node *older = newer.older if newer != NULL else self.newest
        node.newer = newer
        node.older = older
        if newer != NULL:
            newer.older = node
        else:
            self.newest = node
        if older != NULL:
            older.newer = node
        else:
            self.oldest = node

    cdef void _touch(self, Node *node) noexcept:
        """Move a node and then its ancestors to the front."""
        while node != NULL:
            self._unlink(node)
            self._link_behind(node, NULL)
            node = node.parent


cdef list _find_in_array(const uint32_t[::1] ids, const unsigned char *flags, Py_ssize_t size):
    """As ``find_ids``, mostly without the GIL: these are many."""
    cdef Py_ssize_t at = 0, each, count, end = ids.shape[0]
    cdef Py_ssize_t[FOUND] places
    cdef list found = []
    while at < end:
        with nogil:
            count = 0
            while at < end and count < FOUND:
                if ids[at] < <size_t>size and flags[ids[at]]:
                    places[count] = at
                    count += 1
                at += 1
        for each in range(count):
            found.append(places[each])
    return found


def find_ids(ids not None, bytes wanted not None):
    """Return the positions in ``ids`` of those whose byte in ``wanted`` is not 0 (ids beyond it are not wanted)."""
    cdef const unsigned char *flags = <const unsigned char *>PyBytes_AS_STRING(wanted)
    cdef Py_ssize_t at, size = PyBytes_GET_SIZE(wanted)
    cdef long long token
    cdef list found = []
    cdef list few
    if PyObject_CheckBuffer(ids):
        return _find_in_array(ids, flags, size)
    few = ids
    for at in range(len(few)):
        token = few[at]
        if 0 <= token < size and flags[token]:
            found.append(at)
    return found
