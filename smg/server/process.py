"""Forked children: how they start, what ties them to their parent, and how their end is told."""

import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn

log = logging.getLogger("smg.server")

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# Loaded before any fork: a child must not import its way into a half-copied process.
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class Child(NamedTuple):
    """A running child. ``pidfd`` becomes readable when it ends, and can't be taken for another process."""

    pid: int
    pidfd: int


def fork(body: Callable[[], int | None], close: Iterable[int] = (), name: str = "smg") -> Child:
    """Fork a child that runs ``body`` and exits with its return value (None: 0; an exception: 1, logged).

    The child leads a session of its own, is killed when the parent dies, has default signal handlers (SIGHUP, SIGINT
    and SIGUSR1 are ignored until it says otherwise) and none of the descriptors in ``close``. ``name`` (15 bytes) is
    what ps and top call it.
    """
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    # Held back until the child has put the parent's handlers away.
    everything = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        _run(body, parent, close, everything, name)
    signal.pthread_sigmask(signal.SIG_SETMASK, everything)
    return Child(pid, os.pidfd_open(pid))


def spawn(command: list[str]) -> Child:
    """Start another program as a child, tied to the parent as ``fork`` does; its standard streams are ours."""

    def execute() -> NoReturn:
        os.execv(command[0], command)

    return fork(execute)


def _run(body: Callable[[], int | None], parent: int, close: Iterable[int], mask: set[Any], name: str) -> NoReturn:
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        os.setsid()
        _prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
        die_with_parent(parent)
        for descriptor in close:
            os.close(descriptor)
        # Standard input may be the supervisor's lifeline, and a free number 0 would go to the next file opened.
        nothing = os.open(os.devnull, os.O_RDONLY)
        if nothing != 0:
            os.dup2(nothing, 0)
            os.close(nothing)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        status = body() or 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        log.exception("a process failed")
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # Never back into the parent's stack, and none of its exit handlers.
            os._exit(status)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends (PR_SET_PDEATHSIG), also if it has ended already."""
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_PDEATHSIG failed")
    if os.getppid() != parent:
        os._exit(1)


def reap(child: Child) -> str:
    """Collect a child that has ended and say how: ``exit code 3`` or ``SIGKILL``."""
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pidfd)
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def send(child: Child, number: signal.Signals) -> None:
    """Signal a child; one that has just ended is fine."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(child.pidfd, number)
