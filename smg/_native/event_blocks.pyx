"""The blocks an engine has told it holds, kept in the exact plane of the prefix index (spec routing 2.3, 3).

Engines name a block by a hash of their own. Two private maps lead from there to the index: name → prefix and depth, and
prefix → how many names it has, as two names may mean the same tokens. What is told twice counts once; a name that comes
back with other tokens moves, and leaves nothing behind.

A part of the table that somebody else sits on cannot be changed, and waiting without end is no answer. A prefix to be
taken out of it stays in the second map without names, as owed, until ``settle`` finds the part free.
"""

from cpython.list cimport PyList_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from smg._native.prefix_index cimport PrefixIndex
from smg._native.prefix_keys cimport chain, content_of, narrow_ids, salted
from smg._native.prefix_table cimport EXACT, PATIENTLY, SHORTLY

cdef extern from "Python.h":
    PyObject *PyList_GET_ITEM(object values, Py_ssize_t at)
    unsigned long long PyLong_AsUnsignedLongLongMask(PyObject *value) except? 0xFFFFFFFFFFFFFFFF


cdef struct Pair:
    uint64_t key
    uint64_t value  # of a name: its prefix
    uint32_t extra  # of a name: its depth, from 1; of a prefix: how many names it has
    uint16_t taken
    uint16_t owed  # of a prefix without names: the index has not been told yet


cdef struct Map:
    Pair *pairs
    uint64_t mask
    uint64_t count


cdef inline uint64_t _home(const Map *map, uint64_t key) noexcept nogil:
    return ((key * <uint64_t>0x9E3779B97F4A7C15) >> 20) & map.mask


cdef Pair *_find(const Map *map, uint64_t key) noexcept nogil:
    """The pair of ``key``, or the free one it would take; NULL while there is no memory."""
    cdef uint64_t at = _home(map, key)
    if map.pairs == NULL:
        return NULL
    while map.pairs[at].taken and map.pairs[at].key != key:
        at = (at + 1) & map.mask
    return map.pairs + at


cdef Pair *_take(Map *map, uint64_t key) noexcept nogil:
    """The pair of ``key``, made when new; NULL when out of memory."""
    cdef Map larger
    cdef uint64_t at, places
    cdef Pair *pair
    if map.pairs == NULL or 4 * (map.count + 1) > 3 * (map.mask + 1):
        places = 64 if map.pairs == NULL else 2 * (map.mask + 1)
        larger = Map(<Pair *>calloc(places, sizeof(Pair)), places - 1, map.count)
        if larger.pairs == NULL:
            return NULL
        for at in range(0 if map.pairs == NULL else map.mask + 1):
            if map.pairs[at].taken:
                _find(&larger, map.pairs[at].key)[0] = map.pairs[at]
        free(map.pairs)
        map[0] = larger
    pair = _find(map, key)
    if not pair.taken:
        pair[0] = Pair(key, 0, 0, 1, 0)
        map.count += 1
    return pair


cdef void _drop(Map *map, Pair *pair) noexcept nogil:
    """Free a pair and close the gap behind it."""
    cdef uint64_t gap = pair - map.pairs, at = gap, home
    map.count -= 1
    while True:
        at = (at + 1) & map.mask
        if not map.pairs[at].taken:
            break
        home = _home(map, map.pairs[at].key)
        if ((at - home) & map.mask) >= ((at - gap) & map.mask):
            map.pairs[gap] = map.pairs[at]
            gap = at
    map.pairs[gap].taken = 0


cdef uint64_t *_names(list hashes) except NULL:
    cdef int64_t at, count = PyList_GET_SIZE(hashes)
    cdef uint64_t *names = <uint64_t *>malloc((count + 1) * sizeof(uint64_t))
    if names == NULL:
        raise MemoryError
    try:
        for at in range(count):
            names[at] = PyLong_AsUnsignedLongLongMask(PyList_GET_ITEM(hashes, at))
    except BaseException:
        free(names)
        raise
    return names


