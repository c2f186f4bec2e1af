"""The worker table of the region, and what is in flight on each worker (spec routing 10.3; 4.4: gates).

What every decision reads of all workers lies in columns: statuses, gates, what was computed lately, and for each process
a row of the in-flight matrix.
"""

from libc.stdint cimport int64_t

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
from smg._native.region_memory cimport H_CHANGES, MAX_PROCESSES, P_ROUTES, PROCESS_ROW, WORKER_ROW, RegionMemory
from smg._native.stretches cimport Stretch
from smg._native.words cimport column_sum, w_add, w_add_total, w_load, w_load_acquire, w_store, word

STATUS = 0
FAILURES = 1
PROCESSED = 2
LAST_OK = 3
RUNNING = 4
WAITING = 5
USAGE = 6
QUEUED_TOKENS = 7
COMPUTED = 8

# Words of a worker's row, and what is not one of them but a column.
cdef enum:
    _FIELDS = 9
    _GENERATION = 8
    _RECORD = 9  # what the breaker keeps: four words
    _STATUS = 0
    _COMPUTED = 8

cdef enum:
    _READY = 2
    _GATE_STATE = 3
    # Words whose sums are taken at once, and below how many that takes longer than one by one.
    _BATCH = 64
    _FEW = 8
    _MOST = 0x7FFFFFFF


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


cdef class RegionWorkers(RegionMemory):
    # slots

    cdef word *_slot(self, word slot) except NULL:
        self._open()
        if not 0 <= slot < self._workers:
            raise IndexError(f"worker slot {slot} of {self._workers}")
        return self._slots + slot * WORKER_ROW

    cdef word *_field(self, word slot, word field) except NULL:
        if not 0 <= field < _FIELDS:
            raise IndexError(f"worker field {field} of {_FIELDS}")
        cdef word *row = self._slot(slot)
        if field == _STATUS:
            return self._statuses + slot
        return self._computed + slot if field == _COMPUTED else row + field

    def worker_get(self, word slot, word field):
        return w_load(self._field(slot, field))

    def worker_set(self, word slot, word field, word value):
        w_store(self._field(slot, field), value)
        if field == _STATUS:
            self.note_change()

    def worker_add(self, word slot, word field, word delta):
        cdef word after = w_add(self._field(slot, field), delta) + delta
        if field == _STATUS:
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

    # what is in flight

    def inflight_add(self, word process, word slot, word requests, word tokens):
        cdef word *row = self._process(process)
        self._slot(slot)
        if not (
            -LOAD_MOST_REQUESTS <= requests <= LOAD_MOST_REQUESTS and -LOAD_MOST_TOKENS <= tokens <= LOAD_MOST_TOKENS
        ):
            raise ValueError(f"{requests} requests with {tokens} tokens are more than can be counted at once")
        w_store(row + P_ROUTES, 1)
        w_add(self._matrix + process * self._matrix_row + slot, load_made(requests, tokens))

    def inflight(self, word slot):
        self._slot(slot)
        cdef word load = column_sum(self._matrix + slot, self._processes, self._matrix_row)
        return load_requests(load), load_tokens(load)

    def inflight_many(self, slots):
        cdef list out = []
        cdef word slot
        for slot in slots:
            self._slot(slot)
            out.append(load_requests(column_sum(self._matrix + slot, self._processes, self._matrix_row)))
        return out

    # all workers at once

    cdef int64_t changes(self) noexcept nogil:
        return w_load_acquire(self._base + H_CHANGES)

    cdef void note_change(self) noexcept nogil:
        w_add_total(self._base + H_CHANGES, 1)

    cdef int64_t muster(
        self, const int *slots, int64_t count, const char *skip, int *numbers, int *places, bint *moved, bint *steady
    ) noexcept nogil:
        cdef int64_t at, found = 0
        cdef const word *statuses = self._statuses
        cdef const word *gates = self._gates
        cdef word gate, now = 0
        cdef int different = 0, unsteady = 0, before, ready
        for at in range(count):
            ready = (not skip[at]) & (w_load(statuses + slots[at]) == _READY)
            gate = w_load(gates + slots[at])
            if gate & _GATE_STATE:
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
        cdef const word *rows[MAX_PROCESSES]
        cdef word sums[_BATCH]
        cdef Stretch part
        cdef Loads all
        cdef int64_t number, row, at, some, done = 0, filled = 0, routing = self._routing(rows)
        all.requests = all.tokens = 0
        all.least = _MOST
        all.most = 0
        for number in range(count):
            part = stretches[number]
            while part.count > 0:
                some = min(<int64_t>part.count, _BATCH - filled)
                if some < _FEW:
                    for at in range(filled, filled + some):
                        sums[at] = 0
                        for row in range(routing):
                            sums[at] += w_load(rows[row] + part.slot + at - filled)
                else:
                    load_sums(sums + filled, rows, routing, part.slot, some)
                part.slot += <int>some
                part.count -= <int>some
                filled += some
                if filled == _BATCH:
                    _take_apart(sums, filled, requests + done, tokens + done, &all)
                    done += filled
                    filled = 0
        _take_apart(sums, filled, requests + done, tokens + done, &all)
        return all

    cdef int64_t _routing(self, const word **rows) noexcept nogil:
        """The rows in which anything was ever counted; control and the supervisor never route."""
        cdef word process
        cdef int64_t found = 0
        for process in range(self._processes):
            if w_load(self._process_rows + process * PROCESS_ROW + P_ROUTES):
                rows[found] = self._matrix + process * self._matrix_row
                found += 1
        return found

    cdef word field_at(self, word slot, word field) noexcept nogil:
        return w_load(self._slots + slot * WORKER_ROW + field)

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
