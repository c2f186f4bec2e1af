"""One sequence being generated, and what it reports on the way."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from smg.engine_server.llama.model import Logits
from smg.engine_server.llama.sampling import Params, Sampler, logprobs

Candidates: TypeAlias = tuple[float, list[tuple[int, float]]]


class Token(msgspec.Struct, frozen=True):
    """A new token; ``logprobs`` as ``sampling.logprobs`` gives them, when asked for."""

    id: int
    logprobs: Candidates | None = None


class End(msgspec.Struct, frozen=True):
    """The sequence is over: ``reason`` is stop, length or abort; ``matched`` the stop id, None for the model's own."""

    reason: str
    matched: int | None = None


class Failed(msgspec.Struct, frozen=True):
    """The engine could not go on with this sequence."""

    message: str


Event: TypeAlias = Token | End | Failed


class Job:
    """A prompt on its way to an answer.

    ``limit`` is the largest number of output tokens; ``eos`` the model's end-of-sequence id (None: go past it);
    ``stops`` further ids that end it. ``candidates`` asks for log probabilities (None: none). ``leader`` is another job
    with the same prompt, whose prefill this one waits for. ``sink`` gets the events on the thread that submitted.

    The scheduler's: ``out`` are the sampled ids, ``fed`` counts prompt and output ids in the KV memory, ``cached``
    those that were there already, ``slot`` is -1 while waiting. ``cancelled`` may be set by any thread.
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
        leader: "Job | None" = None,
    ) -> None:
        self.prompt = list(prompt)
        self.sink = sink
        self.limit = limit
        self.eos = eos
        self.stops = stops
        self.index = index
        self.candidates = candidates
        self.leader = leader
        self.out: list[int] = []
        self.fed = 0
        self.cached = 0
        self.slot = -1
        self.cancelled = False
        self.over = False
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

    def take(self, logits: Logits) -> list[Event]:
        """Sample the next token; returns it, and the end if that was the last.

        The order of the checks is vLLM's: min_tokens, end of sequence, stop ids, length.
        """
        token = self._sampler.pick(logits)
        self.out.append(token)
        rows = None if self.candidates is None else logprobs(logits, token, self.candidates)
        events: list[Event] = [Token(token, rows)]
        ripe = len(self.out) >= self._min_tokens
        if ripe and token == self.eos:
            events.append(End("stop"))
        elif ripe and token in self.stops:
            events.append(End("stop", token))
        elif len(self.out) >= self.limit:
            events.append(End("length"))
        return events
