"""The table below PrefixIndex: shards of 32-byte entries in shared memory, written by any process at any time.

    shard | lock | moves | size | count | limit | resets |      entry | key | approximate | exact | used |

* An entry says who holds the prefix ``key``: a bit per holder, 64 holders to an entry (a *group*; its number enters the
  key). The approximate plane is what the gateway has sent, the exact one what engines have told.
* ``used`` is tick · 2**22 + (65535 - depth) · 2**6 + group. Comparing it orders entries by last use and, within one use,
  leaves before their ancestors. A use touches all blocks of a prompt, so no ancestor is ever older than a descendant.
* ``floor`` is the table's one eviction decision: whatever was last used below it is gone from the approximate plane, at
  once, in every shard. A full shard raises it by an eighth of its own entries. Memory is taken back when a shard needs
  it. Exact holders stay: only the engine's own word removes them.
* Open addressing, no tombstones: entries move only in ``rebuild``, which grows a shard or purges it, when three quarters are taken.

**Writers** take a shard's lock: its owner's pid, by compare-and-swap, for one entry at a time. Nobody waits for it: after
a few turns the caller gets ``BUSY`` and comes back later. A lock whose owner is dead is taken over and the shard emptied:
some prefixes are forgotten, and nothing half-written is ever believed.
**Readers** take nothing. ``moves`` is odd while entries move; a reader that sees it change looks again. All else a
writer does is ordered so that any moment is true: the key of a new entry is stored last.

Spec: routing 10.3 (2, 7, 8).
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc

from smg._native.atomics cimport (
    c_alive,
    c_fence_acquire,
    c_fence_release,
    c_fetch,
    c_load,
    c_load_acquire,
    c_me,
    c_pause,
    c_raise,
    c_store,
    c_store_release,
    c_swap,
    cell,
    sched_yield,
)

cdef enum:
    APPROXIMATE = 0
    EXACT = 1
    PLANES = 2
    DONE = 0
    BUSY = 1
    FULL = 2
    GROUP_BITS = 6
    DEPTH_BITS = 16
    TICK_SHIFT = 22
    DEEPEST = 65535
    QUANTUM = 128  # entries of a page
    # Turns a request worker tries a lock for, and control, which has nothing else to do.
    SHORTLY = 64
    PATIENTLY = 100000
    _READS = 256


cdef struct Entry:
    cell key
    cell holders[2]  # by plane
    cell used


cdef struct Shard:
    cell lock
    cell moves
    cell size
    cell count
    cell limit  # no entry has ever been beyond
    cell resets
    cell purged  # the floor when it was last laid out
    cell spare


cdef struct Table:
    Shard *shards
    Entry *entries
    cell *floor
    cell bits  # of a key that choose the shard
    cell capacity  # entries of a shard


cdef struct Place:
    Entry *entry
    cell moves  # of the shard, when the entry was found


cdef inline cell used_at(cell tick, cell depth, cell group) noexcept nogil:
    return (tick << TICK_SHIFT) | ((DEEPEST - (depth if depth < DEEPEST else DEEPEST)) << GROUP_BITS) | group


cdef inline cell grouped(cell key, cell group) noexcept nogil:
    """The key of a prefix for holders of another group than the first."""
    key ^= group * <cell>0x9E3779B97F4A7C15ULL
    return key if key else 1


cdef inline cell first_size(const Table *table) noexcept nogil:
    """Entries of a shard to begin with: an eighth of what it may become."""
    return max(<cell>QUANTUM, table.capacity // (8 * QUANTUM) * QUANTUM)


cdef inline Shard *shard_of(const Table *table, cell key) noexcept nogil:
    return table.shards + (key >> (64 - table.bits))


cdef inline Entry *entries_of(const Table *table, const Shard *shard) noexcept nogil:
    return table.entries + (shard - table.shards) * table.capacity


cdef inline cell home_of(const Table *table, cell key, cell size) noexcept nogil:
    return (((key << table.bits) >> 32) * size) >> 32


cdef inline void fetch(const Table *table, cell key) noexcept nogil:
    cdef Shard *shard = shard_of(table, key)
    c_fetch(entries_of(table, shard) + home_of(table, key, c_load(&shard.size)))


cdef inline Entry *find(const Table *table, Entry *entries, cell size, cell key) noexcept nogil:
    """The entry of ``key``, or the empty one it would go to; NULL when there is neither."""
    cdef cell at = home_of(table, key, size), left = size, seen
    while left > 0:
        seen = c_load_acquire(&entries[at].key)
        if seen == key or seen == 0:
            return entries + at
        at += 1
        if at == size:
            at = 0
        left -= 1
    return NULL


cdef inline bint look(const Table *table, cell key, cell floor, cell *holders) noexcept nogil:
    """Read who holds ``key`` on both planes, without waiting for anybody. False: the shard is being moved about."""
    cdef Shard *shard = shard_of(table, key)
    cdef Entry *entries = entries_of(table, shard)
    cdef Entry *entry
    cdef cell moves, size, used
    cdef int turn
    holders[0] = 0
    holders[1] = 0
    for turn in range(_READS):
        moves = c_load_acquire(&shard.moves)
        size = c_load(&shard.size)
        if moves & 1 or size > table.capacity:
            c_pause()
            continue
        entry = find(table, entries, size, key)
        if entry == NULL or c_load(&entry.key) != key:
            holders[0] = 0
            holders[1] = 0
        else:
            # In this order: what is written anew after eviction gets its holders before its tick.
            used = c_load_acquire(&entry.used)
            holders[0] = c_load(&entry.holders[0]) if used >= floor else 0
            holders[1] = c_load(&entry.holders[1])
        c_fence_acquire()
        if c_load(&shard.moves) == moves:
            return True
    holders[0] = 0
    holders[1] = 0
    return False


cdef inline void empty(const Table *table, Shard *shard) noexcept nogil:
    """Forget all a shard holds, whatever state it is in. The caller has its lock."""
    cdef Entry *entries = entries_of(table, shard)
    cdef cell at, limit = c_load(&shard.limit)
    c_store(&shard.moves, c_load(&shard.moves) | 1)
    c_fence_release()
    for at in range(limit if limit < table.capacity else table.capacity):
        c_store(&entries[at].key, 0)
        c_store(&entries[at].holders[0], 0)
        c_store(&entries[at].holders[1], 0)
        c_store(&entries[at].used, 0)
    c_store(&shard.size, first_size(table))
    c_store(&shard.count, 0)
    c_store(&shard.resets, c_load(&shard.resets) + 1)
    c_store_release(&shard.moves, c_load(&shard.moves) + 1)


cdef inline bint acquire(const Table *table, Shard *shard, cell patience) noexcept nogil:
    """Take a shard's lock, from a dead owner too. False after ``patience`` turns in vain."""
    cdef cell turn, owner
    for turn in range(patience):
        if c_load(&shard.lock) == 0 and c_swap(&shard.lock, 0, c_me):
            return True
        c_pause()
        if turn % SHORTLY == SHORTLY - 1:
            owner = c_load(&shard.lock)
            if owner != 0 and not c_alive(owner) and c_swap(&shard.lock, owner, c_me):
                empty(table, shard)
                return True
            if turn > SHORTLY:
                sched_yield()
    return False


