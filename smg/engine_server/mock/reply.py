"""The messages of one choice, in the order a contract sends them (spec engine-contract 2.1)."""

from collections.abc import Sequence
from typing import Any

from smg.engine_server.mock.ask import Ask, Part
from smg.engine_server.mock.contract import Contract
from smg.engine_server.mock.script import Choice, Script


class Reply:
    """Builds the messages of choice number ``index`` of ``ask``. ``kv_params`` goes into the last one."""

    def __init__(self, script: Script, contract: Contract, ask: Ask, index: int, choice: Choice) -> None:
        self._script = script
        self._contract = contract
        self._ask = ask
        self._index = index
        self._choice = choice
        self.kv_params = ""
        self._sent = 0
        self._messages = 0
        self._last: list[int] = []
        self._repeats = script.complete_ids or contract.complete_ids
        self._deltas = ask.stream and (contract.delta_counts if script.delta_counts is None else script.delta_counts)

    @property
    def done(self) -> bool:
        return self._sent >= len(self._choice.ids)

    @property
    def sent(self) -> list[int]:
        """The ids produced so far."""
        return self._choice.ids[: self._sent]

    def step(self) -> list[Any]:
        """Produce the next ``per_chunk`` ids; the messages that tell of them (none when not streaming)."""
        ids = self._choice.ids[self._sent : self._sent + self._script.per_chunk]
        self._sent += len(ids)
        self._last = ids
        if not self._ask.stream:
            return []
        out = [self._chunk([])] if self._script.empty_chunks else []
        return [*out, self._chunk(ids)]

    def complete(self, finish: str | None = None) -> Any:
        """The last message; ``finish`` replaces the planned reason (abort)."""
        return self._contract.complete(
            Part(
                self._ask,
                self._index,
                self._repeated(),
                completion_tokens=len(self._last) if self._deltas else self._sent,
                cached_tokens=self._script.cached_tokens,
                prompt=None if self._ask.stream else self._ask.prompt,
                finish=self._choice.finish if finish is None else finish,
                matched=self._choice.matched_stop if finish is None else None,
                reasoning_tokens=self._script.reasoning_tokens,
                spec_tokens=self._script.spec_tokens,
                weight_version=self._script.weight_version,
                kv_params=self.kv_params,
            )
        )

    def _repeated(self) -> Sequence[int]:
        if not self._ask.stream:
            return self.sent
        return {"delta": self._last, "all": self.sent, "none": []}[self._repeats]

    def _chunk(self, ids: list[int]) -> Any:
        first = self._messages == 0
        self._messages += 1
        return self._contract.chunk(
            Part(
                self._ask,
                self._index,
                ids,
                completion_tokens=len(ids) if self._deltas else self._sent,
                cached_tokens=0 if self._script.late_cached and first else self._script.cached_tokens,
                prompt=self._ask.prompt if first else None,
                reasoning_tokens=self._script.reasoning_tokens,
                weight_version=self._script.weight_version,
            )
        )
