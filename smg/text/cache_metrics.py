"""Shows the counters of the tokenizers' caches as metrics, now and then instead of at each request."""

from collections.abc import Mapping

from smg.telemetry.metrics import Metrics
from smg.text.encode import CacheStats

_NOTHING = CacheStats()


class CacheMetrics:
    """Brings the cells of this process up to what the caches have counted.

    A process that is killed takes along what it counted since the last ``publish``.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._shown: dict[str, CacheStats] = {}

    def publish(self, stats: Mapping[str, CacheStats]) -> None:
        """Show ``stats``, by tokenizer. One that is not among them any more has been unloaded."""
        for name in self._shown.keys() - stats.keys():
            self._gauges(name, _NOTHING)
        for name, now in stats.items():
            before = self._shown.get(name, _NOTHING)
            if now != before:
                self._counters(name, before, now)
                self._gauges(name, now)
        self._shown = dict(stats)

    def _counters(self, name: str, before: CacheStats, now: CacheStats) -> None:
        metrics = self._metrics
        for counter, field, labels in (
            (metrics.tokenizer_cache_hits_total, "exact_hits", (name, "l0")),
            (metrics.tokenizer_cache_misses_total, "exact_misses", (name, "l0")),
            (metrics.tokenizer_cache_hits_total, "prefix_hits", (name, "l1")),
            (metrics.tokenizer_cache_misses_total, "prefix_misses", (name, "l1")),
            (metrics.tokenizer_cache_reused_tokens_total, "reused_ids", (name,)),
        ):
            count, shown = getattr(now, field), getattr(before, field)
            # A tokenizer that was loaded anew counts from 0 again.
            counter.inc(*labels, amount=count - shown if count >= shown else count)

    def _gauges(self, name: str, now: CacheStats) -> None:
        for level, entries, size in (
            ("l0", now.exact_entries, now.exact_bytes),
            ("l1", now.prefix_entries, now.prefix_bytes),
        ):
            self._metrics.tokenizer_cache_entries.set(name, level, v=entries)
            self._metrics.tokenizer_cache_bytes.set(name, level, v=size)
