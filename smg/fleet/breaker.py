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
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.fleet")

Outcome: TypeAlias = Literal["ok", "client_error", "busy", "worker_failed", "cancelled"]
State: TypeAlias = Literal["closed", "open", "half_open"]

STATES: dict[int, State] = {native.CLOSED: "closed", native.OPEN: "open", native.HALF_OPEN: "half_open"}
_OUTCOMES = {"ok": native.SUCCEEDED, "worker_failed": native.FAILED}
# Outcomes that are counted, by the names of the metric.
_COUNTED = {"ok": "success", "worker_failed": "failure", "busy": "backpressure"}


class CircuitBreakers:
    """The breakers of ``region``, by the numbers of ``settings``; ``metrics`` are the process's own, if it has any."""

    def __init__(self, region: Region, settings: RoutingSettings, metrics: Metrics | None = None) -> None:
        self._enabled = not settings.disable_circuit_breaker
        self._metrics = metrics
        self._native = native.Breakers(
            region,
            settings.cb_failure_threshold,
            settings.cb_success_threshold,
            round(settings.cb_timeout_duration_secs * 1000),
            round(settings.cb_window_duration_secs * 1000),
        )

    def enter(self, worker: WorkerRecord) -> int | None:
        """Ask to send a request to ``worker``: a permit for ``leave``; None: its breaker refuses."""
        if not self._enabled:
            return 0
        before = self._native.state(worker.slot)
        if before == native.CLOSED:
            return 0
        permit = self._native.enter(worker.slot)
        if permit == native.REFUSED:
            return None
        if before == native.OPEN:
            self._changed(worker, native.OPEN, native.HALF_OPEN)
        return permit

    def leave(self, worker: WorkerRecord, permit: int, outcome: Outcome) -> None:
        """Book what came of a request; at its end, so that a stream that broke off counts as what it was."""
        if self._metrics is not None and outcome in _COUNTED:
            self._metrics.worker_cb_outcomes_total.inc(worker.id, _COUNTED[outcome])
        if not self._enabled:
            return
        change = self._native.leave(worker.slot, permit, _OUTCOMES.get(outcome, native.NEUTRAL))
        if change is not None:
            self._changed(worker, *change)

    def wait(self, worker: WorkerRecord) -> float:
        """Seconds until a request may be sent to ``worker``; 0 also while others try whether it works again."""
        if self._native.state(worker.slot) != native.OPEN:
            return 0.0
        return self._native.wait(worker.slot) / 1000

    def state(self, worker: WorkerRecord) -> State:
        """The state as it was left: an open breaker whose pause is over is open until somebody asks."""
        return STATES[self._native.state(worker.slot)]

    def failures(self, worker: WorkerRecord) -> int:
        """Failures in a row."""
        return self._native.failures(worker.slot)

    def reset(self, worker: WorkerRecord) -> None:
        """Close the breaker: the worker was away and has proved itself anew."""
        before = self._native.reset(worker.slot)
        if before != native.CLOSED:
            self._changed(worker, before, native.CLOSED)

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
