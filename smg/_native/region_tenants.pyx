"""Buckets of tenants in the region: what each has used up lately, over all processes (spec routing 9, 10.1).

A row has a tag, the hash of its tenant's name, and a word for each of its buckets: when all that was taken from it is
made up for. A tenant whose buckets are full again is as good as one that never came, so its row is free for the next
one; nothing has to be cleared or reaped. A tenant finds its row within ``_REACH`` of where its tag points. When all of
those are in use it shares the first: limits become narrower then, never wider.

A row may be given to another tenant just when the former one takes from it: the amount is booked on the wrong one, once.
"""

from smg._native.region_limits cimport RegionLimits
from smg._native.region_memory cimport TENANT_ROW, TENANTS
from smg._native.words cimport w_load, w_load_total, w_swap, word

REQUESTS = 0
TOKENS = 1

cdef enum:
    _BUCKETS = 2
    _REACH = 16


cdef class RegionTenants(RegionLimits):
    def tenant_row(self, word tag, word now):
        self._open()
        cdef word *row
        cdef word at, number, seen
        if tag <= 0:
            raise ValueError(f"{tag} is not a tag")
        for at in range(_REACH):
            if w_load(self._tenants + (tag + at) % TENANTS * TENANT_ROW) == tag:
                return (tag + at) % TENANTS
        for at in range(_REACH):
            number = (tag + at) % TENANTS
            row = self._tenants + number * TENANT_ROW
            seen = w_load(row)
            if (seen == 0 or max(w_load(row + 1), w_load(row + 2)) <= now) and w_swap(row, seen, tag):
                return number
        return tag % TENANTS

    def tenant_wait(self, word row, word bucket, word now, word cost, word period):
        return max(<word>0, max(w_load_total(self._bucket(row, bucket)), now) + cost - now - period)

    def tenant_take(self, word row, word bucket, word now, word cost, word period):
        cdef word *place = self._bucket(row, bucket)
        cdef word before, wait
        while True:
            before = w_load_total(place)
            wait = max(before, now) + cost - now - period
            if wait > 0:
                return wait
            if w_swap(place, before, max(before, now) + cost):
                return 0

    def tenant_charge(self, word row, word bucket, word now, word cost):
        cdef word *place = self._bucket(row, bucket)
        cdef word before
        while True:
            before = w_load_total(place)
            if w_swap(place, before, max(before, now) + cost):
                return

    cdef word *_bucket(self, word row, word bucket) except NULL:
        self._open()
        if not 0 <= row < TENANTS or not 0 <= bucket < _BUCKETS:
            raise IndexError(f"bucket {bucket} of row {row} of {TENANTS}")
        return self._tenants + row * TENANT_ROW + 1 + bucket
