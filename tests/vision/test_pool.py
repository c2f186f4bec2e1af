"""The media pool: bounded, at low priority, and never deadlocked by its own bands."""

import asyncio
import os
import threading

import pytest

from smg.core.background import NICENESS
from smg.core.errors import GatewayError
from smg.vision import pool as pool_module
from smg.vision.pool import MediaPool, serial
from tests.gateway import until_async


@pytest.fixture
def pool():
    made = MediaPool(2, queued=1)
    yield made
    made.close()


async def test_jobs_return_and_raise(pool):
    assert await pool.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 / 0)
    await asyncio.sleep(0)
    assert pool.jobs == 0


async def test_threads_yield_to_the_event_loop(pool):
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    theirs = await pool.run(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    assert theirs == max(own, NICENESS)


async def test_more_jobs_than_may_wait_are_refused_and_none_leaks(pool):
    go = threading.Event()
    running = [asyncio.create_task(pool.run(go.wait)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(GatewayError) as caught:
        await pool.run(go.wait)
    assert caught.value.code == "overloaded"
    assert caught.value.status == 503
    go.set()
    assert await asyncio.gather(*running) == [True, True, True]
    await until_async(lambda: pool.jobs == 0)


async def test_a_caller_that_leaves_frees_its_place_when_the_thread_is_done(pool):
    go = threading.Event()
    task = asyncio.create_task(pool.run(go.wait))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool.jobs == 1
    go.set()
    await pool.run(lambda: None)
    await until_async(lambda: pool.jobs == 0)


async def test_a_job_that_was_cancelled_before_it_started_never_runs(pool):
    go = threading.Event()
    ran = []
    running = [asyncio.create_task(pool.run(go.wait)) for _ in range(2)]
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(pool.run(lambda: ran.append(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*running)
    await asyncio.sleep(0.01)
    assert ran == []
    assert pool.jobs == 0


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100])
def test_bands_cover_every_row_once(rows, pool):
    for split in (pool.split, serial):
        seen = []
        split(rows, lambda y0, y1, seen=seen: seen.extend(range(y0, y1)))
        assert sorted(seen) == list(range(rows))


async def test_all_threads_may_split_at_the_same_time(pool):
    def job():
        seen = []
        pool.split(50, lambda y0, y1: seen.extend(range(y0, y1)))
        return len(seen)

    assert await asyncio.wait_for(asyncio.gather(*(pool.run(job) for _ in range(3))), 10) == [50, 50, 50]


def test_an_error_in_any_band_reaches_the_caller(pool):
    def work(y0, y1):
        if y0 > 0:
            raise ValueError("band")

    with pytest.raises(ValueError, match="band"):
        pool.split(10, work)


async def test_a_small_job_of_another_request_waits_for_the_running_one_only(pool):
    go, order = threading.Event(), []
    blocking = [asyncio.create_task(pool.run(go.wait)) for _ in range(2)]
    pool._limit = 100
    large = [asyncio.create_task(pool.run(lambda: order.append("large"), "burst", 169_000_000)) for _ in range(8)]
    await asyncio.sleep(0)
    small = asyncio.create_task(pool.run(lambda: order.append("small"), "other", 4096))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*blocking, *large, small)
    assert order.index("small") <= 1  # two threads take theirs at the same time
    assert order.count("large") == 8


async def test_memory_goes_back_to_the_system_when_heavy_work_is_done(pool, monkeypatch):
    given = []
    monkeypatch.setattr(pool_module, "give_back", lambda: given.append(pool.jobs))
    await pool.run(lambda: None, "light", 1 << 20)
    assert given == []
    await pool.run(lambda: None, "heavy", 1 << 26)
    pool.close()
    pool._executor.shutdown(wait=True)
    assert len(given) == 1


async def test_what_is_let_go_later_goes_back_when_it_has_been_quiet_for_a_moment(pool, monkeypatch):
    given = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(pool_module, "_LATE_SECS", 0.01)
    monkeypatch.setattr(pool_module, "give_back", lambda: loop.call_soon_threadsafe(given.set))
    # Not so much at a time that a search would follow the work itself.
    monkeypatch.setattr(pool, "_worked", -1 << 40)
    await pool.run(lambda: None, "heavy", 1 << 26)
    async with asyncio.timeout(5):
        await given.wait()
    # Then only what is large makes another one.
    given.clear()
    await pool.run(lambda: None, "light", 1 << 20)
    pool.released(1 << 20)
    await asyncio.sleep(0.05)
    assert not given.is_set()
    pool.released(1 << 26)
    async with asyncio.timeout(5):
        await given.wait()


async def test_nothing_is_searched_while_there_is_work(pool, monkeypatch):
    given, go = [], threading.Event()
    monkeypatch.setattr(pool_module, "_LATE_SECS", 0.0)
    monkeypatch.setattr(pool_module, "give_back", lambda: given.append(pool.jobs))
    working = asyncio.create_task(pool.run(go.wait))
    await asyncio.sleep(0.01)
    pool.released(1 << 26)
    await asyncio.sleep(0.05)
    assert given == []
    go.set()
    await working
    async with asyncio.timeout(5):
        while not given:  # noqa: ASYNC110 - a thread of the pool
            await asyncio.sleep(0.005)
    assert given == [0]


async def test_those_who_wait_for_a_pool_that_is_closed_wait_no_longer(pool):
    go = threading.Event()
    running = [asyncio.create_task(pool.run(go.wait)) for _ in range(3)]
    await asyncio.sleep(0.01)
    pool.close()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running[2], 5)
    go.set()
    assert await asyncio.gather(*running[:2]) == [True, True]