cdef class EventBlocks:
    cdef PrefixIndex _index
    cdef Map _names
    cdef Map _prefixes
    cdef uint64_t _salt, _ticket
    cdef int64_t _patience
    cdef readonly int64_t slot
    cdef readonly int64_t block
    cdef readonly int64_t lost
    cdef readonly int64_t owed

    def __cinit__(self, PrefixIndex index not None, int64_t slot, int64_t block, uint64_t salt=0):
        if block < 1:
            raise ValueError(f"a block cannot have {block} tokens")
        self._index = index
        self.slot = slot
        self.block = block
        self._salt = salt
        self._index.renew(slot, EXACT)
        self._ticket = self._index.ticket(slot, EXACT)

    def __dealloc__(self):
        free(self._names.pairs)
        free(self._prefixes.pairs)

    def __len__(self):
        return self._prefixes.count - self.owed

    def __contains__(self, name):
        cdef Pair *pair = _find(&self._names, <uint64_t>(name & 0xFFFFFFFFFFFFFFFF))
        return pair != NULL and pair.taken != 0

    def clear(self):
        # A worker that has left has no ticket, and its slot may be another's.
        if self._index.ticket(self.slot, EXACT) == self._ticket:
            self._index.renew(self.slot, EXACT)
            self._ticket = self._index.ticket(self.slot, EXACT)
        free(self._names.pairs)
        free(self._prefixes.pairs)
        self._names = Map(NULL, 0, 0)
        self._prefixes = Map(NULL, 0, 0)
        self.lost = 0
        self.owed = 0

    def store(self, hashes, tokens, parent=None, uint64_t adapter=0):
        cdef list given = list(hashes), ids = list(tokens)
        cdef int64_t count = PyList_GET_SIZE(given)
        cdef uint64_t prefix = 0
        cdef int64_t depth = 0, done
        cdef Pair *pair
        cdef uint64_t *names
        cdef uint32_t *narrow
        if PyList_GET_SIZE(ids) != count * self.block:
            raise ValueError(f"{len(ids)} tokens are not {count} blocks of {self.block}")
        if parent is not None:
            pair = _find(&self._names, <uint64_t>(parent & 0xFFFFFFFFFFFFFFFF))
            if pair == NULL or not pair.taken:
                return False
            prefix = pair.value
            depth = pair.extra
        narrow = narrow_ids(ids, count * self.block)
        try:
            names = _names(given)
        except BaseException:
            free(narrow)
            raise
        self._patience = PATIENTLY
        with nogil:
            done = self._store(names, narrow, count, prefix, depth, adapter)
        free(names)
        free(narrow)
        if done < count:
            raise MemoryError
        return True

    cdef int64_t _store(
        self,
        const uint64_t *names,
        const uint32_t *tokens,
        int64_t count,
        uint64_t prefix,
        int64_t depth,
        uint64_t adapter,
    ) noexcept nogil:
        """Enter a chain of blocks; returns how many, fewer only when out of memory."""
        cdef int64_t at
        cdef uint64_t content, was
        cdef bint moved
        cdef Pair *name
        cdef Pair *uses
        for at in range(count):
            content = content_of(
                <const unsigned char *>(tokens + at * self.block), 4 * self.block, adapter if depth == 0 else 0
            )
            prefix = content if depth == 0 else chain(prefix, content)
            name = _take(&self._names, names[at])
            if name == NULL:
                return at
            if name.extra and name.value == prefix:
                depth += 1
                continue
            was = name.value
            moved = name.extra != 0
            name.value = prefix
            name.extra = <uint32_t>depth + 1
            uses = _take(&self._prefixes, prefix)
            if uses == NULL:
                return at
            uses.extra += 1
            if uses.owed:
                uses.owed = 0
                self.owed -= 1
            if uses.extra == 1 and not self._hold(prefix):
                self.lost += 1
            if moved:
                self._leave(was)
            depth += 1
        return count

    cdef void _leave(self, uint64_t prefix) noexcept nogil:
        """One name fewer for a prefix."""
        cdef Pair *uses = _find(&self._prefixes, prefix)
        if uses == NULL or not uses.taken or uses.owed:
            return
        uses.extra -= 1
        if uses.extra:
            return
        if self._unhold(prefix):
            _drop(&self._prefixes, uses)
        else:
            uses.owed = 1
            self.owed += 1

    def remove(self, hashes):
        cdef list given = list(hashes)
        cdef int64_t at, count = PyList_GET_SIZE(given)
        cdef uint64_t *names = _names(given)
        cdef Pair *name
        cdef uint64_t prefix
        self._patience = PATIENTLY
        with nogil:
            for at in range(count):
                name = _find(&self._names, names[at])
                if name != NULL and name.taken:
                    prefix = name.value
                    _drop(&self._names, name)
                    self._leave(prefix)
        free(names)

    cdef bint _hold(self, uint64_t prefix) noexcept nogil:
        cdef bint done = self._index.hold(self._ticket, salted(prefix, self._salt), self._patience)
        if not done:
            self._patience = SHORTLY
        return done

    cdef bint _unhold(self, uint64_t prefix) noexcept nogil:
        """False while the prefix' part of the index cannot be had. Who has waited in vain once hurries in the rest of the call."""
        cdef bint done = self._index.unhold(self._ticket, salted(prefix, self._salt), self._patience)
        if not done:
            self._patience = SHORTLY
        return done

    def settle(self):
        cdef uint64_t at
        cdef Pair *pair
        self._patience = PATIENTLY
        with nogil:
            for at in range(0 if self._prefixes.pairs == NULL or not self.owed else self._prefixes.mask + 1):
                pair = self._prefixes.pairs + at
                # Another pair may move to the place of one that is dropped.
                while pair.taken and pair.owed and self._unhold(pair.key):
                    _drop(&self._prefixes, pair)
                    self.owed -= 1
        return self.owed == 0

    def repair(self):
        cdef uint64_t at
        cdef Pair *pair
        self.settle()
        self.lost = 0
        with nogil:
            for at in range(0 if self._prefixes.pairs == NULL else self._prefixes.mask + 1):
                pair = self._prefixes.pairs + at
                if pair.taken and not pair.owed and not self._hold(pair.key):
                    self.lost += 1
        return self.lost == 0 and self.owed == 0
