"""The threads that decode and preprocess media: a bounded pool at lower priority, and row bands over it.

Kernels and decoders release the GIL, so threads scale. They run at a lower priority than the event loop, so that a
burst of large images delays other images and never a token (spec multimodal 18). ``turns`` says which item is next.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

from smg.core.background import step_back
from smg.core.errors import GatewayError
from smg.text.memory import give_back
from smg.vision.turns import Turns

T = TypeVar("T")

# Decoders leave holes in the heap, hundreds of megabytes after huge images; small ones are not worth the search. In
# pixels of what was decoded, and in bytes of what it became.
_HEAVY = 1 << 25
# How long nothing is to be done before the heap is searched once more. What an image becomes is let go only when its
# request is sent: the search that follows the work itself comes too early for that.
_LATE_SECS = 2.0


class Split(Protocol):
    """How the rows of one output are spread over threads."""

    def __call__(self, rows: int, work: Callable[[int, int], None]) -> None:
        """Call ``work(y0, y1)`` for ranges that together cover ``[0, rows)`` once; raises what ``work`` raises."""
        ...


def serial(rows: int, work: Callable[[int, int], None]) -> None:
    """All rows in the calling thread."""
    work(0, rows)


class _Bands:
    """Ranges of rows that any thread may take; the caller waits for those that others took."""

    def __init__(self, rows: int, count: int, work: Callable[[int, int], None]) -> None:
        self._work = work
        self._left = [(rows * i // count, rows * (i + 1) // count) for i in reversed(range(count))]
        self._running = 0
        self._error: BaseException | None = None
        self._state = threading.Condition()

    def drain(self) -> None:
        """Work until no range is left."""
        while True:
            with self._state:
                if not self._left:
                    return
                y0, y1 = self._left.pop()
                self._running += 1
            error: BaseException | None = None
            try:
                self._work(y0, y1)
            except BaseException as caught:
                error = caught
            with self._state:
                self._running -= 1
                if error is not None:
                    self._error = self._error or error
                    self._left.clear()
                self._state.notify_all()

    def wait(self) -> None:
        """Return when every range is done; raises the first error of any of them."""
        with self._state:
            self._state.wait_for(lambda: not self._left and not self._running)
        if self._error is not None:
            raise self._error


class _Job(NamedTuple):
    """Work that waits for a thread, and who waits for it."""

    work: Callable[[], Any]
    weight: int
    future: Future[Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.work()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class MediaPool:
    """At most ``threads`` media jobs at a time and ``queued`` waiting; threads start with the first job.

    Make it after the fork: a forked child has none of its parent's threads.
    """

    def __init__(self, threads: int, queued: int = 256) -> None:
        self.threads = threads
        self._limit = threads + queued
        self._jobs = 0
        self._executor = ThreadPoolExecutor(threads, "smg-vision", initializer=step_back)
        self._lock = threading.Lock()
        self._turns: Turns[_Job] = Turns()
        self._worked = 0
        # What has come together since memory was last given back late, and whether that is enough.
        self._recent = 0
        self._dirty = False
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, job: Callable[[], T], request: object = None, weight: int = 0) -> T:
        """Run ``job`` on a pool thread when it is the turn of ``request``; None is one of its own. ``weight`` is about
        what it costs, in pixels of an image.

        A cancelled caller stops waiting at once; a job that has not started is dropped.

        Raises:
            GatewayError: ``overloaded`` when too many jobs wait already; and whatever ``job`` raises.
        """
        if self._jobs >= self._limit:
            raise GatewayError("overloaded", "too many images are waiting to be processed")
        self._jobs += 1
        self._made(weight)
        future: Future[T] = Future()
        # Counted until the thread is really done with it, even if the caller has left.
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _call_soon(loop, self._done))
        with self._lock:
            self._turns.add(future if request is None else request, weight, _Job(job, weight, future))
        self._executor.submit(self._serve)
        return await asyncio.wrap_future(future)

    def _serve(self) -> None:
        """Do what is next: there is a call of this for every job."""
        with self._lock:
            job = self._turns.take()
        job.run()
        weight = job.weight
        # With it goes what the work refers to, the bytes of a request.
        del job
        with self._lock:
            self._worked += weight
            tidy = self._worked >= _HEAVY and not self._turns
            if tidy:
                self._worked = 0
        if tidy:
            give_back()

    def released(self, size: int) -> None:
        """Somebody has let go of ``size`` bytes that jobs have made. Call it on the event loop."""
        self._made(size)
        self._tidy_later()

    def _made(self, size: int) -> None:
        self._recent += size
        self._dirty = self._dirty or self._recent >= _HEAVY

    def _done(self) -> None:
        self._jobs -= 1
        self._tidy_later()

    def _tidy_later(self) -> None:
        """Give memory back in a moment, when it is quiet then."""
        if self._dirty and not self._jobs and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LATE_SECS, self._tidy)

    def _tidy(self) -> None:
        self._timer = None
        # Whoever works now comes back here when he is done.
        if not self._jobs:
            self._dirty, self._recent = False, 0
            with contextlib.suppress(RuntimeError):  # the pool is closed
                self._executor.submit(give_back)

    @property
    def jobs(self) -> int:
        """Jobs running or waiting."""
        return self._jobs

    def split(self, rows: int, work: Callable[[int, int], None]) -> None:
        """Spread rows over idle threads of the pool. Call it from one of its jobs.

        The calling thread works as well, so the job ends even when every other thread is busy.
        """
        count = min(self.threads, rows)
        if count < 2:
            return work(0, rows)
        # More ranges than threads: a thread that another process keeps off the processor then holds up less.
        bands = _Bands(rows, min(rows, 2 * count), work)
        for _ in range(count - 1):
            self._executor.submit(bands.drain)
        bands.drain()
        bands.wait()

    def close(self) -> None:
        """Drop waiting jobs and end the threads without waiting for running ones."""
        if self._timer is not None:
            self._timer.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            waiting = [self._turns.take() for _ in iter(self._turns.__bool__, False)]
        for job in waiting:
            job.future.cancel()


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed while the job ran
        loop.call_soon_threadsafe(function)
