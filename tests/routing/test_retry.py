import pytest

from smg.config.settings import RoutingSettings
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.fleet.resilience import ResilienceSpec
from smg.routing.pairing import PartnerFailed
from smg.routing.retry import BUDGET_FLOOR, BUDGET_WINDOW_SECS, REFUSED_SECS, Attempts, RetryBudget
from smg.routing.targets import TargetDown

GONE = GatewayError("worker_failed", "gone", worker_fault=True)
NOBODY = GatewayError("no_available_workers", "nobody")
BUSY = GatewayError("rate_limit_exceeded", "busy", retry_after=3)
SETTINGS = RoutingSettings(retry_max_retries=3, retry_initial_backoff_ms=100, retry_max_backoff_ms=150)


def among(*workers: str):
    return lambda tried: bool(set(workers) - tried)


def never() -> None:
    return None


def attempts(settings: RoutingSettings = SETTINGS, ctx: RequestContext | None = None) -> Attempts:
    return Attempts(settings, ctx or RequestContext("r"), RetryBudget())


def test_retry_excludes_failed_another_worker_is_tried_at_once():
    tries = attempts()
    assert tries.failed(GONE, "w1", among("w1", "w2"), never) == 0
    assert tries.tried == {"w1"}
    assert tries.number == 2


def test_when_all_have_failed_they_are_tried_again_after_a_growing_wait():
    tries = attempts()
    assert 0.08 <= tries.failed(GONE, "w1", among("w1"), never) <= 0.12
    assert tries.tried == frozenset()
    assert 0.12 <= tries.failed(GONE, "w1", among("w1"), never) <= 0.18


def test_attempts_are_counted_the_first_included():
    tries = attempts()
    tries.failed(GONE, "w1", among("w1"), never)
    tries.failed(GONE, "w1", among("w1"), never)
    with pytest.raises(GatewayError) as caught:
        tries.failed(GONE, "w1", among("w1"), never)
    assert caught.value is GONE


def test_a_busy_worker_s_retry_after_is_honoured():
    assert attempts().failed(BUSY, "w1", among("w1"), never) == 3


def test_a_busy_worker_is_not_waited_for_while_another_is_free():
    assert attempts().failed(BUSY, "w1", among("w1", "w2"), never) == 0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 501])
def test_RL_01_an_error_of_the_request_is_not_tried_elsewhere(status):
    error = GatewayError("invalid_request", "no", status=status)
    with pytest.raises(GatewayError):
        attempts().failed(error, "w1", among("w1", "w2"), never)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_statuses_that_are_tried_again(status):
    error = GatewayError("worker_failed", "no", status=status, worker_fault=True)
    assert attempts().failed(error, "w1", among("w2"), never) == 0


def test_nothing_is_retried_past_the_deadline():
    ctx = RequestContext("r", deadline=clock.monotonic() + 1)
    with pytest.raises(GatewayError):
        attempts(ctx=ctx).failed(BUSY, "w1", among("w1"), never)


def test_nothing_is_retried_for_a_client_that_has_gone():
    ctx = RequestContext("r")
    ctx.cancel.cancel("client_disconnect")
    with pytest.raises(GatewayError):
        attempts(ctx=ctx).failed(GONE, "w1", among("w1", "w2"), never)


def test_no_worker_left_at_all_ends_with_what_the_last_one_said():
    with pytest.raises(GatewayError) as caught:
        attempts().failed(GONE, "w1", among(), never)
    assert caught.value is GONE


class TestCircuitBreakers:
    def test_when_only_breakers_hold_the_workers_back_the_first_to_admit_is_waited_for(self):
        tries = attempts(RoutingSettings(retry_max_backoff_ms=5000))
        assert tries.failed(GONE, "w1", among(), lambda: 2.0) == 2.0
        assert tries.refused(NOBODY, lambda: 1.5) == 1.5
        assert tries.tried == frozenset()

    def test_half_open_ones_are_asked_again_after_the_usual_wait(self):
        assert 0.08 <= attempts().refused(NOBODY, lambda: 0.0) <= 0.12

    def test_a_long_pause_is_told_to_the_client_instead(self):
        with pytest.raises(GatewayError) as caught:
            attempts().refused(NOBODY, lambda: 60.0)
        assert caught.value is NOBODY

    @pytest.mark.parametrize("code", ["model_not_found", "unsupported_parameter"])
    def test_what_no_wait_can_mend_is_not_waited_for(self, code):
        with pytest.raises(GatewayError):
            attempts().refused(GatewayError(code, "no"), lambda: 0.0)

    def test_waits_are_no_attempts_and_need_no_budget_but_end_some_time(self):
        tries = Attempts(RoutingSettings(retry_max_backoff_ms=5000), RequestContext("r"), RetryBudget(0.0))
        waits = []

        def wait_on() -> None:
            while True:
                waits.append(tries.refused(NOBODY, lambda: 0.0))

        with pytest.raises(GatewayError) as caught:
            wait_on()
        assert caught.value is NOBODY
        assert tries.number == 1
        assert 3 < sum(waits) <= 5
        assert max(waits) <= REFUSED_SECS

    def test_nobody_waits_where_retries_are_switched_off_or_past_the_deadline(self):
        with pytest.raises(GatewayError):
            attempts(RoutingSettings(disable_retries=True)).refused(NOBODY, lambda: 0.0)
        ctx = RequestContext("r", deadline=clock.monotonic() + 0.5)
        with pytest.raises(GatewayError):
            attempts(RoutingSettings(), ctx).refused(NOBODY, lambda: 1.0)


