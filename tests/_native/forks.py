"""Processes for tests that share native memory."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable

from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys


def start(body: Callable[[], None]) -> int:
    """Run ``body`` in a forked process; one that raises ends with status 1."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    return pid


def all_of(*bodies: Callable[[], None]) -> None:
    """Run all at once and wait for them."""
    pids = [start(body) for body in bodies]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)


def kill_all(pids: Iterable[int]) -> None:
    """End what is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def planes(index: PrefixIndex, keys: PrefixKeys, slots: range | list[int]) -> list[tuple[int, int]]:
    """(approximate, exact) depth of each slot."""
    return list(zip(index.depth(keys, slots, 0), index.depth(keys, slots, 1), strict=True))


def settle(index: PrefixIndex) -> None:
    """Write what could not be written at once."""
    while index.flush():
        os.sched_yield()
