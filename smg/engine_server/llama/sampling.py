"""From logits to a token, by the rules and in the order of vLLM (spec engine-contract 2.3).

Logit bias and held-back stop ids, then repetition, frequency and presence penalties, then temperature, min-p, top-k
and top-p. Ties go to the lower id. The random number of a step depends on nothing but the seed and the step, so a
seeded request gives the same tokens alone and beside others.
"""

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from smg.engine_server.llama.model import Logits

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Ids: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

# Below this, vLLM takes the best token.
_GREEDY = 1e-5


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters with neutral defaults. ``top_k`` 0 is off; ``seed`` None draws one.

    ``held_ids`` may not be sampled before ``min_tokens`` tokens are out.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = msgspec.field(default_factory=dict)
    min_tokens: int = 0
    held_ids: frozenset[int] = frozenset()


class Sampler:
    """Samples one sequence; ``prompt`` counts for the repetition penalty."""

    def __init__(self, params: Params, prompt: Sequence[int]) -> None:
        self._params = params
        self._seed = params.seed if params.seed is not None else struct.unpack("<q", os.urandom(8))[0]
        self._prompt = frozenset(prompt) if params.repetition_penalty != 1.0 else frozenset[int]()
        self._counts: Counter[int] = Counter()
        self._step = 0

    def pick(self, logits: Logits) -> int:
        """Choose the next token from ``logits`` (left untouched) and remember it.

        Raises:
            ValueError: the logits are not numbers.
        """
        row = self._adjusted(logits)
        best = int(row.argmax())
        if np.isnan(row[best]):
            raise ValueError("the model's logits are not numbers")
        params = self._params
        if params.temperature < _GREEDY or not np.isfinite(row[best]):
            token = best
        else:
            weights = np.exp((row.astype(np.float64) - float(row[best])) / params.temperature)
            token = draw(weights, uniform(self._seed, self._step), params)
        self._counts[token] += 1
        self._step += 1
        return token

    def _adjusted(self, logits: Logits) -> Logits:
        params = self._params
        penalised = self._counts and (params.frequency_penalty or params.presence_penalty)
        held = self._step < params.min_tokens and params.held_ids
        if not (params.logit_bias or penalised or held or params.repetition_penalty != 1.0):
            return logits
        row = logits.copy()
        for token, bias in params.logit_bias.items():
            row[token] += bias
        if held:
            row[list(params.held_ids)] = -np.inf
        if params.repetition_penalty != 1.0:
            seen = list(self._prompt | self._counts.keys())
            values = row[seen]
            row[seen] = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
        if penalised:
            counts = np.fromiter(self._counts.values(), np.float32)
            row[list(self._counts)] -= params.frequency_penalty * counts + params.presence_penalty
        return row


def uniform(seed: int, step: int) -> float:
    """A number in [0, 1) that is a pure function of ``seed`` (any 64 bits) and ``step``."""
    digest = hashlib.blake2b(struct.pack("<Qq", seed & (1 << 64) - 1, step), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def draw(weights: Floats, number: float, params: Params) -> int:
    """Draw from ``weights`` (unnormalised, the largest is 1) under min-p, top-k and top-p.

    ``number`` in [0, 1) is the place in the cumulative distribution: by id where nothing is cut off, else best first.
    """
    ids = None
    if params.min_p > 0 or 0 < params.top_k < weights.size or params.top_p < 1:
        ids = shortlist(weights, params)
    left = np.cumsum(weights if ids is None else weights[ids])
    place = min(int(np.searchsorted(left, number * left[-1], side="right")), left.size - 1)
    return place if ids is None else int(ids[place])


def shortlist(weights: Floats, params: Params) -> Ids:
    """Ids that survive min-p, top-k and top-p, best first.

    Min-p compares with the best token. Top-p keeps the fewest best of what is left whose share reaches it.
    """
    ids: Ids = np.flatnonzero(weights >= params.min_p) if params.min_p > 0 else np.arange(weights.size)
    if 0 < params.top_k < ids.size:
        ids = best(weights, ids, params.top_k)
    if params.top_p >= 1:
        return best(weights, ids, ids.size)
    wanted = params.top_p * float(weights[ids].sum())
    # Sorting a whole vocabulary takes milliseconds; the share is nearly always reached within a few tokens.
    count = 256
    while True:
        head = best(weights, ids, min(count, ids.size))
        share = np.cumsum(weights[head])
        if share[-1] >= wanted or head.size == ids.size:
            return head[: int(np.searchsorted(share, wanted, side="left")) + 1]
        count *= 8


def best(weights: Floats, ids: Ids, count: int) -> Ids:
    """The ``count`` of ``ids`` with the largest weights, best first; ties go to the lower id."""
    values = weights[ids]
    if count < ids.size:
        limit = np.partition(values, ids.size - count)[ids.size - count]
        above = ids[values > limit]
        ids = np.concatenate((above, ids[values == limit][: count - above.size]))
        values = weights[ids]
    return ids[np.lexsort((ids, -values))]


def logprobs(logits: Logits, token: int, count: int) -> tuple[float, list[tuple[int, float]]]:
    """Log probability of ``token`` and ``count`` candidates, from the model's own logits (before any adjustment).

    The candidates come as vLLM lists them: ``token`` first, then the others by rank (spec engine-contract 2.5).
    """
    row: Any = logits.astype(np.float64)
    row -= row.max()
    row -= np.log(np.exp(row).sum())
    ranked = best(row, np.arange(row.size), count) if count else ()
    order = [token, *(int(id) for id in ranked if id != token)][:count]
    return float(row[token]), [(id, float(row[id])) for id in order]
