import pytest

from smg.config.settings import AdmissionSettings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.routing.admission import Admission
from tests.routing.fleets import FakeFleet


def admissions(limit: int, count: int = 1) -> tuple[FakeFleet, list[Admission]]:
    fleet = FakeFleet({"m": ["w1"]})
    return fleet, [Admission(AdmissionSettings(limit), fleet.region, process) for process in range(1, count + 1)]


async def test_limiter_is_cap_it_bounds_what_runs_at_once():
    fleet, (admission,) = admissions(2)
    leases = [await admission.acquire(RequestContext(str(i))) for i in range(2)]
    with pytest.raises(GatewayError) as caught:
        await admission.acquire(RequestContext("x"))
    assert (caught.value.code, caught.value.status) == ("rate_limit_exceeded", 429)
    assert "retry-after" in caught.value.headers()
    leases[0].release()
    await admission.acquire(RequestContext("y"))
    assert fleet.region.requests_total() == 2


async def test_the_limit_holds_over_all_processes():
    _, (first, second) = admissions(1, 2)
    await first.acquire(RequestContext("a"))
    with pytest.raises(GatewayError):
        await second.acquire(RequestContext("b"))


@pytest.mark.parametrize("limit", [-1, 0])
async def test_without_a_limit_everything_is_let_in_and_counted(limit):
    fleet, (admission,) = admissions(limit)
    leases = [await admission.acquire(RequestContext(str(i))) for i in range(5)]
    assert fleet.region.requests_total() == 5
    for lease in leases:
        lease.release()
        lease.release()
    assert fleet.region.requests_total() == 0


async def test_taking_a_lease_away_cancels_its_request():
    _, (admission,) = admissions(1)
    ctx = RequestContext("a")
    lease = await admission.acquire(ctx)
    lease.cancel("preempted")
    assert ctx.cancel.reason == "preempted"
