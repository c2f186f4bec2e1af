"""Threads for work that takes milliseconds of a processor, at a lower priority than event loops.

Who streams must not wait for who has only begun (case PF-01): at equal priority every such thread takes a share of the
processor that a loop with tokens to pass on is waiting for.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# The least there is: at 10 three such threads still took a third of a processor from the loop that shared it.
NICENESS = 19
_THREADS = 4


async def background(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run ``function`` on one of these threads and return or raise what it does."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), lambda: function(*args, **kwargs))


async def beside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run ``function`` on a thread of the event loop's own priority and return or raise what it does.

    For work that holds the GIL nearly all the time: at a low priority it would also hold it while it waits for a
    processor, and the loop with it.
    """
    return await asyncio.get_running_loop().run_in_executor(None, lambda: function(*args, **kwargs))


def start(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Have ``function``, which never raises, run on one of these threads, without anybody who waits."""
    _threads().submit(function, *args, **kwargs)


def step_back() -> None:
    """Lower the priority of the calling thread."""
    # Linux gives every thread a niceness of its own. Elsewhere, or when it is forbidden, threads keep theirs.
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


@cache
def _threads() -> ThreadPoolExecutor:
    """One pool per process, made after the fork when first needed."""
    return ThreadPoolExecutor(_THREADS, "smg-background", initializer=step_back)
