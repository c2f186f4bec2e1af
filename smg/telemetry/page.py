"""The metrics page: every series of every process, in Prometheus' text format 0.0.4.

Thousands of workers have tens of thousands of lines, which take far longer than streams can wait: so the page comes in
pieces, which an event loop can make one by one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest

from smg.telemetry.cells import Cells
from smg.telemetry.families import MICROSECONDS, OTHER, PREFIX, Family, Histogram, split_key
from smg.telemetry.metrics import Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Lines of a piece, or series or workers that are read for one: two milliseconds of work.
PIECE = 128

_BUCKET = "_bucket"

_Labels: TypeAlias = tuple[str, ...]
# What prometheus_client's families take as one more metric; None stands for one that is left out.
_Row: TypeAlias = tuple[Any, ...] | None


class WorkerSample(msgspec.Struct, frozen=True):
    """What the region knows of one registered worker: ``worker`` is its id, ``requests`` those in flight on it.

    ``url``, ``models``, ``runtime`` and ``role`` say which engine it is: all other series name it by its id only.
    ``breaker`` is the state of its circuit breaker (0 closed, 1 open, 2 half open), ``failures`` its failures in a row.
    """

    worker: str
    requests: int
    healthy: bool
    breaker: int = 0
    failures: int = 0
    url: str = ""
    models: Sequence[str] = ()
    runtime: str = ""
    role: str = ""


class IndexSample(msgspec.Struct, frozen=True):
    """The shared prefix index: entries, places for them, bytes in use; prompts learnt and evicted since the start.

    ``resets`` counts parts that were emptied because a process died while it wrote them.
    """

    entries: int
    places: int
    bytes: int
    learnt: int
    evicted: int
    resets: int


def render(
    metrics: Metrics,
    workers: Iterable[WorkerSample] = (),
    inflight: int = 0,
    waiting: int = 0,
    index: IndexSample | None = None,
) -> bytes:
    """Make the whole page at once; see ``pieces``."""
    return b"".join(pieces(metrics, workers, inflight, waiting, index))


def pieces(
    metrics: Metrics,
    workers: Iterable[WorkerSample] = (),
    inflight: int = 0,
    waiting: int = 0,
    index: IndexSample | None = None,
) -> Iterator[bytes]:
    """Make the page piece by piece, some of them empty. Whichever process makes it, the page is the same.

    Args:
        metrics: any process's families; their cells hold the values of all processes.
        workers: all registered workers, taken as they are needed. Series about any other worker are left out.
        inflight: admitted generations of all processes.
        waiting: generations of all processes that wait for admission.
        index: the prefix index, if there is one.
    """
    samples: list[WorkerSample] = []
    coming = iter(workers)
    while some := list(islice(coming, PIECE)):
        samples += some
        yield b""
    values = _Values()
    for start in range(0, metrics.cells.series_end(), PIECE):
        values.read(metrics.cells, start)
        yield b""
    known = {sample.worker for sample in samples} | {OTHER}
    for family in metrics.families():
        yield from _family(family, values, known)
    yield _single(f"{PREFIX}requests_inflight", "Admitted generations in flight.", inflight)
    yield _single(f"{PREFIX}admission_queue_depth", "Generations that wait for admission.", waiting)
    yield from _of_workers(samples)
    if index is not None:
        yield from _of_index(index)


class _Values:
    """What the cells hold: sums by sample name and label values, those of buckets by family, label values, number."""

    def __init__(self) -> None:
        self.of: dict[str, dict[_Labels, int]] = defaultdict(dict)
        self.buckets: dict[str, dict[_Labels, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))

    def read(self, cells: Cells, start: int) -> None:
        """Read PIECE places; two processes may each have made a series of one key."""
        for key, _, value in cells.read_series(start, PIECE):
            name, labels = split_key(key)
            if name.endswith(_BUCKET):
                counts = self.buckets[name.removesuffix(_BUCKET)][labels[:-1]]
                counts[int(labels[-1])] = counts.get(int(labels[-1]), 0) + value
            else:
                sums = self.of[name]
                sums[labels] = sums.get(labels, 0) + value


class _One:
    """The one method that prometheus_client's writer asks of a registry."""

    def __init__(self, metric: Any) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Any]:
        yield self._metric


