"""Buckets of tenants: full again is as good as never used, and no limit ever becomes wider."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.region import Region
from smg._native.region_tenants import REQUESTS, TOKENS
from tests._native.test_region import children

PERIOD = 60_000
ROWS, REACH = 4096, 16


@pytest.fixture
def region():
    made = Region.create(processes=3, workers=1, series=8, snapshot_bytes=64)
    yield made
    made.close()


class Bucket:
    """A bucket in plain Python: what is missing from it, and since when."""

    def __init__(self) -> None:
        self.missing = 0
        self.at = 0

    def fill(self, now: int) -> None:
        self.missing = max(0, self.missing - (now - self.at))
        self.at = now

    def wait(self, cost: int) -> int:
        return max(0, self.missing + cost - PERIOD)


steps = st.lists(
    st.tuples(
        st.integers(0, 40_000),  # time that passes
        st.sampled_from([1, 2, 9000, 1 << 62]),  # tenants far apart
        st.sampled_from([REQUESTS, TOKENS]),
        st.sampled_from(["take", "charge", "give back"]),
        st.integers(1, 30_000),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps)
def test_each_bucket_is_what_plain_python_keeps(steps):
    region, other = Region.create(processes=3, workers=1, series=8, snapshot_bytes=64), None
    other = Region.attach(region.fd)
    model: dict[tuple[int, int], Bucket] = defaultdict(Bucket)
    now = 1_000_000
    for passed, tag, bucket, what, cost in steps:
        now += passed
        own = model[tag, bucket]
        own.fill(now)
        row = region.tenant_row(tag, now)
        assert other.tenant_wait(other.tenant_row(tag, now), bucket, now, cost, PERIOD) == own.wait(cost)
        if what == "take":
            assert region.tenant_take(row, bucket, now, cost, PERIOD) == own.wait(cost)
            own.missing += 0 if own.wait(cost) else cost
        elif what == "charge":
            region.tenant_charge(row, bucket, now, cost)
            own.missing += cost
        else:
            region.tenant_charge(row, bucket, now, -cost)
            own.missing = max(0, own.missing - cost)
    other.close()
    region.close()


def test_a_tenant_keeps_its_row_until_its_buckets_are_full_again(region):
    row = region.tenant_row(7, 100)
    region.tenant_charge(row, TOKENS, 100, 50)
    # The one that points to the same place goes to the next.
    assert region.tenant_row(7 + ROWS, 149) == row + 1
    assert region.tenant_row(7, 149) == row
    assert region.tenant_row(7 + 2 * ROWS, 150) == row
    assert region.tenant_wait(row, TOKENS, 150, PERIOD, PERIOD) == 0


def test_when_all_places_near_are_in_use_the_next_tenant_shares_one(region):
    for number in range(REACH):
        row = region.tenant_row(9 + number * ROWS, 100)
        assert row == 9 + number
        region.tenant_charge(row, REQUESTS, 100, 1000)
    shared = region.tenant_row(9 + REACH * ROWS, 100)
    assert shared == 9
    assert region.tenant_wait(shared, REQUESTS, 100, PERIOD, PERIOD) == 1000


def test_what_concurrent_processes_take_adds_up(region):
    def body():
        row = region.tenant_row(5, 100)
        for _ in range(2000):
            region.tenant_charge(row, TOKENS, 100, 3)
            assert region.tenant_take(row, REQUESTS, 100, 2, 1 << 40) == 0

    children(body, body, body)
    row = region.tenant_row(5, 100)
    assert region.tenant_wait(row, TOKENS, 100, 0, 0) == 18_000
    assert region.tenant_wait(row, REQUESTS, 100, 0, 0) == 12_000


def test_what_does_not_exist_is_refused(region):
    with pytest.raises(ValueError, match="not a tag"):
        region.tenant_row(0, 1)
    for row, bucket in ((-1, 0), (ROWS, 0), (0, 2), (0, -1)):
        with pytest.raises(IndexError):
            region.tenant_wait(row, bucket, 1, 1, 1)
