"""From logits to a token, by the rules and in the order of vLLM (spec engine-contract 2.3).

What a constraint forbids, logit bias and held-back stop ids, then repetition, frequency and presence penalties, then
temperature, min-p, top-k and top-p. Ties go to the lower id. The random number of a step depends on nothing but the
seed and the step, so a seeded request gives the same tokens alone and beside others.
"""

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from smg.engine_server.llama.guidance import Mask
from smg.engine_server.llama.model import Logits

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Ids: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

# Below this, vLLM takes the best token.
_GREEDY = 1e-5
# Weights relative to the best token's, down to which the few tokens that matter are looked for; then all are.
_HEADS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 0.0)


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

    def pick(self, logits: Logits, allowed: Mask | None = None) -> int:
        """Choose the next token from ``logits`` (left untouched), among those ``allowed``, and remember it.

        Raises:
            ValueError: the logits are not numbers.
        """
        params = self._params
        held = self._step < params.min_tokens and bool(params.held_ids)
        row = self._adjusted(logits, allowed, held)
        best = int(row.argmax())
        if held and row[best] == -np.inf:
            # A constraint that leaves nothing but the end goes before min_tokens.
            row = self._adjusted(logits, allowed, False)
            best = int(row.argmax())
        if np.isnan(row[best]):
            raise ValueError("the model's logits are not numbers")
        if params.temperature < _GREEDY or not np.isfinite(row[best]):
            token = best
        else:
            weights = np.exp((row - row[best]) / np.float32(params.temperature)).astype(np.float64)
            token = draw(weights, uniform(self._seed, self._step), params)
        self._counts[token] += 1
        self._step += 1
        return token

    def _adjusted(self, logits: Logits, allowed: Mask | None, held: bool) -> Logits:
        params = self._params
        penalised = self._counts and (params.frequency_penalty or params.presence_penalty)
        repeats = params.repetition_penalty != 1.0
        if not (params.logit_bias or penalised or held or repeats or allowed is not None):
            return logits
        row = logits.copy()
        for token, bias in params.logit_bias.items():
            row[token] += bias
        if held:
            row[list(params.held_ids)] = -np.inf
        if repeats:
            seen = list(self._prompt | self._counts.keys())
            values = row[seen]
            row[seen] = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
        if penalised:
            counts = np.fromiter(self._counts.values(), np.float32)
            row[list(self._counts)] -= params.frequency_penalty * counts + params.presence_penalty
        if allowed is not None:
            row[~allowed] = -np.inf
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
    # Rounding must not lead past the last id that has any weight.
    last = int(np.searchsorted(left, left[-1], side="left"))
    place = min(int(np.searchsorted(left, number * left[-1], side="right")), last)
    return place if ids is None else int(ids[place])


def shortlist(weights: Floats, params: Params) -> Ids:
    """Ids that survive min-p, top-k and top-p, best first; the largest of ``weights`` is 1.

    Min-p compares with the best token. Top-p keeps the fewest best of what is left whose share reaches it.
    """
    if params.min_p > 0:
        weights = np.where(weights >= params.min_p, weights, 0.0)
    if params.top_k > 0:
        ids = head(weights, lambda ids: ids.size >= params.top_k)[: params.top_k]
        wanted = params.top_p * float(weights[ids].sum())
    else:
        wanted = params.top_p * float(weights.sum())
        ids = head(weights, lambda ids: params.top_p < 1 and float(weights[ids].sum()) >= wanted)
    if params.min_p > 0:
        ids = ids[weights[ids] > 0]
    if params.top_p >= 1:
        return ids
    share = np.cumsum(weights[ids])
    return ids[: int(np.searchsorted(share, wanted, side="left")) + 1]


def head(weights: Floats, enough: Callable[[Ids], bool]) -> Ids:
    """Ids of the largest weights, best first and ties to the lower id: at least as many as are ``enough``, or all.

    Sorting a whole vocabulary takes milliseconds, and a few tokens nearly always do.
    """
    ids: Ids = np.arange(0)
    for limit in _HEADS:
        ids = np.flatnonzero(weights >= limit)
        if enough(ids):
            break
    # Stable, so that the lower id goes first.
    return ids[np.argsort(-weights[ids], kind="stable")]


class Candidates(msgspec.Struct, frozen=True):
    """Log probability of a token, and the best candidates beside it: ``ids`` and their ``values``."""

    value: float
    ids: list[int]
    values: list[float]


def logprobs(logits: Logits, token: int, count: int) -> Candidates:
    """Log probability of ``token`` and the ``count`` best candidates (-1: all), from the logits before any adjustment.

    The candidates come as vLLM lists them: ``token`` first, then the others by rank (spec engine-contract 2.5).
    ``token`` is one more where it is none of the best, or there would be no room for the likeliest.
    """
    row: Any = logits - logits.max()
    weights = np.exp(row).astype(np.float64)
    row -= np.float32(np.log(weights.sum()))
    if count == 0:
        return Candidates(float(row[token]), [], [])
    wanted = row.size if count < 0 else count
    ranked = head(weights, lambda ids: ids.size >= wanted)
    best = ranked[:wanted]
    order = [token, *best[best != token].tolist()]
    return Candidates(float(row[token]), order, row[order].tolist())
