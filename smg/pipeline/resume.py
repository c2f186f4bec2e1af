"""Going on elsewhere with a generation whose worker died in the middle (spec routing 6).

The prompt of the rest is the prompt and the ids that came of it, so the other worker continues where the first one
stopped and nothing is sent twice. The choice's row and parsers go on as if nothing had happened.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from smg.core.backends import EngineRequest
from smg.core.errors import GatewayError
from smg.core.request import Constraint, GenerationRequest, Limits, Sampling
from smg.routing.router import Query

_SEEDS = 2**31


def obstacle(
    request: GenerationRequest, constraint: Constraint | None, error: GatewayError, *, allowed: bool, paired: bool
) -> str:
    """What keeps another engine from going on after ``error``, in words for the log; empty: nothing.

    ``allowed`` is the operator's setting; ``paired``: a pair of engines was at it.
    """
    if not may_follow(error):
        return "others are not asked after such an error"
    if not allowed:
        return "going on elsewhere is switched off (--no-resume)"
    if paired:
        # What is cached of a pair's prompt went with the engine that died.
        return "answers of pairs cannot go on elsewhere"
    if not may_resume(request, constraint):
        return "requests with a constraint, media, several choices or prompt log probabilities cannot go on elsewhere"
    return ""


def may_resume(request: GenerationRequest, constraint: Constraint | None) -> bool:
    """Whether another engine could continue ``request``.

    Not with a constraint, whose state died with the engine; not with several choices, which only one engine can tell
    apart; not with log probabilities of the prompt, which are due before the first token; not with media, whose tensors
    nobody keeps that long.
    """
    prompt_scored = request.logprobs is not None and request.logprobs.prompt
    plain = request.n == 1 and constraint is None and next(request.media(), None) is None
    return plain and not prompt_scored and request.limits.max_tokens != 0


def may_follow(error: GatewayError) -> bool:
    """Whether ``error`` is the death of a worker, which another one may step in for."""
    return error.worker_fault and error.retryable


def rest_query(whole: Query, sampling: Sampling, taken: Sequence[int]) -> Query:
    """What the router is asked for the rest of ``whole``: the longer prompt, and what ``rest`` makes of penalties."""
    more = frozenset({"logit_bias"}) if _penalises(sampling) else frozenset()
    ids = [*whole.ids, *taken]
    return replace(whole, ids=ids, tokens=len(ids), needs=whole.needs | more)


def left(limits: Limits, taken: Sequence[int]) -> bool:
    """Whether more may be generated after the ids ``taken``."""
    return limits.max_tokens is None or limits.max_tokens > len(taken)


def rest(whole: EngineRequest, taken: Sequence[int]) -> EngineRequest:
    """What is left of ``whole`` after the ids ``taken``.

    A seed moves on, because an engine that began with it again would draw the same numbers for other tokens. Penalties
    on what was generated become a bias on its tokens: to the engine they are part of the prompt.
    """
    limits = whole.limits
    most = None if limits.max_tokens is None else limits.max_tokens - len(taken)
    sampling = whole.sampling
    if sampling.seed is not None:
        sampling = replace(sampling, seed=(sampling.seed + len(taken)) % _SEEDS)
    if _penalises(sampling):
        sampling = replace(sampling, logit_bias=_bias(sampling, taken))
    return replace(
        whole,
        ids=[*whole.ids, *taken],
        limits=Limits(most, max(limits.min_tokens - len(taken), 0)),
        sampling=sampling,
    )


def _penalises(sampling: Sampling) -> bool:
    return bool(sampling.frequency_penalty or sampling.presence_penalty)


def _bias(sampling: Sampling, taken: Sequence[int]) -> dict[int, float]:
    bias = dict(sampling.logit_bias)
    for token, count in Counter(taken).items():
        penalty = (sampling.presence_penalty or 0.0) + (sampling.frequency_penalty or 0.0) * count
        bias[token] = bias.get(token, 0.0) - penalty
    return bias
