"""One sequence being generated, and what it reports on the way."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from smg.engine_server.llama.guidance import ConstraintError, Matcher
from smg.engine_server.llama.model import Logits
from smg.engine_server.llama.sampling import Candidates, Params, Sampler, logprobs


class Token(msgspec.Struct, frozen=True):
    """A new token; ``logprobs`` as ``sampling.logprobs`` gives them, when asked for."""

    id: int
    logprobs: Candidates | None = None


class End(msgspec.Struct, frozen=True):
    """The sequence is over: ``reason`` is stop, length or abort; ``matched`` the stop id, None for the model's own."""

    reason: str
    matched: int | None = None


class Failed(msgspec.Struct, frozen=True):
    """The engine could not go on with this sequence; ``constraint`` tells whether its constraint is why."""

    message: str
    constraint: bool = False


Event: TypeAlias = Token | End | Failed


class Job:
    """A prompt on its way to an answer.

    ``limit`` is the largest number of output tokens; ``eos`` the model's end-of-sequence id (None: go past it);
    ``stops`` further ids that end it. ``candidates`` asks for log probabilities (None: none) and ``scored`` for those
    of the prompt. ``matcher`` constrains the output. ``leader`` is another job with the same prompt, whose prefill and
    prompt scores this one waits for. ``sink`` gets the events on the thread that submitted.

    The scheduler's: ``out`` are the sampled ids, ``fed`` counts prompt and output ids in the KV memory, ``cached``
    those that were there already, ``slot`` is -1 while waiting; ``scores`` has a row per prompt id (the first is
    None), complete before the first event. ``cancelled`` may be set by any thread.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        params: Params,
        sink: Callable[["Job", Event], None],
        *,
        limit: int,
        eos: int | None = None,
        stops: frozenset[int] = frozenset(),
        index: int = 0,
        candidates: int | None = None,
        scored: int | None = None,
        matcher: Matcher | None = None,
        leader: "Job | None" = None,
    ) -> None:
        self.prompt = list(prompt)
        self.sink = sink
        self.limit = limit
        self.eos = eos
        self.stops = stops
        self.index = index
        self.candidates = candidates
        self.scored = scored if leader is None else None
        self.scores: list[Candidates | None] = leader.scores if leader is not None else []
        self.leader = leader
        self.out: list[int] = []
        self.fed = 0
        self.cached = 0
        self.slot = -1
        self.cancelled = False
        self.over = False
        self._matcher = matcher
        self._min_tokens = params.min_tokens
        self._sampler = Sampler(params, self.prompt)

    @property
    def prefilled(self) -> bool:
        return self.fed >= len(self.prompt)

    def pending(self, room: int) -> list[int]:
        """The next ids to decode, at most ``room``."""
        if self.prefilled:
            return self.out[-1:]
        return self.prompt[self.fed : self.fed + room]

    def outputs(self, count: int) -> int:
        """After how many of the next ``count`` ids logits are needed."""
        if self.scored is not None and not self.prefilled:
            return count
        return int(self.fed + count >= len(self.prompt))

    def score(self, rows: Sequence[Logits]) -> None:
        """Note the log probabilities of the prompt's ids: ``rows`` follow the last ``len(rows)`` ids that were fed."""
        if self.scored is None or len(self.scores) >= len(self.prompt):
            return
        if not self.scores:
            # Nothing comes before the first id that could predict it.
            self.scores.append(None)
        for row in rows[: len(self.prompt) - len(self.scores)]:
            self.scores.append(logprobs(row, self.prompt[len(self.scores)], self.scored))

    def take(self, logits: Logits) -> list[Event]:
        """Sample the next token; returns it, and the end if that was the last.

        The order of the checks is vLLM's: min_tokens, end of sequence, stop ids, length. A constraint after which
        nothing can follow ends the sequence before all of these.
        """
        try:
            allowed = None if self._matcher is None else self._matcher.mask()
            token = self._sampler.pick(logits, allowed)
            if self._matcher is not None:
                self._matcher.accept(token)
        except ConstraintError as error:
            return [Failed(f"the constraint can't be followed any further: {error}", constraint=True)]
        self.out.append(token)
        rows = None if self.candidates is None else logprobs(logits, token, self.candidates)
        events: list[Event] = [Token(token, rows)]
        ripe = len(self.out) >= self._min_tokens
        if (ripe and token == self.eos) or (self._matcher is not None and self._matcher.stopped):
            events.append(End("stop"))
        elif ripe and token in self.stops:
            events.append(End("stop", token))
        elif len(self.out) >= self.limit:
            events.append(End("length"))
        return events
