"""The cyclic collector visits only what may become garbage (field case PF-01)."""

import gc
from collections.abc import Iterator

import pytest

from smg.server import collector
from smg.server.collector import Collector


@pytest.fixture
def frozen() -> Iterator[Collector]:
    before = gc.get_threshold()
    made = Collector()
    made.begin()
    # Collections come when a test asks for them, and at no other time.
    gc.disable()
    yield made
    gc.enable()
    made.end()
    gc.unfreeze()
    gc.set_threshold(*before)


def many() -> list[list[int]]:
    return [[] for _ in range(collector._MANY)]


def test_what_is_there_at_the_beginning_is_visited_no_more(frozen):
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 10_000


def test_what_comes_later_and_stays_is_frozen_by_the_next_full_collection(frozen):
    before = gc.get_freeze_count()
    kept = many()
    gc.collect(1)
    assert gc.get_freeze_count() == before
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)


def test_little_is_not_frozen(frozen):
    before = gc.get_freeze_count()
    kept = many()[:100]
    gc.collect()
    assert gc.get_freeze_count() == before
    assert kept


def test_it_is_done_a_few_times_only(frozen):
    kept = []
    for _ in range(collector._TIMES):
        kept.append(many())
        gc.collect()
    before = gc.get_freeze_count()
    kept.append(many())
    gc.collect()
    assert gc.get_freeze_count() == before


def test_frozen_objects_are_freed_when_nobody_refers_to_them(frozen):
    class Seen:
        pass

    freed = []

    class Told(Seen):
        def __del__(self) -> None:
            freed.append(True)

    one, kept = Told(), many()
    gc.collect()
    assert kept
    del one
    assert freed
