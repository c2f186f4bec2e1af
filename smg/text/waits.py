"""What of a parsed row's text may go direct, in plain Python (``core.stream.Wait``)."""

from smg._native import sse
from smg._native.json_scan import JsonScan
from smg._native.python_scan import PythonScan
from smg.core.stream import Wait

MAX_KEPT = 64 << 10  # bytes


class Gate:
    """Lets text through up to what a parser waits for; ``due`` once that has come."""

    def __init__(self, wait: Wait) -> None:
        self.due = False
        self._wait = wait
        self._held = ""
        self._followed = 0  # characters of the expression in Python's notation

    def feed(self, text: str) -> str:
        """Take more text; returns what may leave."""
        self._held += text
        if self.due:
            return ""
        end = self._unmarked()
        if self._wait.json is not None:
            end = self._json(self._wait.json, end)
        if self._wait.python is not None:
            self._python(self._wait.python, end)
        if self._wait.kind == "held":
            self.due = self.due or len(self._held.encode()) >= MAX_KEPT
            return ""
        out, self._held = self._held[:end], self._held[end:]
        return out

    def told(self, text: str) -> str:
        """``text``, which may leave, as the client is told it."""
        return sse.escape(text).decode() if self._wait.quoted else text

    def take(self) -> str:
        """What did not leave."""
        held, self._held = self._held, ""
        return held

    def _unmarked(self) -> int:
        """Where the text ends that is no part of a marker, and cannot become one."""
        for end in range(len(self._held) + 1):
            seen = self._held[:end]
            if seen.endswith(self._wait.markers):
                self.due = True
                break
        begun = (start for start in range(end) if any(mark.startswith(seen[start:]) for mark in self._wait.markers))
        return next(begun, end)

    def _json(self, scan: JsonScan, end: int) -> int:
        """Where the text before ``end`` stops to be JSON that goes on as it stands."""
        at = scan.follow(self._held[:end])
        self.due = self.due or scan.stuck
        return at

    def _python(self, scan: PythonScan, end: int) -> None:
        """Follow the text before ``end``."""
        self._followed += scan.follow(self._held[self._followed : end])
        self.due = self.due or scan.over or scan.stuck
