"""The metrics page: every series of every process, in Prometheus' text format 0.0.4."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest

from smg.telemetry.families import MICROSECONDS, OTHER, PREFIX, Family, Histogram, split_key
from smg.telemetry.metrics import Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


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
    workers: Sequence[WorkerSample] = (),
    inflight: int = 0,
    waiting: int = 0,
    index: IndexSample | None = None,
) -> bytes:
    """Render the page. Whichever process renders it, the page is the same.

    Args:
        metrics: any process's families; their cells hold the values of all processes.
        workers: all registered workers. Series about any other worker are left out.
        inflight: admitted generations of all processes.
        waiting: generations of all processes that wait for admission.
        index: the prefix index, if there is one.
    """
    page: bytes = generate_latest(_Collector(metrics, workers, inflight, waiting, index))
    return page


class _Collector:
    """The one method that prometheus_client's writer asks of a registry."""

    def __init__(
        self,
        metrics: Metrics,
        workers: Sequence[WorkerSample],
        inflight: int,
        waiting: int,
        index: IndexSample | None,
    ) -> None:
        self._index = index
        self._metrics = metrics
        self._workers = workers
        self._inflight = inflight
        self._waiting = waiting

    def collect(self) -> Iterator[Any]:
        samples: dict[str, dict[tuple[str, ...], int]] = defaultdict(dict)
        for key, _, value in self._metrics.cells.read_series():
            name, values = split_key(key)
            samples[name][values] = value
        known = {sample.worker for sample in self._workers} | {OTHER}
        for family in self._metrics.families():
            yield _family(family, samples, known)
        yield GaugeMetricFamily(f"{PREFIX}requests_inflight", "Admitted generations in flight.", self._inflight)
        yield GaugeMetricFamily(f"{PREFIX}admission_queue_depth", "Generations that wait for admission.", self._waiting)
        yield from self._of_workers()
        if self._index is not None:
            yield from _of_index(self._index)

    def _of_workers(self) -> Iterator[Any]:
        active = GaugeMetricFamily(
            f"{PREFIX}worker_requests_active", "Requests in flight on a worker.", None, ["worker"]
        )
        health = GaugeMetricFamily(f"{PREFIX}worker_health", "1 when the worker takes requests.", None, ["worker"])
        breaker = GaugeMetricFamily(
            f"{PREFIX}worker_cb_state", "Circuit breaker: 0 closed, 1 open, 2 half open.", None, ["worker"]
        )
        failures = GaugeMetricFamily(
            f"{PREFIX}worker_cb_consecutive_failures", "Failures of a worker in a row.", None, ["worker"]
        )
        info = GaugeMetricFamily(
            f"{PREFIX}worker_info", "1 for each model of a worker.", None, ["worker", "url", "model", "runtime", "role"]
        )
        for sample in self._workers:
            for model in sample.models or ("",):
                info.add_metric([sample.worker, sample.url, model, sample.runtime, sample.role], 1)
            active.add_metric([sample.worker], sample.requests)
            health.add_metric([sample.worker], int(sample.healthy))
            breaker.add_metric([sample.worker], sample.breaker)
            failures.add_metric([sample.worker], sample.failures)
        yield from (info, active, health, breaker, failures)


def _of_index(index: IndexSample) -> Iterator[Any]:
    for name, text, value in (
        ("entries", "Prefixes in the index.", index.entries),
        ("places", "Prefixes there is memory for at the moment.", index.places),
        ("bytes", "Memory of the index's entries.", index.bytes),
    ):
        yield GaugeMetricFamily(f"{PREFIX}prefix_index_{name}", text, value)
    for name, text, value in (
        ("learnt_prompts", "Prompts entered or seen again.", index.learnt),
        ("evicted_prompts", "Of these, the oldest whose prefixes have given way to others.", index.evicted),
        ("resets", "Parts emptied because a process died while it wrote them.", index.resets),
    ):
        yield CounterMetricFamily(f"{PREFIX}prefix_index_{name}", text, value)


def _family(family: Family, samples: dict[str, dict[tuple[str, ...], int]], known: set[str]) -> Any:
    about = family.labels.index("worker") if "worker" in family.labels else None

    def current(values: tuple[str, ...]) -> bool:
        return len(values) == len(family.labels) and (about is None or values[about] in known)

    labels = list(family.labels)
    if isinstance(family, Histogram):
        return _histogram(family, samples, labels)
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    out = kind(family.name, family.text, labels=labels)
    for values, value in samples[family.name].items():
        if current(values):
            out.add_metric(list(values), value)
    return out


def _histogram(family: Histogram, samples: dict[str, dict[tuple[str, ...], int]], labels: list[str]) -> Any:
    out = HistogramMetricFamily(family.name, family.text, labels=labels)
    counts: dict[tuple[str, ...], dict[int, int]] = defaultdict(dict)
    for values, count in samples[family.name + "_bucket"].items():
        counts[values[:-1]][int(values[-1])] = count
    for values, per_bucket in counts.items():
        total = samples[family.name + "_sum"].get(values, 0)
        out.add_metric(list(values), list(_cumulative(family.buckets, per_bucket)), total / MICROSECONDS)
    return out


def _cumulative(buckets: Iterable[float], counts: dict[int, int]) -> Iterator[tuple[str, int]]:
    running = 0
    for number, limit in enumerate([*buckets, float("inf")]):
        running += counts.get(number, 0)
        yield ("+Inf" if limit == float("inf") else f"{limit:g}"), running
