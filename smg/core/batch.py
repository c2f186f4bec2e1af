"""TokenBatch: what an engine driver yields (spec engine-contract 9).

Drivers normalise every quirk of their engine (2.1 to 2.5 there), so that later stages never branch on the engine.
"""

import msgspec


class TokenLogprobs(msgspec.Struct, frozen=True):
    """Log probabilities of one sampled token.

    ``token`` is the sampled id, ``logprob`` its natural logarithm of probability, or None where an engine has no value
    (the first prompt token). ``top`` lists (id, logprob) of the best candidates, best first, without duplicates.
    """

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


class TokenBatch(msgspec.Struct):
    """New tokens of one choice, as one engine message brought them.

    ``ids`` are new ids only, never repeated ones. ``logprobs`` is None or has one row per id. ``finish`` is None while
    the choice runs, else ``stop``, ``length``, ``abort`` or ``error``; ``matched_stop`` is the engine's own report
    (token id or string). ``prompt_tokens`` and ``cached_tokens`` are the engine's counts (0: not told yet).
    """

    index: int = 0
    ids: list[int] = msgspec.field(default_factory=list)
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    finish: str | None = None
    matched_stop: int | str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    spec_accepted_tokens: int = 0
    spec_draft_tokens: int = 0
    kv_params: bytes | None = None
    weight_version: str = ""
