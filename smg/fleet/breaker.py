"""Circuit breakers of the workers, as routing uses them: who may be asked, and what came of it (spec routing 4.4).

The state is in the shared region, so all processes see the same. A worker that is busy, or whose client made a mistake
or left, has not failed (field cases RL-01, RL-02); one whose stream breaks in the middle has.
"""

import logging
from typing import Literal, TypeAlias

from smg._native import breaker as native
from smg._native.region import Region
from smg.config.settings import RoutingSettings
from smg.fleet.records import WorkerRecord
from smg.fleet.resilience import ResilienceSpec
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.fleet")

Outcome: TypeAlias = Literal["ok", "client_error", "busy", "worker_failed", "cancelled"]
State: TypeAlias = Literal["closed", "open", "half_open"]

STATES: dict[int, State] = {native.CLOSED: "closed", native.OPEN: "open", native.HALF_OPEN: "half_open"}
# Different numbers that are kept; a fleet has a handful.
_MOST_KINDS = 256
_OUTCOMES = {"ok": native.SUCCEEDED, "worker_failed": native.FAILED}
# Outcomes that are counted, by the names of the metric.
_COUNTED = {"ok": "success", "worker_failed": "failure", "busy": "backpressure"}


class CircuitBreakers:
    """The breakers of ``region``, by the numbers of ``settings`` where workers have none of their own.

    ``metrics`` are the process's own, if it has any.
    """

    def __init__(self, region: Region, settings: RoutingSettings, metrics: Metrics | None = None) -> None:
        self._region = region
        self._settings = settings
        self._metrics = metrics
        self._common = _breakers(region, settings)
        # What workers with numbers of their own go by; None where that is no breaker.
        self._own: dict[ResilienceSpec, native.Breakers | None] = {}
        # Who only looks needs no numbers.
        self._any = native.Breakers(region, 1, 1, 1, 1)

    def enter(self, worker: WorkerRecord) -> int | None:
        """Ask to send a request to ``worker``: a permit for ``leave``; None: its breaker refuses."""
        breakers = self._common if worker.resilience is None else self._of(worker.resilience)
        if breakers is None:
            return 0
        before = breakers.state(worker.slot)
        if before == native.CLOSED:
            return 0
        permit = breakers.enter(worker.slot)
        if permit == native.REFUSED:
            return None
        if before == native.OPEN:
            self._changed(worker, native.OPEN, native.HALF_OPEN)
        return permit

    def leave(self, worker: WorkerRecord, permit: int, outcome: Outcome) -> None:
        """Book what came of a request; at its end, so that a stream that broke off counts as what it was."""
        if self._metrics is not None and outcome in _COUNTED:
            self._metrics.worker_cb_outcomes_total.inc(worker.id, _COUNTED[outcome])
        breakers = self._common if worker.resilience is None else self._of(worker.resilience)
        if breakers is None:
            return
        change = breakers.leave(worker.slot, permit, _OUTCOMES.get(outcome, native.NEUTRAL))
        if change is not None:
            self._changed(worker, *change)

    def wait(self, worker: WorkerRecord) -> float:
        """Seconds until a request may be sent to ``worker``; 0 also while others try whether it works again."""
        if self._any.state(worker.slot) != native.OPEN:
            return 0.0
        return self._any.wait(worker.slot) / 1000

    def state(self, worker: WorkerRecord) -> State:
        """The state as it was left: an open breaker whose pause is over is open until somebody asks."""
        return STATES[self._any.state(worker.slot)]

    def failures(self, worker: WorkerRecord) -> int:
        """Failures in a row."""
        return self._any.failures(worker.slot)

    def reset(self, worker: WorkerRecord) -> None:
        """Close the breaker: the worker was away and has proved itself anew."""
        before = self._any.reset(worker.slot)
        if before != native.CLOSED:
            self._changed(worker, before, native.CLOSED)

    def _of(self, resilience: ResilienceSpec) -> native.Breakers | None:
        """The breakers of workers with ``resilience``; None: they have none."""
        if resilience not in self._own:
            if len(self._own) >= _MOST_KINDS:
                self._own.clear()
            self._own[resilience] = _breakers(self._region, resilience.over(self._settings))
        return self._own[resilience]

    def _changed(self, worker: WorkerRecord, before: int, now: int) -> None:
        level = logging.INFO if now == native.CLOSED else logging.WARNING
        log.log(
            level,
            "circuit breaker is %s",
            STATES[now],
            extra={"worker": worker.url, "worker_id": worker.id, "before": STATES[before]},
        )
        if self._metrics is not None:
            self._metrics.worker_cb_transitions_total.inc(worker.id, STATES[before], STATES[now])


def _breakers(region: Region, settings: RoutingSettings) -> native.Breakers | None:
    if settings.disable_circuit_breaker:
        return None
    return native.Breakers(
        region,
        settings.cb_failure_threshold,
        settings.cb_success_threshold,
        max(1, round(settings.cb_timeout_duration_secs * 1000)),
        max(1, round(settings.cb_window_duration_secs * 1000)),
    )
