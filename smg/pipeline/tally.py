"""What one generation has used: the gateway's own counts, and those that its engines tell with their batches."""

from collections.abc import Sequence

from smg.core.backends import Source, feeds_rows
from smg.core.batch import TokenBatch
from smg.core.events import Usage
from smg.pipeline.choice import Choice


class Tally:
    """Counts of a generation with ``choices``, which are its own list once they are open.

    An engine that goes on for another one counts what it was given as its prompt, so the first one's word on cached
    tokens stays (``moved``).
    """

    def __init__(self) -> None:
        self.choices: Sequence[Choice] = ()
        self._cached = 0
        self._weights = ""
        self._moved = False

    def take(self, batch: TokenBatch) -> None:
        """Note what ``batch`` tells of the generation as a whole; what it tells of its choice the choice notes."""
        if not self._moved:
            self._cached = max(self._cached, batch.cached_tokens)
        self._weights = batch.weight_version or self._weights

    def hear_out(self, source: Source) -> None:
        """A pull of ``source`` was broken off: note what the engine had told until then."""
        if feeds_rows(source):
            for batch in source.unsaid():
                self.take(batch)
                self.choices[batch.index].learn(batch)

    def moved(self) -> None:
        """Another engine goes on."""
        self._moved = True

    def usage(self, prompt_tokens: int) -> Usage:
        """All counts so far, for a prompt of ``prompt_tokens``."""
        tokens = reasoning = accepted = draft = 0
        for choice in self.choices:
            tokens += choice.tokens
            reasoning += choice.reasoning_tokens
            accepted += choice.spec_accepted_tokens
            draft += choice.spec_draft_tokens
        return Usage(prompt_tokens, tokens, self._cached, reasoning, accepted, draft, self._weights)