def _single(name: str, text: str, value: int, kind: Any = GaugeMetricFamily) -> bytes:
    page: bytes = generate_latest(_One(kind(name, text, value)))
    return page


def _written(family: Callable[[], Any], rows: Iterable[_Row], lines: int = 1) -> Iterator[bytes]:
    """The series of one metric, of so many ``lines`` each; only the first piece says what the metric is."""
    coming, first = iter(rows), True
    while (some := list(islice(coming, max(PIECE // lines, 1)))) or first:
        part = family()
        for row in some:
            if row is not None:
                part.add_metric(*row)
        page: bytes = generate_latest(_One(part))
        yield page if first else page.split(b"\n", 2)[2]
        first = False


def _of_workers(samples: Sequence[WorkerSample]) -> Iterator[bytes]:
    labels = ["worker", "url", "model", "runtime", "role"]
    about = (
        ([sample.worker, sample.url, model, sample.runtime, sample.role], 1)
        for sample in samples
        for model in sample.models or ("",)
    )
    yield from _written(_gauge("worker_info", "1 for each model of a worker.", labels), about)
    for name, text, field in (
        ("worker_requests_active", "Requests in flight on a worker.", "requests"),
        ("worker_health", "1 when the worker takes requests.", "healthy"),
        ("worker_cb_state", "Circuit breaker: 0 closed, 1 open, 2 half open.", "breaker"),
        ("worker_cb_consecutive_failures", "Failures of a worker in a row.", "failures"),
    ):
        rows = (([sample.worker], int(getattr(sample, field))) for sample in samples)
        yield from _written(_gauge(name, text, ["worker"]), rows)


def _gauge(name: str, text: str, labels: list[str]) -> Callable[[], Any]:
    return lambda: GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _of_index(index: IndexSample) -> Iterator[bytes]:
    for name, text, value in (
        ("entries", "Prefixes in the index.", index.entries),
        ("places", "Prefixes there is memory for at the moment.", index.places),
        ("bytes", "Memory of the index's entries.", index.bytes),
    ):
        yield _single(f"{PREFIX}prefix_index_{name}", text, value)
    for name, text, value in (
        ("learnt_prompts", "Prompts entered or seen again.", index.learnt),
        ("evicted_prompts", "Of these, the oldest whose prefixes have given way to others.", index.evicted),
        ("resets", "Parts emptied because a process died while it wrote them.", index.resets),
    ):
        yield _single(f"{PREFIX}prefix_index_{name}", text, value, CounterMetricFamily)


def _family(family: Family, values: _Values, known: set[str]) -> Iterator[bytes]:
    labels = list(family.labels)
    if isinstance(family, Histogram):
        made, lines = HistogramMetricFamily, len(family.buckets) + 3
        rows = _histogram(family, values)
    else:
        made, lines = (CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily), 1
        rows = _current(family, values, known)
    return _written(lambda: made(family.name, family.text, labels=labels), rows, lines)


def _current(family: Family, values: _Values, known: set[str]) -> Iterator[_Row]:
    """The series of a family, None for those of workers that have left."""
    about = family.labels.index("worker") if "worker" in family.labels else None
    for labels, value in values.of[family.name].items():
        current = len(labels) == len(family.labels) and (about is None or labels[about] in known)
        yield (list(labels), value) if current else None


def _histogram(family: Histogram, values: _Values) -> Iterator[_Row]:
    for labels, per_bucket in values.buckets[family.name].items():
        total = values.of[family.name + "_sum"].get(labels, 0)
        yield list(labels), list(_cumulative(family.buckets, per_bucket)), total / MICROSECONDS


def _cumulative(buckets: Iterable[float], counts: dict[int, int]) -> Iterator[tuple[str, int]]:
    running = 0
    for number, limit in enumerate([*buckets, float("inf")]):
        running += counts.get(number, 0)
        yield ("+Inf" if limit == float("inf") else f"{limit:g}"), running