cdef inline void release(Shard *shard) noexcept nogil:
    c_store_release(&shard.lock, 0)


cdef inline bint rebuild(const Table *table, Shard *shard, cell size) noexcept nogil:
    """Lay out what a shard holds anew, over ``size`` entries and without what is evicted. False: out of memory."""
    cdef Entry *entries = entries_of(table, shard)
    # Made aside, so that readers are shut out for the time of a copy only.
    cdef Entry *made = <Entry *>calloc(size, sizeof(Entry))
    cdef Entry *place
    cdef Entry kept
    cdef cell at, count = 0, floor = c_load(table.floor)
    if made == NULL:
        return False
    for at in range(c_load(&shard.size)):
        kept.key = c_load(&entries[at].key)
        if kept.key == 0:
            continue
        kept.used = c_load(&entries[at].used)
        kept.holders[0] = c_load(&entries[at].holders[0]) if kept.used >= floor else 0
        kept.holders[1] = c_load(&entries[at].holders[1])
        if kept.holders[0] | kept.holders[1]:
            place = find(table, made, size, kept.key)
            place[0] = kept
            count += 1
    c_store(&shard.moves, c_load(&shard.moves) + 1)
    c_fence_release()
    c_store(&shard.limit, size)
    for at in range(size):
        c_store(&entries[at].key, made[at].key)
        c_store(&entries[at].holders[0], made[at].holders[0])
        c_store(&entries[at].holders[1], made[at].holders[1])
        c_store(&entries[at].used, made[at].used)
    c_store(&shard.size, size)
    c_store(&shard.count, count)
    c_store(&shard.purged, floor)
    c_store_release(&shard.moves, c_load(&shard.moves) + 1)
    free(made)
    return True


cdef inline cell smallest(cell *values, cell count, cell rank) noexcept nogil:
    """The value of the given rank (0: the least); reorders ``values``."""
    cdef int64_t low = 0, high = <int64_t>count - 1, left, right, wanted = <int64_t>rank
    cdef cell pivot
    while low < high:
        pivot = values[(low + high) >> 1]
        left = low
        right = high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if wanted <= right:
            high = right
        elif wanted >= left:
            low = left
        else:
            break
    return values[wanted]


