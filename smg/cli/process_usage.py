"""CPU time and memory of a process and everything it started, from /proc."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Process(msgspec.Struct, frozen=True):
    """One process at one moment. ``cpu`` is in seconds and includes its ended children, ``rss`` in bytes."""

    pid: int
    parent: int
    command: str
    cpu: float
    rss: int


class Usage(msgspec.Struct, frozen=True):
    """What a process tree has used between two readings.

    ``cpu_seconds`` counts children that ended in between. ``rss_mib_peak`` is the largest sum of resident sizes seen;
    memory that forked processes share is counted in each of them.
    """

    processes: int
    cpu_seconds: float
    rss_mib_peak: float
    cpu_seconds_by_command: dict[str, float]


def read(pid: int, proc: Path = Path("/proc")) -> Process | None:
    """Read one process, None when it has gone."""
    try:
        text = (proc / str(pid) / "stat").read_text("utf-8", "replace")
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    # The name stands in brackets and may hold brackets and spaces itself.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    ticks = sum(int(field) for field in fields[11:15])
    return Process(
        pid=pid,
        parent=int(fields[1]),
        command=_title(words) or head.partition("(")[2],
        cpu=ticks / _TICK,
        rss=int(fields[21]) * _PAGE,
    )


def _title(words: Sequence[bytes]) -> str:
    """Short name of a command line: its program, or the script or module a Python interpreter runs."""
    names = [word.decode("utf-8", "replace") for word in words if word]
    if not names:
        return ""
    if Path(names[0]).name.startswith("python"):
        rest = [name for name in names[1:] if name == "-m" or not name.startswith("-")]
        names = rest[1:] if rest[:1] == ["-m"] else rest or names
    return Path(names[0]).name if names else ""


def tree(pid: int, proc: Path = Path("/proc")) -> list[Process]:
    """``pid`` and all its descendants, ``pid`` first; empty when it has gone."""
    children: dict[int, list[Process]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and (process := read(int(entry.name), proc)):
            children.setdefault(process.parent, []).append(process)
    first = read(pid, proc)
    found = [first] if first else []
    for process in found:  # grows while it is walked
        found += children.get(process.pid, [])
    return found


class Meter:
    """Measures a process tree from its creation on; call ``sample`` now and then for the peak of memory.

    Raises:
        ProcessLookupError: there is no such process.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._proc = proc
        self._before = {process.pid: process for process in self._tree()}
        self._peak = 0
        self.sample()

    def _tree(self) -> list[Process]:
        found = tree(self._pid, self._proc)
        if not found:
            raise ProcessLookupError(f"there is no process {self._pid}")
        return found

    def sample(self) -> None:
        self._peak = max(self._peak, sum(process.rss for process in tree(self._pid, self._proc)))

    def usage(self) -> Usage:
        """What was used since the start. Raises ProcessLookupError when the process has gone."""
        self.sample()
        after = self._tree()
        by_command: dict[str, float] = {}
        for process in after:
            before = self._before.get(process.pid)
            used = process.cpu - (before.cpu if before else 0.0)
            by_command[process.command] = round(by_command.get(process.command, 0.0) + used, 3)
        return Usage(
            processes=len(after),
            cpu_seconds=round(sum(by_command.values()), 3),
            rss_mib_peak=round(self._peak / (1 << 20), 1),
            cpu_seconds_by_command=by_command,
        )
