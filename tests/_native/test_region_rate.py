"""The region's token bucket, against a plain-Python model and between processes (case LM-01)."""

import os

from hypothesis import given
from hypothesis import strategies as st

from smg._native.region import Region

SECOND = 10**9


@given(
    burst=st.integers(1, 5),
    interval=st.integers(1, SECOND),
    steps=st.lists(st.integers(0, 3 * SECOND), min_size=1, max_size=40),
)
def test_the_bucket_of_all_processes_is_a_token_bucket(burst, interval, steps):
    region = Region.create(3, 1, 8)
    other = Region.attach(region.fd)
    # The plain model: whole tokens and the time since the last one came.
    tokens, since, now = burst, 0, SECOND
    for number, step in enumerate(steps):
        now += step
        since += step
        came = since // interval
        tokens, since = (burst, 0) if tokens + came >= burst else (tokens + came, since - came * interval)
        wait = (region, other)[number % 2].rate_wait(now, interval, burst)
        assert wait == (0 if tokens else interval - since)
        assert (other, region)[number % 2].rate_take(now, interval, burst) == wait
        if tokens:
            tokens, since = tokens - 1, 0 if tokens == burst else since
    other.close()
    region.close()


def test_processes_that_fight_for_tokens_get_as_many_as_there_are():
    region = Region.create(6, 1, 8)
    pids = []
    for process in range(1, 5):
        pid = os.fork()
        if pid == 0:
            got = sum(region.rate_take(SECOND, SECOND, 1000) == 0 for _ in range(2000))
            region.requests_add(process, got)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    assert region.requests_total() == 1000
