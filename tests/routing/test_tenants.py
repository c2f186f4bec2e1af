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
        ids = {"qwen": "org/qwen-7b"}
        self.processes = [
            TenantLimits(made, self.region, Metrics(self.cells, number), lambda name: ids.get(name, name))
            for number in (1, 2)
        ]

    def enter(self, tenant: str = "acme", process: int = 0, model: str = "llama-8b") -> Charge:
        ctx = RequestContext("x", principal=Principal(tenant=tenant))
        return self.processes[process].enter(ctx, model)

    def refused(self, tenant: str = "acme", process: int = 0, model: str = "llama-8b") -> GatewayError:
        with pytest.raises(GatewayError) as caught:
            self.enter(tenant, process, model)
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


class TestModels:
    """Rules for models besides the tenant's own limits; one of them counts at most."""

    def test_a_rule_holds_for_its_model_and_no_other(self, time):
        gateway = Gateway(tenant_model_limit=("acme@llama-8b=2/0",))
        for process in (0, 1):
            gateway.enter(process=process)
        error = gateway.refused()
        assert error.message == "more than 2 requests per minute for llama-8b; try again in 30 seconds"
        assert gateway.enter(model="llama-70b") is FREE
        assert gateway.enter("other") is FREE

    def test_the_model_itself_comes_before_the_longest_beginning(self, time):
        gateway = Gateway(tenant_model_limit=("acme@llama-*=3/0", "acme@llama-8b=1/0", "acme@llama-7*=2/0"))
        for model, count in (("llama-8b", 1), ("llama-70b", 2), ("llama-405b", 3)):
            for _ in range(count):
                gateway.enter(model=model)
            gateway.refused(model=model)
        assert gateway.enter(model="qwen") is FREE

    def test_models_of_one_beginning_share_what_it_allows(self, time):
        gateway = Gateway(tenant_model_limit=("acme@llama-*=2/0",))
        gateway.enter(model="llama-8b")
        gateway.enter(model="llama-70b")
        gateway.refused(model="llama-405b")

    def test_rules_of_each_tenant_count_for_each_and_give_way_to_its_own(self, time):
        gateway = Gateway(tenant_model_limit=("*@llama-8b=1/0", "big@llama-*=3/0", "free@llama-8b=0/0"))
        for tenant, count in (("acme", 1), ("other", 1), ("big", 3)):
            for _ in range(count):
                gateway.enter(tenant)
            gateway.refused(tenant)
        assert {gateway.enter("free") for _ in range(9)} == {FREE}

    def test_another_name_of_the_model_is_no_way_around_it(self, time):
        gateway = Gateway(tenant_model_limit=("acme@org/qwen-7b=1/0",))
        gateway.enter(model="qwen")
        gateway.refused(model="org/qwen-7b")

    def test_the_tenants_own_limits_hold_as_well_and_a_refusal_takes_nothing_of_either(self, time):
        gateway = Gateway(tenant_limit=("acme=4/0",), tenant_model_limit=("acme@llama-8b=1/0",))
        gateway.enter()
        for _ in range(5):
            assert "for llama-8b" in gateway.refused().message
        for _ in range(3):
            gateway.enter(model="qwen")
        assert "for" not in gateway.refused(model="qwen").message.split(";")[0]

    def test_tokens_count_against_both(self, time):
        gateway = Gateway(tenant_limit=("acme=0/600",), tenant_model_limit=("acme@llama-8b=0/60",))
        gateway.enter().settle(Usage(prompt_tokens=50, completion_tokens=20))
        assert gateway.refused().message.startswith("more than 60 tokens per minute for llama-8b;")
        charge = gateway.enter(model="qwen")
        charge.settle(Usage(prompt_tokens=530, completion_tokens=0))
        assert gateway.refused(model="qwen").message.startswith("more than 600 tokens per minute;")
        # The rule's debt of ten tokens and the one that a request needs: a second each.
        time.now += 11.1
        gateway.enter()

    def test_no_such_model_is_told_before_anything_is_taken(self, time):
        gateway = Gateway(tenant_requests_per_minute=1, tenant_model_limit=("acme@llama-8b=1/0",))

        def unknown(name: str) -> str:
            raise GatewayError("model_not_found", f"the model '{name}' does not exist")

        gateway.processes[0]._id_of = unknown
        with pytest.raises(GatewayError, match="does not exist"):
            gateway.enter()
        gateway.enter(process=1)