cdef inline bint evict(const Table *table, Shard *shard) noexcept nogil:
    """Raise the floor over the least recently used eighth of a shard. False when nothing in it may go."""
    cdef Entry *entries = entries_of(table, shard)
    cdef cell at, count = 0, size = c_load(&shard.size), floor = c_load(table.floor), used
    cdef cell *uses = <cell *>malloc(size * sizeof(cell))
    if uses == NULL:
        return False
    for at in range(size):
        used = c_load(&entries[at].used)
        if c_load(&entries[at].key) and used >= floor and c_load(&entries[at].holders[EXACT]) == 0:
            uses[count] = used
            count += 1
    if count > 0:
        c_raise(table.floor, smallest(uses, count, min(count - 1, size // 8)) + 1)
    free(uses)
    return count > 0


cdef inline bint make_room(const Table *table, Shard *shard) noexcept nogil:
    """Make a place for one more entry: purge, else grow, else evict. The caller has the lock."""
    cdef Entry *entries = entries_of(table, shard)
    cdef cell at, live = 0, size = c_load(&shard.size), floor = c_load(table.floor)
    if size == table.capacity or c_load(&shard.purged) != floor:
        for at in range(size):
            if c_load(&entries[at].holders[EXACT]) or (
                c_load(&entries[at].holders[APPROXIMATE]) and c_load(&entries[at].used) >= floor
            ):
                live += 1
        if 10 * live < 7 * size:
            return rebuild(table, shard, size)
    if size < table.capacity:
        # Quickly at first; later in smaller steps, as each is memory.
        size += size // 2 if size < 2 * first_size(table) else size // 4
        return rebuild(table, shard, min(table.capacity, (size + QUANTUM - 1) // QUANTUM * QUANTUM))
    if not evict(table, shard) or not rebuild(table, shard, size):
        return False
    return (c_load(&shard.count) + 1) * 4 <= size * 3


cdef inline int put(
    const Table *table, cell key, cell bit, int plane, cell used, Place *place, cell patience
) noexcept nogil:
    """Enter a holder of ``key``; ``place`` is where it was last seen to belong. ``FULL``: no room, or evicted already."""
    cdef Shard *shard = shard_of(table, key)
    cdef Entry *entries = entries_of(table, shard)
    cdef Entry *entry = place.entry
    cdef cell seen, floor
    cdef int outcome = DONE
    if not acquire(table, shard, patience):
        return BUSY
    seen = 0 if entry == NULL else c_load(&entry.key)
    if entry == NULL or c_load(&shard.moves) != place.moves or (seen != 0 and seen != key):
        entry = find(table, entries, c_load(&shard.size), key)
        seen = 0 if entry == NULL else c_load(&entry.key)
    floor = c_load(table.floor)
    if plane == APPROXIMATE and used < floor:
        outcome = FULL
    elif seen == key:
        if plane == APPROXIMATE and c_load(&entry.used) < floor:
            # Its former holders are evicted; they must not come back with the new tick.
            c_store(&entry.holders[APPROXIMATE], bit)
        else:
            c_store(&entry.holders[plane], c_load(&entry.holders[plane]) | bit)
        if plane == APPROXIMATE and c_load(&entry.used) < used:
            c_store_release(&entry.used, used)
    else:
        if entry == NULL or (c_load(&shard.count) + 1) * 4 > c_load(&shard.size) * 3:
            entry = NULL
            if make_room(table, shard) and (plane == EXACT or used >= c_load(table.floor)):
                entry = find(table, entries, c_load(&shard.size), key)
        if entry == NULL:
            outcome = FULL
        else:
            c_store(&entry.holders[plane], bit)
            c_store(&entry.used, used)
            c_store(&shard.count, c_load(&shard.count) + 1)
            c_store_release(&entry.key, key)
    release(shard)
    return outcome


cdef inline void seek(const Table *table, cell key, Place *place) noexcept nogil:
    """Find where ``key`` belongs; no place while its shard is on the move."""
    cdef Shard *shard = shard_of(table, key)
    cdef cell size = c_load(&shard.size)
    place.entry = NULL
    place.moves = c_load_acquire(&shard.moves)
    if not place.moves & 1 and size <= table.capacity:
        place.entry = find(table, entries_of(table, shard), size, key)


cdef inline bint touch(
    const Table *table, cell key, cell bit, cell used, cell floor, const Place *place
) noexcept nogil:
    """Note the use of an entry that has the approximate holder already. False: it has not, or has moved."""
    cdef cell was, holders
    if place.entry == NULL or c_load_acquire(&place.entry.key) != key:
        return False
    was = c_load_acquire(&place.entry.used)
    holders = c_load(&place.entry.holders[APPROXIMATE])
    c_fence_acquire()
    if was < floor or not holders & bit or c_load(&shard_of(table, key).moves) != place.moves:
        return False
    # A swap, not a store: by now the place may belong to somebody else.
    return was >= used or c_swap(&place.entry.used, was, used)


cdef inline int take(const Table *table, cell key, cell bit, int plane, cell patience) noexcept nogil:
    """Remove a holder of ``key``. The entry itself goes with the next purge."""
    cdef Shard *shard = shard_of(table, key)
    cdef Entry *entry
    if not acquire(table, shard, patience):
        return BUSY
    entry = find(table, entries_of(table, shard), c_load(&shard.size), key)
    if entry != NULL and c_load(&entry.key) == key:
        c_store(&entry.holders[plane], c_load(&entry.holders[plane]) & ~bit)
    release(shard)
    return DONE
