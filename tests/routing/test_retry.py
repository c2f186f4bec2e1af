import pytest

from smg.config.settings import RoutingSettings
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.routing.retry import Attempts

GONE = GatewayError("worker_failed", "gone", worker_fault=True)
BUSY = GatewayError("rate_limit_exceeded", "busy", retry_after=3)
SETTINGS = RoutingSettings(retry_max_retries=3, retry_initial_backoff_ms=100, retry_max_backoff_ms=150)


def among(*workers: str):
    return lambda tried: bool(set(workers) - tried)


def attempts(settings: RoutingSettings = SETTINGS, ctx: RequestContext | None = None) -> Attempts:
    return Attempts(settings, ctx or RequestContext("r"))


def test_retry_excludes_failed_another_worker_is_tried_at_once():
    tries = attempts()
    assert tries.failed(GONE, "w1", among("w1", "w2")) == 0
    assert tries.tried == {"w1"}
    assert tries.number == 2


def test_when_all_have_failed_they_are_tried_again_after_a_growing_wait():
    tries = attempts()
    assert 0.08 <= tries.failed(GONE, "w1", among("w1")) <= 0.12
    assert tries.tried == frozenset()
    assert 0.12 <= tries.failed(GONE, "w1", among("w1")) <= 0.18


def test_attempts_are_counted_the_first_included():
    tries = attempts()
    tries.failed(GONE, "w1", among("w1"))
    tries.failed(GONE, "w1", among("w1"))
    with pytest.raises(GatewayError) as caught:
        tries.failed(GONE, "w1", among("w1"))
    assert caught.value is GONE


def test_a_busy_worker_s_retry_after_is_honoured():
    assert attempts().failed(BUSY, "w1", among("w1")) == 3


def test_a_busy_worker_is_not_waited_for_while_another_is_free():
    assert attempts().failed(BUSY, "w1", among("w1", "w2")) == 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 501])
def test_RL_01_an_error_of_the_request_is_not_tried_elsewhere(status):
    error = GatewayError("invalid_request", "no", status=status)
    with pytest.raises(GatewayError):
        attempts().failed(error, "w1", among("w1", "w2"))


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_statuses_that_are_tried_again(status):
    error = GatewayError("worker_failed", "no", status=status, worker_fault=True)
    assert attempts().failed(error, "w1", among("w2")) == 0


def test_nothing_is_retried_past_the_deadline():
    ctx = RequestContext("r", deadline=clock.monotonic() + 1)
    with pytest.raises(GatewayError):
        attempts(ctx=ctx).failed(BUSY, "w1", among("w1"))


def test_nothing_is_retried_for_a_client_that_has_gone():
    ctx = RequestContext("r")
    ctx.cancel.cancel("client_disconnect")
    with pytest.raises(GatewayError):
        attempts(ctx=ctx).failed(GONE, "w1", among("w1", "w2"))


def test_no_worker_left_at_all_ends_with_what_the_last_one_said():
    with pytest.raises(GatewayError) as caught:
        attempts().failed(GONE, "w1", among())
    assert caught.value is GONE


def test_retries_can_be_switched_off():
    with pytest.raises(GatewayError):
        attempts(RoutingSettings(disable_retries=True)).failed(GONE, "w1", among("w1", "w2"))
