"""Circuit breakers in the shared region (spec routing 4.4, 10.3).

A breaker is a word that routing looks at (its gate, see ``gate.pxd``) and four words of record beside its worker:

    failures in a row (bits 0-19) and the time of the last one (bits 20-63)
    two halves of the sliding window: successes (bits 0-19), failures (bits 20-39), number of the half (bits 40-63)
    until when failures do not count

Every change is one compare-and-swap. A process that dies between two of them leaves a count that is one too low.
"""

from libc.stdint cimport int64_t

from smg._native.atomics cimport c_load, c_store, c_swap, cell
from smg._native.gate cimport (
    gate_admits,
    gate_epoch,
    gate_make,
    gate_now,
    gate_permits,
    gate_state,
    gate_successes,
    gate_time,
)
from smg._native.region cimport Region

CLOSED = 0
OPEN = 1
HALF_OPEN = 2

FAILED = -1
NEUTRAL = 0
SUCCEEDED = 1

REFUSED = -1

cdef enum:
    _CLOSED = 0
    _OPEN = 1
    _HALF = 2
    _MOST = (1 << 20) - 1
    _AGE = (1 << 24) - 1
    _GRACE = 2000


cdef class Breakers:
    cdef Region _region
    cdef int64_t _failures, _successes, _pause, _window

    def __init__(self, Region region not None, int64_t failures, int64_t successes, int64_t pause, int64_t window):
        for name, value, limit in (
            ("failures", failures, _MOST),
            ("successes", successes, 100),
            ("pause", pause, 1 << 32),
            ("window", window, 1 << 32),
        ):
            if not 1 <= value <= limit:
                raise ValueError(f"{name} must be between 1 and {limit}, not {value}")
        self._region = region
        self._failures = failures
        self._successes = successes
        self._pause = pause
        self._window = window

    def enter(self, int64_t slot, now=None):
        cdef cell *gate = <cell *>self._region._gate(slot)
        cdef int64_t was, time = _time(now)
        cdef int epoch, permits
        while True:
            was = <int64_t>c_load(gate)
            if gate_state(was) == _CLOSED:
                return 0
            if not gate_admits(was, time):
                return REFUSED
            if gate_state(was) == _HALF and gate_permits(was) > 0:
                epoch = gate_epoch(was)
                permits = gate_permits(was) - 1
                if c_swap(
                    gate, <cell>was, <cell>gate_make(_HALF, permits, gate_successes(was), epoch, gate_time(was))
                ):
                    return epoch + 1
            else:
                # The pause is over, or so are the permits' owners: a new round.
                epoch = (gate_epoch(was) + 1) & 255
                permits = <int>self._successes - 1
                if c_swap(gate, <cell>was, <cell>gate_make(_HALF, permits, 0, epoch, time + self._pause)):
                    return epoch + 1

    def leave(self, int64_t slot, int64_t permit, int64_t outcome, now=None):
        cdef cell *gate = <cell *>self._region._gate(slot)
        cdef int64_t was, then, time = _time(now)
        if permit == 0:
            if gate_state(<int64_t>c_load(gate)) != _CLOSED or not self._trips(slot, outcome, time):
                return None
        while True:
            was = <int64_t>c_load(gate)
            if permit == 0:
                if gate_state(was) != _CLOSED:
                    return None
                then = gate_make(_OPEN, 0, 0, gate_epoch(was), time + self._pause)
            else:
                if gate_state(was) != _HALF or gate_epoch(was) + 1 != permit:
                    return None
                then = self._judge(was, outcome, time)
            if c_swap(gate, <cell>was, <cell>then):
                break
        if gate_state(was) == gate_state(then):
            return None
        # Closed ones are not looked at again before they are told of.
        self._region.note_change()
        self._forget(slot)
        return gate_state(was), gate_state(then)

    cdef int64_t _judge(self, int64_t was, int64_t outcome, int64_t time) noexcept:
        """The gate after a request with a permit."""
        cdef int successes = gate_successes(was) + (outcome > 0)
        if outcome < 0:
            return gate_make(_OPEN, 0, 0, gate_epoch(was), time + self._pause)
        if successes >= self._successes:
            return gate_make(_CLOSED, 0, 0, gate_epoch(was), 0)
        return gate_make(_HALF, gate_permits(was) + 1, successes, gate_epoch(was), gate_time(was))

    cdef bint _trips(self, int64_t slot, int64_t outcome, int64_t time) except -1:
        """Book an outcome while the breaker is closed; whether it has to open."""
        cdef cell *record = <cell *>self._region._record(slot)
        if outcome == 0:
            return False
        if outcome > 0:
            if c_load(record):
                c_store(record, 0)
            self._count(record + 1, time, 1)
            return False
        if time < <int64_t>c_load(record + 3):
            return False
        cdef int64_t row = self._in_a_row(record, time)
        self._count(record + 1, time, <cell>1 << 20)
        cdef int64_t good = 0, bad = 0
        self._sum(record + 1, time, &good, &bad)
        return row >= self._failures or (bad >= self._failures and bad >= good)

    cdef int64_t _in_a_row(self, cell *record, int64_t time) noexcept:
        """Count one more failure in a row, unless the last one is too long ago to belong to it."""
        cdef cell was
        cdef int64_t count
        while True:
            was = c_load(record)
            count = <int64_t>(was & _MOST)
            if time - <int64_t>(was >> 20) > self._window:
                count = 0
            count = min(count + 1, <int64_t>_MOST)
            if c_swap(record, was, <cell>time << 20 | <cell>count):
                return count

    cdef void _count(self, cell *halves, int64_t time, cell one) noexcept:
        cdef cell number = <cell>(time // ((self._window + 1) // 2)) & _AGE
        cdef cell *half = halves + (number & 1)
        cdef cell was, then
        while True:
            was = c_load(half)
            then = was if was >> 40 == number else number << 40
            # A half that is full stays as it is: the ratio is what counts.
            if then & _MOST == _MOST or then >> 20 & _MOST == _MOST:
                return
            if c_swap(half, was, then + one):
                return

    cdef void _sum(self, const cell *halves, int64_t time, int64_t *good, int64_t *bad) noexcept:
        cdef cell number = <cell>(time // ((self._window + 1) // 2)) & _AGE
        cdef cell word
        cdef int at
        for at in range(2):
            word = c_load(halves + at)
            if word >> 40 == number or word >> 40 == (number - 1 & _AGE):
                good[0] += <int64_t>(word & _MOST)
                bad[0] += <int64_t>(word >> 20 & _MOST)

    cdef int _forget(self, int64_t slot) except -1:
        cdef cell *record = <cell *>self._region._record(slot)
        cdef int at
        for at in range(3):
            c_store(record + at, 0)
        return 0

    def state(self, int64_t slot):
        return gate_state(<int64_t>c_load(<cell *>self._region._gate(slot)))

    def failures(self, int64_t slot):
        return <int64_t>(c_load(<cell *>self._region._record(slot)) & _MOST)

    def wait(self, int64_t slot, now=None):
        cdef int64_t gate = <int64_t>c_load(<cell *>self._region._gate(slot)), time = _time(now)
        return 0 if gate_admits(gate, time) else gate_time(gate) - time

    def reset(self, int64_t slot, now=None):
        cdef cell *gate = <cell *>self._region._gate(slot)
        cdef int64_t was
        while True:
            was = <int64_t>c_load(gate)
            # A new epoch: permits of before decide nothing any more.
            if c_swap(gate, <cell>was, <cell>gate_make(_CLOSED, 0, 0, gate_epoch(was) + 1, 0)):
                self._forget(slot)
                c_store(<cell *>self._region._record(slot) + 3, <cell>(_time(now) + _GRACE))
                return gate_state(was)


cdef int64_t _time(object now) except -1:
    return gate_now() if now is None else now
