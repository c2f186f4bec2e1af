"""What all processes of a gateway count together to keep its limits: admitted and waiting requests, and their rate.

Spec: routing 4.1, 10.3.
"""

from smg._native.region_memory cimport H_RATE, H_TICKETS, P_HEAD, P_REQUESTS, P_WAITING, PROCESS_ROW
from smg._native.region_workers cimport RegionWorkers
from smg._native.words cimport w_add_total, w_load_acquire, w_load_total, w_store_release, w_swap, word


cdef inline word _rate_wait(word paid, word now, word interval, word burst) noexcept nogil:
    """How long until one more token leaves the bucket at most ``burst`` behind."""
    return max(<word>0, max(paid, now) + interval - now - burst * interval)


cdef class RegionLimits(RegionWorkers):
    # admitted

    def requests_add(self, word process, word delta):
        # Sequentially consistent: of two processes that add at once, at least one sees both.
        w_add_total(self._process(process) + P_REQUESTS, delta)
        return self.requests_total()

    def requests_total(self):
        return self._row_sum(P_REQUESTS)

    # waiting for admission

    def waiting_add(self, word process, word delta):
        w_add_total(self._process(process) + P_WAITING, delta)
        return self._row_sum(P_WAITING)

    def waiting_total(self):
        return self._row_sum(P_WAITING)

    def waiting_ticket(self):
        self._open()
        return w_add_total(self._base + H_TICKETS, 1) + 1

    def waiting_head_set(self, word process, word ticket):
        w_store_release(self._process(process) + P_HEAD, ticket)

    def waiting_head(self):
        self._open()
        cdef word head = 0, ticket, i
        for i in range(self._processes):
            ticket = w_load_acquire(self._process_rows + i * PROCESS_ROW + P_HEAD)
            if ticket and (head == 0 or ticket < head):
                head = ticket
        return head

    # rate

    def rate_wait(self, word now, word interval, word burst):
        self._open()
        return _rate_wait(w_load_total(self._base + H_RATE), now, interval, burst)

    def rate_take(self, word now, word interval, word burst):
        self._open()
        cdef word *place = self._base + H_RATE
        cdef word before, wait
        while True:
            before = w_load_total(place)
            wait = _rate_wait(before, now, interval, burst)
            if wait > 0 or w_swap(place, before, max(before, now) + interval):
                return wait
