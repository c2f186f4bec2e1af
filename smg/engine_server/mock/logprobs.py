"""Made-up log probabilities (spec engine-contract 2.5).

The sampled token is the second best candidate everywhere, so that a gateway that forgets to sort is found out.
"""

from collections.abc import Sequence
from typing import Any

from smg.engine_server.mock import tokenizer

SAMPLED_LOGPROB = -0.5
_OTHERS = (-0.25, -1.0, -1.5, -2.0, -2.5, -3.0, -3.5, -4.0, -4.5, -5.0)
_MOST = len(_OTHERS) + 1


def sampled_first(token: int, count: int) -> list[tuple[int, float]]:
    """``count`` candidates (-1: all) as vLLM lists them: the sampled token, then the others by rank."""
    return [(token, SAMPLED_LOGPROB), *_others(token)][: _MOST if count < 0 else count]


def best_first(token: int, count: int) -> list[tuple[int, float]]:
    """``count`` candidates (-1: all), the best first."""
    return sorted(sampled_first(token, -1), key=lambda pair: -pair[1])[: _MOST if count < 0 else count]


def output(pb: Any, ids: Sequence[int], tops: Sequence[list[tuple[int, float]]]) -> Any:
    """An OutputLogProbs of the contract ``pb``: one row per id, ``tops`` are its candidates."""
    return pb.OutputLogProbs(
        token_logprobs=[SAMPLED_LOGPROB] * len(ids), token_ids=ids, top_logprobs=[_top(pb, pairs) for pairs in tops]
    )


def prompt(pb: Any, ids: Sequence[int], tops: Sequence[list[tuple[int, float]]]) -> Any:
    """An InputLogProbs of the contract ``pb``; the first id has no value and no candidates."""
    values = [
        pb.InputTokenLogProb(value=SAMPLED_LOGPROB) if place else pb.InputTokenLogProb() for place in range(len(ids))
    ]
    rows = [_top(pb, pairs if place else []) for place, pairs in enumerate(tops)]
    return pb.InputLogProbs(token_logprobs=values, token_ids=ids, top_logprobs=rows)


def _top(pb: Any, pairs: list[tuple[int, float]]) -> Any:
    return pb.TopLogProbs(values=[value for _, value in pairs], token_ids=[token for token, _ in pairs])


def _others(token: int) -> list[tuple[int, float]]:
    return [((token + step) % tokenizer.VOCAB_SIZE, value) for step, value in enumerate(_OTHERS, 1)]
