"""What the answer says of each generation: ids, finish reason, counts and log probabilities (spec text-pipeline 13)."""

from collections.abc import Sequence

from msgspec import UNSET

from smg.api.dialect import Meta
from smg.api.generate.decode import GenerateOptions
from smg.api.generate.types import FinishReason, MetaInfo, TokenLogprob
from smg.api.openai_parts import UNLIKELY
from smg.core import clock
from smg.core.batch import TokenLogprobs
from smg.core.context import RequestContext
from smg.core.events import Finish, Usage
from smg.core.stream import Decoder


class Facts:
    """Makes the ``meta_info`` of every choice of one request."""

    def __init__(self, ctx: RequestContext, meta: Meta) -> None:
        options = meta.request.options
        self.options = options if isinstance(options, GenerateOptions) else GenerateOptions()
        self.probs = meta.request.logprobs is not None
        self.top = meta.request.logprobs is not None and meta.request.logprobs.top > 0
        self._ctx = ctx
        self._n = meta.request.n
        self._decoder = meta.decoder

    def info(self, choice: int, usage: Usage, tokens: int, finish: Finish | None) -> MetaInfo:
        """Everything but log probabilities, for a choice that has ``tokens`` output tokens so far."""
        part = usage.part(choice // self._n)
        if not tokens and self._n == 1:
            # Of engines that make the text themselves only the count is known.
            tokens = part.completion_tokens
        info = MetaInfo(
            id=self._id(choice),
            finish_reason=None if finish is None else _reason(finish, tokens),
            prompt_tokens=part.prompt_tokens,
            completion_tokens=tokens,
            cached_tokens=part.cached_tokens,
            reasoning_tokens=part.reasoning_tokens,
            weight_version=part.weight_version or "default",
        )
        if finish is not None:
            info.e2e_latency = round(clock.monotonic() - self._ctx.started, 6)
            info.matched_stop = UNSET if finish.matched_stop is None else finish.matched_stop
        return info

    def wanted(self, rows: Sequence[TokenLogprobs]) -> Sequence[TokenLogprobs]:
        """The prompt's rows from where the client wants them."""
        return () if self.options.start is None else rows[self.options.start :]

    def tokens(self, rows: Sequence[TokenLogprobs]) -> list[TokenLogprob]:
        """One entry per token."""
        return [self._entry(row.token, row.logprob) for row in rows]

    def tops(self, rows: Sequence[TokenLogprobs]) -> list[list[TokenLogprob] | None]:
        """The best candidates per token, null where there are none (the first prompt token)."""
        return [[self._entry(token, value) for token, value in row.top] or None for row in rows]

    def _entry(self, token: int, value: float | None) -> TokenLogprob:
        return value, token, _text(token, self._decoder) if self.options.texts else None

    def _id(self, choice: int) -> str:
        ids = self.options.ids
        if not self.options.several:
            return ids[0] if ids else self._ctx.request_id
        if len(ids) > 1:
            own = ids[choice // self._n]
            return own if self._n == 1 else f"{own}-{choice % self._n}"
        return f"{ids[0] if ids else self._ctx.request_id}-{choice}"


def _reason(finish: Finish, tokens: int) -> FinishReason:
    if finish.reason == "length":
        return FinishReason("length", length=tokens)
    return FinishReason(finish.reason, matched=finish.matched_stop)


def _text(token: int, decoder: Decoder) -> str:
    if not 0 <= token < decoder.size:
        return f"<token_{token}>"
    return decoder.token_bytes(token).decode("utf-8", "replace")


def known(rows: Sequence[TokenLogprobs]) -> list[TokenLogprobs]:
    """Output rows with a number everywhere: engines leave out what could hardly be sampled."""
    return [row if row.logprob is not None else TokenLogprobs(row.token, UNLIKELY, row.top) for row in rows]
