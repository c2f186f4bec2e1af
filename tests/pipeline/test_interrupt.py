"""Awaits that the request's context can break off."""

import asyncio

import pytest

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.pipeline.interrupt import Interrupt


@pytest.fixture
def ctx():
    return RequestContext("r")


def later(ctx, reason):
    asyncio.get_running_loop().call_soon(ctx.cancel.cancel, reason)


async def test_an_await_that_ends_returns_its_result(ctx):
    assert await Interrupt(ctx).run(asyncio.sleep(0, "done")) == "done"


async def test_cancellation_becomes_the_error_of_its_reason(ctx):
    later(ctx, "deadline")
    with pytest.raises(GatewayError) as caught:
        await Interrupt(ctx).run(asyncio.sleep(60))
    assert (caught.value.code, caught.value.status) == ("deadline_exceeded", 504)
    # The task goes on as if nothing had happened.
    await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0


async def test_nothing_starts_after_the_cancellation(ctx):
    ctx.cancel.cancel("shutdown")
    with pytest.raises(GatewayError):
        await Interrupt(ctx).run(asyncio.sleep(60))


async def test_cancellation_of_the_task_passes_through(ctx):
    task = asyncio.create_task(Interrupt(ctx).run(asyncio.sleep(60)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_when_both_are_cancelled_the_task_s_wins(ctx):
    task = asyncio.create_task(Interrupt(ctx).run(asyncio.sleep(60)))
    await asyncio.sleep(0)
    ctx.cancel.cancel("deadline")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_result_that_comes_in_the_same_moment_is_not_lost(ctx):
    async def cancels_and_returns():
        ctx.cancel.cancel("deadline")
        return "done"

    assert await Interrupt(ctx).run(cancels_and_returns()) == "done"
    await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0


async def test_a_closed_interrupt_leaves_the_context_alone(ctx):
    interrupt = Interrupt(ctx)
    interrupt.close()
    later(ctx, "deadline")
    assert await interrupt.run(asyncio.sleep(0.01, "done")) == "done"


class TestFail:
    ERROR = GatewayError("upstream_timeout", "silent", worker_fault=True)

    async def test_it_ends_the_await_that_runs_and_only_that(self):
        interrupt = Interrupt(RequestContext("r"))
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, interrupt.fail, self.ERROR)
        with pytest.raises(GatewayError) as caught:
            await interrupt.run(asyncio.sleep(10))
        assert caught.value is self.ERROR
        assert interrupt.failed
        assert not interrupt.waiting
        assert await interrupt.run(asyncio.sleep(0, "next")) == "next"
        assert not interrupt.failed

    async def test_nothing_happens_while_nothing_is_awaited(self):
        interrupt = Interrupt(RequestContext("r"))
        interrupt.fail(self.ERROR)
        assert await interrupt.run(asyncio.sleep(0, "fine")) == "fine"

    async def test_a_cancelled_request_stays_cancelled(self):
        ctx = RequestContext("r")
        interrupt = Interrupt(ctx)
        asyncio.get_running_loop().call_later(0.01, ctx.cancel.cancel, "deadline")
        with pytest.raises(GatewayError) as caught:
            await interrupt.run(asyncio.sleep(10))
        assert (caught.value.code, interrupt.failed) == ("deadline_exceeded", False)
