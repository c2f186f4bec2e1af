"""Stop strings on a stream of text (spec text-pipeline 5).

Among several matches the one that ends first wins, of those that end together the longest: the only rule that does not
depend on how the text was cut. Held back is the longest tail that could still become a stop string, and nothing else.
"""

from collections.abc import Sequence


class StopScanner:
    """Looks for ``stops`` (non-empty strings) in the text of one choice; ``visible`` keeps the match in the text.

    ``matched`` is the stop string once one was found; ``held`` the text that waits for a decision.
    """

    def __init__(self, stops: Sequence[str], visible: bool = False) -> None:
        if "" in stops:
            raise ValueError("an empty stop string matches everywhere")
        self._stops = tuple(stops)
        self._visible = visible
        # A prefix ends in one of its stop's characters: lengths to try, by last character, longest first. A whole stop
        # string that does not count is one, too: it may be the beginning of a longer one.
        self._prefixes: dict[str, list[tuple[int, str]]] = {}
        for stop in self._stops:
            for length in range(1, len(stop) + 1):
                self._prefixes.setdefault(stop[length - 1], []).append((length, stop[:length]))
        for prefixes in self._prefixes.values():
            prefixes.sort(reverse=True)
        self.held = ""
        self.matched: str | None = None

    def feed(self, text: str, early: bool = False) -> str:
        """Take new text and return what may be sent. After a match nothing comes any more.

        ``early``: a stop string that is complete with this text does not count, one that only begins in it may yet.
        """
        if self.matched is not None:
            return ""
        seen = len(self.held)
        text = self.held + text
        found = min(
            (
                (at + len(stop), -len(stop), stop)
                for stop in self._stops
                if (at := text.find(stop, max(0, seen - len(stop) + 1))) >= 0
            ),
            default=None,
        )
        if found is not None and not early:
            end, _, self.matched = found
            self.held = ""
            return text[:end] if self._visible else text[: end - len(self.matched)]
        cut = len(text) - self._undecided(text)
        self.held = text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """The text is over: return what was held."""
        text, self.held = self.held, ""
        return text

    def _undecided(self, text: str) -> int:
        """Length of the longest tail of ``text`` that is a prefix of a stop string."""
        for length, prefix in self._prefixes.get(text[-1:], ()):
            if text.endswith(prefix):
                return length
        return 0
