"""Admission: a true cap over all processes, and one fair, bounded line before it (case LM-01)."""

import asyncio
from types import SimpleNamespace

import pytest

from smg._native.region import Region
from smg.config.settings import AdmissionSettings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.routing import waiting
from smg.routing.admission import Admission, AdmissionLease
from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics


class Gateway(SimpleNamespace):
    """``processes`` admissions over one region."""

    region: Region
    processes: list[Admission]
    cells: LocalCells

    def counts(self) -> tuple[int, int]:
        """(running, waiting)"""
        return self.region.requests_total(), self.region.waiting_total()

    def metric(self, name: str) -> dict[str, int]:
        series = ((key.decode().split("\0"), value) for key, _, value in self.cells.read_series())
        return {names[-1]: value for names, value in series if names[0] == f"smg_{name}"}


def gateway(limit: int, queue: int = 0, processes: int = 1, seconds: float = 60.0, rate: int = 0) -> Gateway:
    region, cells = Region.create(processes=5, workers=1, series=64), LocalCells()
    settings = AdmissionSettings(limit, queue, seconds, rate)
    admissions = [Admission(settings, region, number, Metrics(cells, 0)) for number in range(1, processes + 1)]
    return Gateway(region=region, processes=admissions, cells=cells)


async def refused(admission: Admission) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        await admission.acquire(RequestContext("x"))
    return caught.value


def asking(admission: Admission) -> "asyncio.Task[AdmissionLease]":
    return asyncio.create_task(admission.acquire(RequestContext("x")))


async def turn() -> None:
    """Let everything run that can run now."""
    for _ in range(5):
        await asyncio.sleep(0)


async def admitted(*tasks: "asyncio.Task[AdmissionLease]") -> list[AdmissionLease]:
    async with asyncio.timeout(5):
        return [await task for task in tasks]


class TestWithoutALine:
    async def test_limiter_is_cap_on_what_runs_at_once(self):
        place = gateway(2)
        (admission,) = place.processes
        leases = [await admission.acquire(RequestContext(str(i))) for i in range(2)]
        error = await refused(admission)
        assert (error.code, error.status) == ("rate_limit_exceeded", 429)
        assert "retry-after" in error.headers()
        leases[0].release()
        await admission.acquire(RequestContext("y"))
        assert place.counts() == (2, 0)
        assert place.metric("admission_rejections_total") == {"rate_limit_exceeded": 1}

    async def test_the_limit_holds_over_all_processes(self):
        first, second = gateway(1, processes=2).processes
        await first.acquire(RequestContext("a"))
        await refused(second)

    @pytest.mark.parametrize("limit", [-1, 0])
    async def test_without_a_limit_everything_is_let_in_and_counted(self, limit):
        place = gateway(limit, queue=1)
        (admission,) = place.processes
        admission.check()
        leases = [await admission.acquire(RequestContext(str(i))) for i in range(5)]
        assert place.counts() == (5, 0)
        for lease in leases:
            lease.release()
            lease.release()
        assert place.counts() == (0, 0)

    async def test_taking_a_lease_away_cancels_its_request(self):
        ctx = RequestContext("a")
        lease = await gateway(1).processes[0].acquire(ctx)
        lease.cancel("preempted")
        assert ctx.cancel.reason == "preempted"


