"""Breaks off an await when the request's context is cancelled."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.engines.source import cancelled_error

T = TypeVar("T")


class Interrupt:
    """Runs one await at a time so that ``ctx.cancel`` ends it, as ``asyncio.timeout`` would, but without a timer each.

    ``failed`` tells whether the last one was ended by ``fail``.

    Cancellation of the task by others passes through untouched.
    """

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._task: asyncio.Task[object] | None = None
        self._hit = False
        self._error: GatewayError | None = None
        self.failed = False
        self._remove = ctx.cancel.on_cancel(self._on_cancel)

    async def run(self, awaitable: Awaitable[T]) -> T:
        """Await ``awaitable``. Raises GatewayError when the context is cancelled meanwhile."""
        if self._ctx.cancel:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()
            raise cancelled_error(self._ctx.cancel.reason or "")
        task = asyncio.current_task()
        assert task is not None
        pending = task.cancelling()
        self._task = task
        self.failed = False
        try:
            result = await awaitable
            if self._hit:
                # The await ended in the very moment of the cancellation: take delivery of what is still due.
                self._task = None
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
                task.uncancel()
            return result
        except asyncio.CancelledError:
            if self._hit and task.uncancel() <= pending:
                self.failed = self._error is not None
                raise self._error or cancelled_error(self._ctx.cancel.reason or "") from None
            raise
        finally:
            self._task = None
            self._hit = False
            self._error = None

    @property
    def waiting(self) -> bool:
        """Whether an await runs."""
        return self._task is not None

    def fail(self, error: GatewayError) -> None:
        """End the await that runs, if any, with ``error``."""
        if self._task is not None and not self._hit:
            self._error = error
            self._on_cancel("")

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self._remove()

    def _on_cancel(self, _reason: str) -> None:
        if self._task is not None and not self._hit:
            self._hit = True
            self._task.cancel()
