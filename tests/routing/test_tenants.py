"""Limits of tenants: what each may start and use per minute (spec api-and-ops 4.7; routing 11: tenant_limit_e2e)."""

import pytest

from smg._native.region import Region
from smg.config.settings import AdmissionSettings
from smg.core import clock
from smg.core.context import Principal, RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Usage
from smg.routing.tenants import FREE, Charge, TenantLimits
from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics


class Clock:
    now = 1000.0


@pytest.fixture
def time(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(clock, "monotonic", lambda: made.now)
    return made


class Gateway:
    """Two processes over one region."""

    def __init__(self, **settings: object) -> None:
        self.region = Region.create(processes=4, workers=1, series=64)
        self.cells = LocalCells()
        made = AdmissionSettings(**settings)  # type: ignore[arg-type]
        self.processes = [TenantLimits(made, self.region, Metrics(self.cells, number)) for number in (1, 2)]

    def enter(self, tenant: str = "acme", process: int = 0) -> Charge:
        ctx = RequestContext("x", principal=Principal(tenant=tenant))
        return self.processes[process].enter(ctx)

    def refused(self, tenant: str = "acme", process: int = 0) -> GatewayError:
        with pytest.raises(GatewayError) as caught:
            self.enter(tenant, process)
        assert (caught.value.code, caught.value.status) == ("tenant_rate_limit_exceeded", 429)
        return caught.value


def test_without_limits_nothing_is_counted(time):
    gateway = Gateway()
    assert {gateway.enter() for _ in range(100)} == {FREE}


class TestRequests:
    def test_so_many_per_minute_start_in_all_processes_together(self, time):
        gateway = Gateway(tenant_requests_per_minute=6)
        for number in range(6):
            gateway.enter(process=number % 2)
        error = gateway.refused()
        assert error.retry_after == pytest.approx(10)
        assert error.message == "more than 6 requests per minute; try again in 10 seconds"
        gateway.refused(process=1)
        time.now += 10
        gateway.enter(process=1)
        gateway.refused()

    def test_each_tenant_has_its_own(self, time):
        gateway = Gateway(tenant_requests_per_minute=1)
        for tenant in ("acme", "key-01234567", "ip:10.0.0.1", "header:x"):
            gateway.enter(tenant)
            gateway.refused(tenant)

    def test_one_that_is_named_has_limits_of_its_own_or_none(self, time):
        gateway = Gateway(tenant_requests_per_minute=1, tenant_limit=("big=3/0", "free=0/0"))
        for _ in range(3):
            gateway.enter("big")
        gateway.refused("big")
        assert {gateway.enter("free") for _ in range(9)} == {FREE}

    def test_refusals_are_counted_and_take_nothing(self, time):
        gateway = Gateway(tenant_requests_per_minute=60)
        for _ in range(60):
            gateway.enter()
        for _ in range(5):
            gateway.refused()
        counted = {key.split(b"\0")[-1]: value for key, _, value in gateway.cells.read_series() if b"rejections" in key}
        assert counted == {b"tenant_rate_limit_exceeded": 5}
        time.now += 1
        gateway.enter()


class TestTokens:
    def test_prompt_and_answer_count_and_debt_is_waited_for(self, time):
        gateway = Gateway(tenant_tokens_per_minute=600)
        charge = gateway.enter()
        charge.take(500)
        gateway.enter(process=1)
        charge.settle(Usage(prompt_tokens=500, completion_tokens=400))
        # 300 more than there were, at 10 a second, and one that the next request needs.
        assert gateway.refused(process=1).retry_after == pytest.approx(30.1)
        time.now += 30.2
        gateway.enter()

    def test_what_was_taken_for_a_prompt_is_corrected_once_it_is_counted(self, time):
        gateway = Gateway(tenant_tokens_per_minute=100)
        charge = gateway.enter()
        charge.take(1000)
        gateway.refused()
        charge.settle(Usage(prompt_tokens=10, completion_tokens=5))
        charge.settle(Usage(prompt_tokens=10, completion_tokens=5))
        other = gateway.enter()
        other.take(85)
        gateway.refused()

    def test_a_prompt_nobody_counted_stays_taken(self, time):
        gateway = Gateway(tenant_tokens_per_minute=100)
        charge = gateway.enter()
        charge.take(60)
        charge.settle(Usage(completion_tokens=39))
        charge = gateway.enter()
        charge.take(1)
        gateway.refused()

    def test_one_that_is_out_of_tokens_spends_no_request(self, time):
        gateway = Gateway(tenant_limit=("acme=2/60",))
        gateway.enter().take(90)
        for _ in range(5):
            assert "tokens" in gateway.refused().message
        time.now += 32
        gateway.enter()
