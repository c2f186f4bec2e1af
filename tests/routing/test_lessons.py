"""What policies teach the prefix index does not hold up an event loop (field case PF-01)."""

import asyncio

import pytest

from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg.routing.index import facade
from smg.routing.index.facade import PrefixLesson

BLOCKS = 2000
KEYS = PrefixKeys.of_tokens(range(16 * BLOCKS), 16)


@pytest.fixture
def index(monkeypatch):
    """An index for which there is no time at once."""
    monkeypatch.setattr(facade, "_STEP_SECS", 0.0)
    index = PrefixIndex.create(1 << 20, slots=2)
    index.admit(0)
    yield index
    assert not facade._running
    index.close()


def held(index) -> int:
    return index.depth(KEYS, (0,))[0]


async def until(index, blocks) -> None:
    async with asyncio.timeout(20):
        while held(index) < blocks:  # noqa: ASYNC110 - the index has no event
            await asyncio.sleep(0.001)


async def test_a_long_prompt_is_entered_in_turns(index):
    PrefixLesson(index, KEYS, 0).assume()
    begun = held(index)
    assert 0 < begun < 20
    await until(index, begun + 1)
    assert held(index) < BLOCKS
    await until(index, BLOCKS)
    await asyncio.gather(*facade._running)


async def test_a_prompt_that_is_withdrawn_is_not_entered_any_further(index):
    lesson = PrefixLesson(index, KEYS, 0)
    lesson.assume()
    lesson.withdraw()
    await asyncio.gather(*facade._running, return_exceptions=True)
    assert held(index) == 0


async def test_what_is_confirmed_meanwhile_is_entered_whole(index):
    lesson = PrefixLesson(index, KEYS, 0)
    lesson.assume()
    lesson.confirm()
    await until(index, BLOCKS)
    await asyncio.gather(*facade._running, return_exceptions=True)


async def test_the_rest_of_a_worker_that_has_left_is_forgotten(index):
    PrefixLesson(index, KEYS, 0).assume()
    index.dismiss(0)
    index.admit(0)
    await asyncio.gather(*facade._running)
    assert held(index) == 0


async def test_a_short_prompt_is_entered_at_once(index):
    keys = PrefixKeys.of_tokens(range(16 * 100), 16)
    PrefixLesson(index, keys, 0).assume()
    assert index.depth(keys, (0,)) == [100]


def test_without_an_event_loop_everything_is_entered_at_once(index):
    PrefixLesson(index, KEYS, 0).assume()
    assert held(index) == BLOCKS
