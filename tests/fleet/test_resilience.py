"""What single workers do otherwise than the settings say (spec api-and-ops 1.11)."""

import msgspec
import pytest

from smg.config.settings import FleetSettings, RoutingSettings
from smg.fleet.health import Health, Thresholds
from smg.fleet.resilience import ResilienceSpec
from smg.fleet.sources import HealthSpec, WorkerSpec

EVERYTHING = {
    "max_retries": 7,
    "initial_backoff_ms": 10,
    "max_backoff_ms": 20,
    "backoff_multiplier": 3.0,
    "jitter_factor": 0.0,
    "disable_retry": True,
    "cb_failure_threshold": 2,
    "cb_success_threshold": 1,
    "cb_timeout_secs": 4.0,
    "cb_window_secs": 5.0,
    "disable_circuit_breaker": True,
}


def test_what_is_given_wins_over_the_settings():
    assert msgspec.convert(EVERYTHING, ResilienceSpec).over(RoutingSettings(policy="random")) == RoutingSettings(
        policy="random",
        retry_max_retries=7,
        retry_initial_backoff_ms=10,
        retry_max_backoff_ms=20,
        retry_backoff_multiplier=3.0,
        retry_jitter_factor=0.0,
        disable_retries=True,
        cb_failure_threshold=2,
        cb_success_threshold=1,
        cb_timeout_duration_secs=4.0,
        cb_window_duration_secs=5.0,
        disable_circuit_breaker=True,
    )


def test_what_is_not_given_stays():
    settings = RoutingSettings(cb_failure_threshold=9, disable_retries=True)
    assert ResilienceSpec().over(settings) == settings
    assert ResilienceSpec(disable_retry=False).over(settings).disable_retries is False
    assert ResilienceSpec(max_retries=2, disable_retry=False).given == {"max_retries": 2, "disable_retry": False}


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_retries": 0},
        {"jitter_factor": 1.5},
        {"cb_success_threshold": 101},
        {"cb_timeout_secs": 0},
        {"backoff_multiplier": 0.5},
        {"retryable_status_codes": [500]},
    ],
)
def test_limits_are_those_of_the_settings_and_unknown_fields_are_refused(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, ResilienceSpec)


def test_probes_of_one_worker():
    common = Thresholds.of(FleetSettings(health_failure_threshold=3, health_check_interval_secs=10))
    own = common.overridden(WorkerSpec("a:1", health=HealthSpec(failure_threshold=9), max_connection_attempts=2))
    assert (own.failures, own.interval, own.attempts) == (9, 10, 2)


def test_a_worker_that_never_answers_is_given_up_after_its_attempts():
    health = Health(Thresholds(attempts=3), 0.0)
    assert [health.bad(number) for number in range(3)] == ["pending", "pending", "failed"]
    assert health.good() == "ready"
