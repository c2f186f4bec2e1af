"""Health of one worker as a state machine over probe results (spec routing 4.3). No I/O, no clock of its own.

    pending ──good──▶ ready ──bad──▶ not_ready ──bad──▶ failed
       └────────── too long ──────────────────────────────▲
    not_ready and failed ──good──▶ ready

``failed`` only means that nobody expects the engine back soon: it is still probed, so that an engine that is started
again serves again, however long it was away. Draining belongs to the registry: a draining worker is not probed.
"""

import msgspec

from smg.config.settings import FleetSettings
from smg.fleet.records import Status
from smg.fleet.sources import WorkerSpec

# Failed probes in a row that turn not_ready into failed, as a multiple of the failure threshold.
_GIVE_UP_FACTOR = 3
# Slowest probing of an engine that does not serve, in seconds: one that restarts is found well within 5 s.
_DOWN_SECS = 1.0
_FAILED_SECS = 2.0


class Thresholds(msgspec.Struct, frozen=True):
    """Probe counts in a row, and times in seconds. ``attempts`` are probes before a worker that never was ready is
    given up, beside ``startup_timeout``."""

    failures: int = 3
    successes: int = 1
    interval: float = 10.0
    down_interval: float = 1.0
    startup_timeout: float = 1800.0
    attempts: int | None = None

    @classmethod
    def of(cls, settings: FleetSettings) -> "Thresholds":
        return cls(
            failures=settings.health_failure_threshold,
            successes=settings.health_success_threshold,
            interval=settings.health_check_interval_secs,
            down_interval=min(settings.worker_startup_check_interval, _DOWN_SECS),
            startup_timeout=settings.worker_startup_timeout_secs,
        )

    def overridden(self, spec: WorkerSpec) -> "Thresholds":
        """The same with what ``spec`` says of one worker."""
        health = spec.health
        return Thresholds(
            failures=health.failure_threshold or self.failures,
            successes=health.success_threshold or self.successes,
            interval=health.check_interval_secs or self.interval,
            down_interval=self.down_interval,
            startup_timeout=self.startup_timeout,
            attempts=spec.max_connection_attempts,
        )


class Health:
    """State of one worker. ``now`` arguments are monotonic seconds; ``status`` may start as an adopted one."""

    def __init__(self, thresholds: Thresholds, now: float, status: Status = "pending") -> None:
        self._thresholds = thresholds
        self._since = now
        self.status: Status = status
        self.failures = 0
        self.successes = 0

    def good(self) -> Status:
        """A probe succeeded."""
        self.failures = 0
        self.successes += 1
        if self.successes >= self._thresholds.successes:
            self.status = "ready"
        return self.status

    def bad(self, now: float, passive: int = 0) -> Status:
        """A probe failed; ``passive`` failures that request workers saw since the last good one count as well, so an
        engine that is really gone is taken out sooner."""
        self.successes = 0
        self.failures += 1
        thresholds = self._thresholds
        seen = self.failures + passive
        match self.status:
            case "pending" if self.failures == thresholds.attempts or now - self._since >= thresholds.startup_timeout:
                self.status = "failed"
            case "ready" if seen >= thresholds.failures:
                self.status = "not_ready"
            case "not_ready" if self.failures >= _GIVE_UP_FACTOR * thresholds.failures:
                self.status = "failed"
        return self.status

    def hold(self, now: float) -> Status:
        """The worker is to get no requests, whatever its engine says: afterwards it begins anew."""
        self.failures = self.successes = 0
        self._since = now
        self.status = "pending"
        return self.status

    @property
    def suspect(self) -> bool:
        """Whether the next probe has to be a thorough one: the engine is not known to be well."""
        return self.status != "ready" or self.failures > 0

    def wait(self) -> float:
        """Seconds until the next probe."""
        if self.status == "failed":
            return _FAILED_SECS
        return self._thresholds.down_interval if self.suspect else self._thresholds.interval
