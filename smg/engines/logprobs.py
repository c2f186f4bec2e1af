"""Log probabilities as the contracts send them, as rows of ``TokenLogprobs`` (spec engine-contract 2.5).

Arrays are parallel, one entry per token; one that is shorter lacks its tail.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from smg.core.batch import TokenLogprobs

# JSON has no infinity; a token that could not be sampled gets the value OpenAI reports for one.
_LOWEST = -9999.0


def output_rows(ids: Sequence[int], found: Any, limit: int) -> list[TokenLogprobs]:
    """Rows of an OutputLogProbs for the new ``ids``, each with at most ``limit`` candidates."""
    return _rows(ids, list(found.token_logprobs), found.top_logprobs, limit)


def prompt_rows(found: Any, limit: int) -> list[TokenLogprobs]:
    """Rows of an InputLogProbs; the first token has no value."""
    values = [row.value if row.HasField("value") else None for row in found.token_logprobs]
    return _rows(found.token_ids, values, found.top_logprobs, limit)


def row(token: int, value: float | None, candidates: Iterable[tuple[int, float]], limit: int) -> TokenLogprobs:
    """One row. Some engines put the sampled token first and again at its rank: sorted by value, deduped, cut."""
    seen: dict[int, float] = {}
    if limit:
        for candidate, raw in candidates:
            clean = _finite(raw)
            if clean is not None and candidate not in seen:
                seen[candidate] = clean
    top = tuple(sorted(seen.items(), key=lambda pair: -pair[1])[:limit])
    return TokenLogprobs(token=token, logprob=_finite(value), top=top)


def _rows(ids: Sequence[int], values: Sequence[float | None], tops: Any, limit: int) -> list[TokenLogprobs]:
    rows = []
    for place, token in enumerate(ids):
        value = values[place] if place < len(values) else None
        found = tops[place] if limit and place < len(tops) else None
        pairs = zip(found.token_ids, found.values, strict=False) if found is not None else ()
        rows.append(row(token, value, pairs, limit))
    return rows


def _finite(value: float | None) -> float | None:
    if value is None or math.isnan(value):
        return None
    return min(max(value, _LOWEST), -_LOWEST)
