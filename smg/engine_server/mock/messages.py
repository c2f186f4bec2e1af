"""Messages of the mock engine: chunks, Complete and made-up log probabilities (spec engine-contract 2.1, 2.5)."""

from collections.abc import Sequence
from typing import Any

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.engine_server.mock import tokenizer
from smg.engine_server.mock.script import Choice, Script

# The sampled token is the second best candidate everywhere, so that a gateway that forgets to sort is found out.
SAMPLED_LOGPROB = -0.5
_OTHERS = (-0.25, -1.0, -1.5, -2.0, -2.5, -3.0, -3.5, -4.0, -4.5, -5.0)


def top(token: int, count: int) -> Any:
    """``count`` candidates at one position as vLLM lists them: the sampled token first, then by rank."""
    count = min(count, len(_OTHERS) + 1)
    others = [(token + step) % tokenizer.VOCAB_SIZE for step in range(1, count)]
    values = [SAMPLED_LOGPROB, *_OTHERS[: count - 1]][:count]
    return pb.TopLogProbs(values=values, token_ids=[token, *others][:count])


def output_logprobs(ids: Sequence[int], count: int) -> Any:
    """OutputLogProbs with one row per id; ``count`` candidates each (-1: as many as the mock has)."""
    rows = len(_OTHERS) + 1 if count < 0 else count
    return pb.OutputLogProbs(
        token_logprobs=[SAMPLED_LOGPROB] * len(ids), token_ids=ids, top_logprobs=[top(token, rows) for token in ids]
    )


def input_logprobs(prompt: Sequence[int], count: int) -> Any:
    """InputLogProbs with one row per prompt id; the first has no value."""
    rows = len(_OTHERS) + 1 if count < 0 else count
    values = [
        pb.InputTokenLogProb(value=SAMPLED_LOGPROB) if place else pb.InputTokenLogProb() for place in range(len(prompt))
    ]
    tops = [top(token, rows) if place else pb.TopLogProbs() for place, token in enumerate(prompt)]
    return pb.InputLogProbs(token_logprobs=values, token_ids=prompt, top_logprobs=tops)


class Reply:
    """Builds the messages of one choice. ``prompt`` are the prompt's ids."""

    def __init__(self, script: Script, request: Any, prompt: Sequence[int], index: int, choice: Choice) -> None:
        self._script = script
        self._params = request.sampling_params
        self._stream: bool = request.stream
        self._prompt = prompt
        self._index = index
        self._choice = choice
        self._sent = 0
        self._messages = 0
        self._last: list[int] = []

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
        if not self._stream:
            return []
        out = [self._chunk([])] if self._script.empty_chunks else []
        return [*out, self._chunk(ids)]

    def complete(self, finish: str | None = None) -> Any:
        """The last message; ``finish`` replaces the planned reason (abort)."""
        repeats = self._stream and self._script.repeat_last_delta
        ids = self._last if repeats else self.sent
        delta = self._stream and self._script.delta_counts
        message = pb.GenerateComplete(
            output_ids=ids,
            finish_reason=self._choice.finish if finish is None else finish,
            prompt_tokens=len(self._prompt),
            completion_tokens=len(self._last) if delta else self._sent,
            cached_tokens=self._script.cached_tokens,
            index=self._index,
        )
        matched = self._choice.matched_stop if finish is None else None
        if isinstance(matched, str):
            message.matched_stop_str = matched
        elif matched is not None:
            message.matched_token_id = matched
        self._add_logprobs(message, ids, prompt=not self._stream)
        return pb.GenerateResponse(complete=message)

    def _chunk(self, ids: list[int]) -> Any:
        early = self._script.late_cached and self._messages == 0
        message = pb.GenerateStreamChunk(
            token_ids=ids,
            prompt_tokens=len(self._prompt),
            completion_tokens=len(ids) if self._script.delta_counts else self._sent,
            cached_tokens=0 if early else self._script.cached_tokens,
            index=self._index,
        )
        self._add_logprobs(message, ids, prompt=self._messages == 0)
        self._messages += 1
        return pb.GenerateResponse(chunk=message)

    def _add_logprobs(self, message: Any, ids: Sequence[int], *, prompt: bool) -> None:
        if self._params.HasField("logprobs"):
            message.output_logprobs.CopyFrom(output_logprobs(ids, self._params.logprobs))
        if prompt and self._params.HasField("prompt_logprobs"):
            message.input_logprobs.CopyFrom(input_logprobs(self._prompt, self._params.prompt_logprobs))