class TestABrokenStream:
    def test_goes_on_on_another_worker_only(self):
        tries = attempts()
        tries.broke(GONE, "w1", among("w1", "w2"))
        assert (tries.number, tries.tried) == (2, {"w1"})
        with pytest.raises(GatewayError) as caught:
            tries.broke(GONE, "w2", among("w1", "w2"))
        assert caught.value is GONE


class TestBudget:
    @pytest.fixture
    def now(self, monkeypatch):
        now = [1000.0]
        monkeypatch.setattr(clock, "monotonic", lambda: now[0])
        return now

    def test_a_fifth_of_the_requests_of_the_window(self, now):
        budget = RetryBudget(0.2)
        for _ in range(100):
            budget.request()
        assert sum(budget.take() for _ in range(50)) == 20
        now[0] += BUDGET_WINDOW_SECS
        assert sum(budget.take() for _ in range(50)) == BUDGET_FLOOR

    def test_the_half_before_still_counts(self, now):
        budget = RetryBudget(0.2)
        assert sum(budget.take() for _ in range(50)) == BUDGET_FLOOR
        now[0] += BUDGET_WINDOW_SECS / 2
        assert not budget.take()

    def test_the_first_attempt_on_another_worker_is_free(self):
        budget = RetryBudget(0.0)
        while budget.take():
            pass
        tries = Attempts(SETTINGS, RequestContext("r"), budget)
        assert tries.failed(GONE, "w1", among("w1", "w2", "w3"), never) == 0
        with pytest.raises(GatewayError) as caught:
            tries.failed(GONE, "w2", among("w1", "w2", "w3"), never)
        assert caught.value is GONE


def test_retries_can_be_switched_off():
    with pytest.raises(GatewayError):
        attempts(RoutingSettings(disable_retries=True)).failed(GONE, "w1", among("w1", "w2"), never)


def test_a_named_worker_that_is_down_is_not_waited_for():
    error = TargetDown()
    with pytest.raises(TargetDown) as caught:
        attempts().refused(error, lambda: 0.0)
    assert caught.value is error


def test_a_named_worker_that_has_just_failed_is_asked_once_more():
    tries = attempts()
    assert tries.failed(GONE, "w1", among("w1", "w2"), never) == 0
    assert 0 < tries.refused(TargetDown(), lambda: 0.0) <= 0.12
    assert tries.tried == frozenset()
    with pytest.raises(TargetDown):
        tries.refused(TargetDown(), lambda: 0.0)


def test_PD_01_each_leg_of_a_pair_may_be_replaced_once_without_the_budget():
    budget = RetryBudget()
    while budget.take():
        pass
    attempts = Attempts(RoutingSettings(), RequestContext("r"), budget)
    prefill = PartnerFailed(GatewayError("worker_failed", "gone", worker_fault=True), "p1")
    decode = GatewayError("worker_failed", "gone", worker_fault=True)
    assert attempts.failed(prefill, "p1", lambda _: True, lambda: None) == 0.0
    assert attempts.failed(decode, "d1", lambda _: True, lambda: None) == 0.0
    for again in (prefill, decode):
        with pytest.raises(GatewayError):
            attempts.failed(again, "p2", lambda _: True, lambda: None)


class TestAWorkerWithNumbersOfItsOwn:
    def test_how_often_is_for_the_worker_that_failed_to_say(self):
        tries, many = attempts(), ResilienceSpec(max_retries=5)
        for number in range(4):
            assert tries.failed(GONE, f"w{number}", among("w8", "w9"), never, many) == 0
        with pytest.raises(GatewayError):
            tries.failed(GONE, "w5", among("w8", "w9"), never, many)

    def test_after_another_one_the_settings_hold_again(self):
        tries = attempts()
        for number in range(3):
            tries.failed(GONE, f"w{number}", among("w8", "w9"), never, ResilienceSpec(max_retries=5))
        with pytest.raises(GatewayError):
            tries.failed(GONE, "w4", among("w8", "w9"), never)

    def test_it_may_not_want_any(self):
        with pytest.raises(GatewayError):
            attempts().failed(GONE, "w1", among("w1", "w2"), never, ResilienceSpec(disable_retry=True))
        with pytest.raises(GatewayError):
            attempts().broke(GONE, "w1", among("w1", "w2"), ResilienceSpec(disable_retry=True))

    def test_how_long_to_wait(self):
        own = ResilienceSpec(initial_backoff_ms=900, max_backoff_ms=5000, backoff_multiplier=2, jitter_factor=0)
        tries = attempts()
        waits = [tries.failed(GONE, "w1", among("w1"), never, own) for _ in range(2)]
        assert waits == [0.9, 1.8]
