"""Priorities of processes that stand for other machines, so that one machine can tell what a gateway does.

On a machine of its own an engine that paces tokens, or a client that notes when they come, is never late because a
gateway computes. Here it would be: it shares the processors, and its waiting for one would count as the gateway's. So
what measures runs before everything else (``ahead``), which costs the gateway the little it takes; and what only makes
load takes what is left (``aside``), as it would elsewhere.
"""

import contextlib
import os
from pathlib import Path


def ahead(*, threads: bool) -> str:
    """Run before all ordinary processes from here on; returns how: ``real-time``, ``nice -20`` or ``normal``.

    Threads and processes begun later are ordinary ones, unless ``threads``.
    """
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR | (0 if threads else os.SCHED_RESET_ON_FORK), os.sched_param(1))
        return "real-time"
    if threads:
        # Niceness is inherited, and only this process is to have it.
        with contextlib.suppress(PermissionError):
            os.setsid()
            _nice(-20)
            return "nice -20"
    return "normal"


def aside() -> None:
    """Take only what others leave; the calling process becomes the leader of a session."""
    with contextlib.suppress(PermissionError):  # it leads one already
        os.setsid()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    _nice(19)


def ordinary() -> None:
    """Undo ``aside`` or ``ahead`` where that is permitted."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        _nice(0)


def _nice(value: int) -> None:
    os.setpriority(os.PRIO_PROCESS, 0, value)
    # Where sessions are scheduled as groups, niceness counts inside of one only.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(value))
