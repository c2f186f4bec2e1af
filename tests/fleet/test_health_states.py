"""The health state machine as a table (spec routing 4.3)."""

import pytest

from smg.config.settings import FleetSettings
from smg.fleet.health import Health, Thresholds

RULES = Thresholds(failures=3, successes=2, interval=10.0, down_interval=0.5, startup_timeout=60.0)


@pytest.mark.parametrize(
    ("start", "probes", "end"),
    [
        # g: good, b: bad
        ("pending", "", "pending"),
        ("pending", "g", "pending"),
        ("pending", "gg", "ready"),
        ("pending", "gbg", "pending"),
        ("pending", "gbgg", "ready"),
        ("pending", "bbbbbbbbbbbb", "pending"),  # only time fails a pending worker
        ("ready", "bb", "ready"),
        ("ready", "bbb", "not_ready"),
        ("ready", "bbgbb", "ready"),
        ("ready", "bbgbbb", "not_ready"),
        ("not_ready", "g", "not_ready"),
        ("not_ready", "gg", "ready"),
        ("not_ready", "gbgg", "ready"),
        ("not_ready", "bbbbbbbb", "not_ready"),
        ("not_ready", "bbbbbbbbb", "failed"),
        ("ready", "bbbbbbbbb", "failed"),
        ("failed", "bbbb", "failed"),
        ("failed", "gg", "ready"),  # a killed engine may come back whenever it likes
    ],
)
def test_transitions(start, probes, end):
    health = Health(RULES, 0.0, start)
    for probe in probes:
        if probe == "g":
            health.good()
        else:
            health.bad(1.0)
    assert health.status == end


def test_a_worker_that_never_comes_up_fails_after_the_startup_timeout():
    health = Health(RULES, 100.0)
    assert health.bad(159.9) == "pending"
    assert health.bad(160.0) == "failed"


def test_failures_that_requests_saw_count():
    health = Health(RULES, 0.0, "ready")
    assert health.bad(1.0, passive=1) == "ready"
    assert health.bad(1.0, passive=1) == "not_ready"
    health = Health(RULES, 0.0, "ready")
    assert health.bad(1.0, passive=5) == "not_ready"


def test_how_long_to_wait_and_how_closely_to_look():
    health = Health(RULES, 0.0)
    assert (health.wait(), health.suspect) == (0.5, True)
    health.good()
    health.good()
    assert (health.wait(), health.suspect) == (10.0, False)
    health.bad(1.0)
    assert (health.status, health.wait(), health.suspect) == ("ready", 0.5, True)
    for _ in range(10):
        health.bad(1.0)
    assert health.status == "failed"
    assert health.wait() == 2.0


def test_thresholds_come_from_settings_and_engines_that_are_down_are_probed_every_second():
    settings = FleetSettings(
        worker_startup_check_interval=30.0,
        health_check_interval_secs=20.0,
        health_failure_threshold=5,
        health_success_threshold=4,
        worker_startup_timeout_secs=7.0,
    )
    assert Thresholds.of(settings) == Thresholds(5, 4, 20.0, 1.0, 7.0)
