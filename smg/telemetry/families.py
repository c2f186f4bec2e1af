"""Metric families over integer cells: counters, gauges and histograms with labels.

A series' key is its sample's name and label values, joined by NUL; ``page.py`` takes them apart again. Each process
looks a series up once and then adds to its own cell, which is one atomic add.
"""

from typing import ClassVar, Literal, TypeAlias

from smg._native.samples import Adding, Observing
from smg.telemetry.cells import COUNTER, GAUGE, Cells

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

PREFIX = "smg_"
# Distinct values of one label, per process; a client that invents values can't fill the table of series.
LABEL_VALUES = 1024
OTHER = "other"
# Longest key the region takes; values of longer ones are cut.
MAX_KEY = 240
MICROSECONDS = 1_000_000

# Seconds (spec api-and-ops 6.1).
DURATION_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 45.0, 60.0, 90.0, 120.0),
    *(180.0, 240.0, 300.0, 480.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0, 5400.0, 7200.0),
)
RATIO_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LAG_BUCKETS = (0.0, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


def series_key(sample: str, values: tuple[str, ...]) -> bytes:
    """The key of one series, at most MAX_KEY bytes. ``sample`` is the name as scraped, without a histogram's ``le``."""
    parts = [value.replace("\0", "").encode("utf-8", "replace") for value in values]
    key = b"\0".join([sample.encode(), *parts])
    if len(key) > MAX_KEY:
        room = (MAX_KEY - len(sample) - len(parts)) // len(parts)
        key = b"\0".join([sample.encode(), *(part[:room].decode("utf-8", "ignore").encode() for part in parts)])
    return key


def split_key(key: bytes) -> tuple[str, tuple[str, ...]]:
    """Take a key apart: (sample name, label values)."""
    sample, *values = key.decode().split("\0")
    return sample, tuple(values)


class Family:
    """What all families have: name (with prefix), help text, label names, and the way to a cell."""

    kind: ClassVar[Kind]
    cell_kind: ClassVar[int] = COUNTER
    cells: Cells
    process: int

    def _describe(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self.name = PREFIX + name
        self.text = text
        self.labels = labels
        self._seen: tuple[set[str], ...] = tuple(set() for _ in labels)

    def _bounded(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Replace values beyond the limit by ``other``. Raises TypeError for a wrong number of labels."""
        if len(values) != len(self.labels):
            raise TypeError(f"{self.name} has the labels {self.labels}, not {len(values)} of them")
        out = []
        for seen, value in zip(self._seen, values, strict=True):
            if value not in seen:
                if len(seen) >= LABEL_VALUES:
                    value = OTHER
                seen.add(value)
            out.append(value)
        return tuple(out)

    def _find(self, sample: str, values: tuple[str, ...]) -> int:
        return self.cells.find_series(series_key(sample, values), self.cell_kind)


class _Scalar(Adding, Family):
    """A family with one cell per label set."""

    def __init__(self, cells: Cells, process: int, name: str, text: str, labels: tuple[str, ...] = ()) -> None:
        super().__init__(cells, process)
        self._describe(name, text, labels)

    def find(self, values: tuple[str, ...]) -> int:
        """The cell of these label values."""
        index = self.places.get(values)
        if index is None:
            bounded = self._bounded(values)
            index = self.places.get(bounded)
            if index is None:
                index = self.places[bounded] = self._find(self.name, bounded)
        return index


class Counter(_Scalar):
    """Only goes up (``inc``, by no negative amount); what a dead process counted stays."""

    kind = "counter"


class Gauge(_Scalar):
    """This process's share of a present total; gone when the process dies."""

    kind = "gauge"
    cell_kind = GAUGE

    def add(self, *labels: str, v: int = 1) -> None:
        """Move the gauge by ``v``."""
        self.inc(*labels, amount=v)

    def set(self, *labels: str, v: int) -> None:
        """Set this process's share to ``v``."""
        self.cells.cell_set(self.process, self.find(labels), v)


class Histogram(Observing, Family):
    """Seconds, or parts of 1. One counting cell per bucket that was ever hit, and their sum in millionths.

    Buckets do not overlap here; ``page.py`` adds them up to Prometheus' cumulative ones, so that one observation is
    two atomic adds, not one per bucket. The label ``le`` of a cell is the bucket's number.
    """

    kind = "histogram"

    def __init__(
        self,
        cells: Cells,
        process: int,
        name: str,
        text: str,
        labels: tuple[str, ...] = (),
        buckets: tuple[float, ...] = DURATION_BUCKETS,
    ) -> None:
        super().__init__(cells, process, tuple(round(limit * MICROSECONDS) for limit in buckets))
        self._describe(name, text, labels)
        self.buckets = buckets

    def find(self, labels: tuple[str, ...], bucket: int) -> list[int | None]:
        """The cells of these label values, that of ``bucket`` and of the sum among them."""
        bounded = self._bounded(labels)
        places = self.places.get(bounded)
        if places is None:
            places = self.places[bounded] = [None] * (len(self.limits) + 2)
        if places[bucket] is None:
            places[bucket] = self._find(self.name + "_bucket", (*bounded, str(bucket)))
            places[-1] = self._find(self.name + "_sum", bounded)
        return places
