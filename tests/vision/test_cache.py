"""The cache of processed images: bounded by bytes, one piece of work for all who want the same (spec multimodal 14)."""

import asyncio

import numpy as np
import pytest

from smg.core.errors import GatewayError
from smg.vision.cache import Processed, ProcessedCache
from smg.vision.families.base import Plan


def processed(size=1000):
    return Processed(Plan(1, 1, (size,), 1), np.zeros(size, np.uint8))


class Work:
    """Counts runs; each waits until it is let go."""

    def __init__(self, result=None):
        self.result = result or processed()
        self.runs = 0
        self.cancelled = 0
        self.go = asyncio.Event()

    async def __call__(self):
        self.runs += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


async def done(cache, key, result):
    async def work():
        return result

    return await cache.get(key, work)


async def never():
    raise AssertionError("it was known")


async def test_what_is_known_is_not_made_again():
    cache = ProcessedCache(10_000)
    first = await done(cache, b"a", processed())
    assert await cache.get(b"a", never) is first
    assert (cache.hits, cache.misses) == (1, 1)


async def test_the_least_recently_used_go_first_and_bytes_are_counted():
    one = processed()
    cache = ProcessedCache(3 * one.nbytes)
    for key in (b"a", b"b", b"c"):
        await done(cache, key, processed())
    await cache.get(b"a", never)
    await done(cache, b"d", processed())
    assert cache.nbytes == 3 * one.nbytes
    for key in (b"a", b"c", b"d"):
        await cache.get(key, never)
    again = processed()
    assert await done(cache, b"b", again) is again


async def test_what_is_larger_than_the_cache_passes_by():
    cache = ProcessedCache(1000)
    await done(cache, b"a", processed(5000))
    assert cache.nbytes == 0


@pytest.mark.parametrize("size", [0, 1 << 20], ids=["off", "on"])
async def test_equal_work_is_done_once_at_a_time(size):
    cache, work = ProcessedCache(size), Work()
    waiting = [asyncio.create_task(cache.get(b"a", work)) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    work.go.set()
    results = await asyncio.gather(*waiting)
    assert work.runs == 1
    assert all(result is work.result for result in results)


async def test_a_failure_is_everybodys_and_is_not_remembered():
    cache, work = ProcessedCache(10_000), Work(GatewayError("media_undecodable", "broken"))
    waiting = [asyncio.create_task(cache.get(b"a", work)) for _ in range(2)]
    work.go.set()
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(failure) for failure in failures] == ["broken", "broken"]
    sound = processed()
    assert await done(cache, b"a", sound) is sound


async def test_work_goes_on_while_somebody_waits_and_ends_when_nobody_does():
    cache, work = ProcessedCache(10_000), Work()
    first, second = (asyncio.create_task(cache.get(b"a", work)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.wait([first])
    assert work.cancelled == 0
    second.cancel()
    await asyncio.wait([second])
    await asyncio.sleep(0)
    assert work.cancelled == 1
    fresh = Work()
    fresh.go.set()
    assert await cache.get(b"a", fresh) is fresh.result