class TestTheLine:
    async def test_LM_01_two_run_one_waits_one_is_refused(self):
        place = gateway(2, queue=1)
        (admission,) = place.processes
        tasks = [asking(admission) for _ in range(4)]
        await turn()
        assert [task.done() for task in tasks] == [True, True, False, True]
        error = tasks[3].exception()
        assert (error.code, error.status) == ("queue_full", 429)
        assert error.headers()["retry-after"] == "1"
        assert place.counts() == (2, 1)
        tasks[0].result().release()
        await admitted(tasks[2])
        assert place.counts() == (2, 0)
        assert place.metric("admission_rejections_total") == {"queue_full": 1}

    async def test_LM_01_the_line_is_bounded_over_all_processes(self):
        place = gateway(1, queue=2, processes=3)
        first, second, third = place.processes
        await first.acquire(RequestContext("a"))
        waiting_ones = [asking(second), asking(third)]
        await turn()
        for admission in place.processes:
            assert (await refused(admission)).code == "queue_full"
        assert place.counts() == (1, 2)
        for task in waiting_ones:
            task.cancel()

    async def test_what_would_be_refused_is_known_before_it_is_prepared(self):
        (admission,) = gateway(1, queue=1).processes
        admission.check()
        await admission.acquire(RequestContext("a"))
        admission.check()
        task = asking(admission)
        await turn()
        with pytest.raises(GatewayError, match="waiting"):
            admission.check()
        task.cancel()

    async def test_who_comes_first_goes_first_in_whatever_process(self):
        place = gateway(1, queue=10, processes=3)
        first, second, third = place.processes
        lease = await first.acquire(RequestContext("a"))
        order: list[int] = []

        async def one(number: int, admission: Admission) -> None:
            own = await admission.acquire(RequestContext("x"))
            order.append(number)
            await turn()
            own.release()

        tasks = []
        for number, admission in enumerate([second, first, third, third, second, first]):
            tasks.append(asyncio.create_task(one(number, admission)))
            await turn()
        lease.release()
        async with asyncio.timeout(5):
            await asyncio.gather(*tasks)
        assert order == list(range(6))
        assert place.counts() == (0, 0)

    async def test_nobody_overtakes_who_waits_in_another_process(self):
        place = gateway(1, queue=10, processes=2)
        first, second = place.processes
        lease = await first.acquire(RequestContext("a"))
        waiter = asking(second)
        await turn()
        lease.release()
        late = asking(first)
        await admitted(waiter)
        assert not late.done()
        waiter.result().release()
        await admitted(late)

    async def test_a_stuck_process_does_not_hold_the_others_up(self):
        place = gateway(1, queue=10, processes=2)
        first, second = place.processes
        lease = await first.acquire(RequestContext("a"))
        # A process that waits first but never looks: only its ticket is there.
        place.region.waiting_head_set(3, place.region.waiting_ticket())
        waiter = asking(second)
        await turn()
        lease.release()
        await admitted(waiter)

    async def test_a_dead_process_s_place_in_the_line_goes_with_it(self):
        place = gateway(1, queue=1, processes=2)
        first, second = place.processes
        await first.acquire(RequestContext("a"))
        place.region.waiting_add(3, 1)
        place.region.waiting_head_set(3, place.region.waiting_ticket())
        assert (await refused(second)).code == "queue_full"
        place.region.clear_process(3)
        assert (place.region.waiting_total(), place.region.waiting_head()) == (0, 0)

    async def test_waiting_too_long_is_a_503(self):
        place = gateway(1, queue=10, seconds=0.02)
        (admission,) = place.processes
        lease = await admission.acquire(RequestContext("a"))
        error = await refused(admission)
        assert (error.code, error.status) == ("queue_timeout", 503)
        assert "retry-after" in error.headers()
        assert place.counts() == (1, 0)
        assert place.metric("admission_rejections_total") == {"queue_timeout": 1}
        lease.release()
        await admission.acquire(RequestContext("b"))

    async def test_RL_04_who_leaves_the_line_never_gets_a_place(self):
        place = gateway(1, queue=10)
        (admission,) = place.processes
        lease = await admission.acquire(RequestContext("a"))
        tasks = [asking(admission) for _ in range(3)]
        await turn()
        tasks[0].cancel()
        tasks[1].cancel()
        lease.release()
        await admitted(tasks[2])
        assert all(task.cancelled() for task in tasks[:2])
        assert place.counts() == (1, 0)

    async def test_a_place_given_at_the_moment_of_leaving_goes_to_the_next(self):
        place = gateway(1, queue=10)
        (admission,) = place.processes
        lease = await admission.acquire(RequestContext("a"))
        first, second = asking(admission), asking(admission)
        await turn()
        lease.release()
        first.cancel()
        await admitted(second)
        assert first.cancelled()
        assert place.counts() == (1, 0)

    async def test_a_wait_that_ends_at_the_moment_of_leaving_leaks_nothing(self, caplog):
        place = gateway(1, queue=10, seconds=0.01)
        (admission,) = place.processes
        await admission.acquire(RequestContext("a"))
        task = asking(admission)
        await turn()
        asyncio.get_running_loop().call_later(0.01, task.cancel)
        with pytest.raises((GatewayError, asyncio.CancelledError)):
            await task
        assert place.counts() == (1, 0)
        assert caplog.records == []

    async def test_waits_are_measured(self):
        place = gateway(1, queue=10)
        (admission,) = place.processes
        lease = await admission.acquire(RequestContext("a"))
        assert place.metric("admission_wait_seconds_bucket") == {}
        task = asking(admission)
        await turn()
        lease.release()
        await admitted(task)
        assert sum(place.metric("admission_wait_seconds_bucket").values()) == 1

    async def test_who_finds_the_line_full_has_not_waited(self):
        place = gateway(1, queue=1)
        (admission,) = place.processes
        await admission.acquire(RequestContext("a"))
        task = asking(admission)
        await turn()
        with pytest.raises(GatewayError, match="too many requests are waiting"):
            await admission.acquire(RequestContext("c"))
        assert place.metric("admission_wait_seconds_bucket") == {}
        task.cancel()


