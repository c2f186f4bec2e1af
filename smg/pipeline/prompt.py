"""Tells each choice's prompt log probabilities before its first output."""

from collections.abc import Sequence

from smg.core.batch import TokenLogprobs
from smg.core.events import Event, PromptLogprobs


class PromptReport:
    """Keeps the order for the choices of one prompt.

    Engines send the rows with their first message or with their last (spec engine-contract 2.5), and not for every
    choice: output that comes earlier waits, and all choices get the same rows.
    """

    def __init__(self) -> None:
        self._rows: tuple[TokenLogprobs, ...] | None = None
        self._held: dict[int, list[Event]] = {}
        self._told: set[int] = set()

    def learn(self, rows: Sequence[TokenLogprobs] | None) -> None:
        """Take what a message says of the prompt."""
        if rows and self._rows is None:
            self._rows = tuple(rows)

    def order(self, choice: int, events: list[Event], *, last: bool = False) -> list[Event]:
        """Return what may go out now of ``choice``; with ``last`` nothing is held any more."""
        if choice in self._told:
            return events
        held = self._held.setdefault(choice, [])
        held += events
        if self._rows is None and not last:
            return []
        self._told.add(choice)
        rows: list[Event] = [] if self._rows is None else [PromptLogprobs(choice, self._rows)]
        return rows + self._held.pop(choice)
