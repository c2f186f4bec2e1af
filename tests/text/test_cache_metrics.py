"""The caches' counters as metrics."""

from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics
from smg.text.cache_metrics import CacheMetrics
from smg.text.encode import CacheStats


class Page:
    def __init__(self) -> None:
        self._cells = LocalCells()
        self.caches = CacheMetrics(Metrics(self._cells, 1))

    def values(self) -> dict[str, int]:
        return {
            key.decode().removeprefix("smg_tokenizer_cache_").replace("\0", " "): value
            for key, _, value in self._cells.read_series()
        }


STATS = CacheStats(
    *(5, 7, 3, 300),
    *(2, 4, 6, 600),
    reused_ids=90,
)


def test_counters_follow_and_gauges_show_the_present():
    page = Page()
    page.caches.publish({"abc": CacheStats(exact_hits=1, exact_misses=7, exact_entries=9, exact_bytes=900)})
    page.caches.publish({"abc": STATS})
    page.caches.publish({"abc": STATS})
    assert page.values() == {
        "hits_total abc l0": 5,
        "misses_total abc l0": 7,
        "hits_total abc l1": 2,
        "misses_total abc l1": 4,
        "reused_tokens_total abc": 90,
        "entries abc l0": 3,
        "bytes abc l0": 300,
        "entries abc l1": 6,
        "bytes abc l1": 600,
    }


def test_what_is_unloaded_holds_nothing_and_counts_on_when_it_comes_back():
    page = Page()
    page.caches.publish({"abc": STATS})
    page.caches.publish({})
    assert page.values()["bytes abc l0"] == page.values()["entries abc l1"] == 0
    page.caches.publish({"abc": CacheStats(exact_hits=1)})
    assert page.values()["hits_total abc l0"] == 6


def test_a_reload_between_two_looks_does_not_count_backwards():
    page = Page()
    page.caches.publish({"abc": STATS})
    page.caches.publish({"abc": CacheStats(exact_hits=2)})
    assert page.values()["hits_total abc l0"] == 7
    assert page.values()["misses_total abc l0"] == 7