class Clock:
    """The monotonic clock, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("smg.core.clock.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def started(place: Gateway, asked: int) -> list[AdmissionLease]:
    """The leases of those among ``asked`` requests, over all processes in turn, that are let in."""
    leases = []
    for number in range(asked):
        try:
            leases.append(await place.processes[number % len(place.processes)].acquire(RequestContext("x")))
        except GatewayError as error:
            assert (error.code, error.status) == ("rate_limit_exceeded", 429)
            assert error.headers()["retry-after"] == "1"
    return leases


class TestTheRate:
    async def test_LM_01_a_burst_of_five_then_five_per_second_over_all_processes(self, clock):
        place = gateway(-1, processes=2, rate=5)
        assert len(await started(place, 20)) == 5
        for _ in range(10):
            clock.now += 0.2001
            assert len(await started(place, 4)) == 1
        clock.now += 1.0001
        assert len(await started(place, 20)) == 5
        # What is not used is not saved up beyond the burst.
        clock.now += 3600
        assert len(await started(place, 20)) == 5

    async def test_LM_01_the_rate_is_not_given_back_by_what_ends(self, clock):
        place = gateway(-1, rate=5)
        for lease in await started(place, 5):
            lease.release()
        assert await started(place, 5) == []

    async def test_LM_01_who_has_to_wait_goes_in_order_as_tokens_come(self, clock, monkeypatch):
        monkeypatch.setattr(waiting, "LOOK_SECS", 0.001)
        place = gateway(-1, queue=100, rate=5)
        (admission,) = place.processes
        tasks = [asking(admission) for _ in range(20)]
        await turn()
        for started_ones in range(5, 20):
            assert [task.done() for task in tasks] == [number < started_ones for number in range(20)]
            clock.now += 0.2001
            await admitted(tasks[started_ones])
        assert place.counts() == (20, 0)

    async def test_LM_01_the_message_and_retry_after_tell_of_the_rate(self, clock):
        place = gateway(3, rate=2)
        (admission,) = place.processes
        leases = await started(place, 2)
        assert "per second (limit 2)" in (await refused(admission)).message
        with pytest.raises(GatewayError, match="per second"):
            admission.check()
        clock.now += 0.5001
        leases += await started(place, 1)
        assert "at once (limit 3)" in (await refused(admission)).message

    async def test_LM_01_both_limits_hold_and_neither_spends_the_other(self, clock):
        place = gateway(2, rate=5)
        leases = await started(place, 20)
        assert len(leases) == 2
        # Those who found no place have taken nothing from the bucket: three tokens are left.
        for _ in range(3):
            leases.pop().release()
            leases += await started(place, 20)
            assert len(leases) == 2
        leases.pop().release()
        assert await started(place, 20) == []
        assert place.counts() == (1, 0)
        clock.now += 1.0001
        assert len(await started(place, 20)) == 1
        assert place.counts() == (2, 0)


async def test_the_cap_holds_while_four_processes_fight_for_it(monkeypatch):
    monkeypatch.setattr(waiting, "LOOK_SECS", 0.0005)
    place = gateway(3, queue=1000, processes=4)
    running = most = 0

    async def one(number: int) -> None:
        nonlocal running, most
        lease = await place.processes[number % 4].acquire(RequestContext("x"))
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        lease.release()

    async with asyncio.timeout(20):
        await asyncio.gather(*(one(number) for number in range(200)))
    assert most == 3
    assert place.counts() == (0, 0)
    assert place.region.waiting_head() == 0
