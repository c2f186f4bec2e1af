"""Files in shared memory: how tensors reach an engine on the same host without passing through its socket (spec
multimodal 13, engine-contract 2.13).

A process that was killed cleans nothing up, so its files have a mark of their own, and beside them there is one with a
lock that the kernel gives back when the process is gone, however it ended: who can take the lock knows that the files
are nobody's. Process ids, which stand in the names for people to read, tell less: containers that share the memory
count them by themselves, and they are given out again.
"""

import contextlib
import fcntl
import itertools
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

DIRECTORY = Path("/dev/shm")
# Engines take names with this beginning only, or with one that names a single contract.
_PREFIX = "smg-mm-"
_OWNER = "owner"
_NAME = re.compile(rf"{_PREFIX}g[0-9a-f]{{16}}-[0-9]+-(?:{_OWNER}|[0-9]+)")
# What the kernel takes in one call.
_MOST_PIECES = 1024
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def namespace_id() -> str:
    """What two processes have in common exactly if they share the directory; empty where there is none."""
    try:
        return f"{_BOOT_ID.read_text('ascii').strip()}:{DIRECTORY.stat().st_dev}"
    except (OSError, ValueError):
        return ""


class Folder:
    """The files of this process, made after the fork. May be used by several threads.

    Raises:
        OSError: there is no such directory, or nothing may be written there.
    """

    def __init__(self) -> None:
        self._beginning, self._lock = _owned()
        self._numbers = itertools.count()

    @property
    def owner(self) -> str:
        """How engines call the process that has made a file."""
        return f"smg:{os.getpid()}"

    def create(self) -> tuple[str, int]:
        """Make an empty file of this user only; returns its name and descriptor. Raises OSError."""
        name = f"{self._beginning}{next(self._numbers)}"
        return name, _create(DIRECTORY / name)

    def close(self) -> None:
        """Remove all of them and let go of the lock."""
        remove([path.name for path in DIRECTORY.glob(f"{self._beginning}*")])
        os.close(self._lock)


def fill(descriptor: int, pieces: Sequence[Any]) -> None:
    """Write buffers in order. That memory is full is told before anything is copied, which happens without the GIL.

    Raises:
        OSError: there is no room.
    """
    views = [view.cast("B") for piece in pieces if (view := memoryview(piece)).nbytes]
    size = sum(view.nbytes for view in views)
    if size:
        os.posix_fallocate(descriptor, 0, size)
    while views:
        written = os.writev(descriptor, views[:_MOST_PIECES])
        while views and written >= views[0].nbytes:
            written -= views.pop(0).nbytes
        if written:
            views[0] = views[0][written:]


def remove(names: Sequence[str]) -> None:
    """Remove files by their names; an engine may have done so."""
    for name in names:
        with contextlib.suppress(OSError):
            (DIRECTORY / name).unlink()


def sweep() -> int:
    """Remove the files of processes that are gone; returns how many. Raises OSError where there is no directory."""
    found: dict[str, list[str]] = {}
    with os.scandir(DIRECTORY) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                beginning, _, end = entry.name.rpartition("-")
                found.setdefault(f"{beginning}-{_OWNER}", []).extend([entry.name] if end != _OWNER else [])
    count = 0
    for owner, names in found.items():
        with _abandoned(DIRECTORY / owner) as gone:
            if gone:
                remove([*names, owner])
                count += len(names)
    return count


@contextlib.contextmanager
def _abandoned(owner: Path) -> Iterator[bool]:
    """Whether nobody holds the lock ``owner``, or has one any more; it is held until the files are removed.

    By name, not as a scan has found it: a process has its lock before it has other files, but a scan may see them in
    another order.
    """
    try:
        descriptor = os.open(owner, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield True
        return
    except OSError:
        # Another user's.
        yield False
        return
    try:
        yield _locked(descriptor)
    finally:
        os.close(descriptor)


def _owned() -> tuple[str, int]:
    """How names of this process's files begin, and the descriptor of its lock. Raises OSError."""
    while True:
        beginning = f"{_PREFIX}g{secrets.token_hex(8)}-{os.getpid()}-"
        descriptor = _create(DIRECTORY / f"{beginning}{_OWNER}")
        # Somebody may have swept it away before it was locked.
        if _locked(descriptor) and os.fstat(descriptor).st_nlink:
            return beginning, descriptor
        os.close(descriptor)


def _create(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
