"""Where a text may be cut so that its parts encode to the parts of its ids (spec text-pipeline 3).

Tokenizers cut their added tokens out of a text first and treat what lies between on its own, so the place behind an
added token looks like a safe cut. It is not for tokens that swallow blanks, tokenizers that mark only the first word of
a text, and more. So nothing is concluded from the tokenizer's description: every added token is tried out on probes,
whole against cut, and only those that never differ become cuts. What a text's ids contain is compared with what was
found in the text each time, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from smg._native.encode_cache import find_ids
from smg._native.stop_scan import StopAutomaton

# Tokens tried out per tokenizer, likely ones and then low ids first: some vocabularies reserve thousands that no prompt
# contains.
MAX_TRIED = 256

# Cuts closer to the last one than this (bytes) would cost more memory than the work they save.
MIN_GAP = 64

_LEFT = ("Hello, world", "", " ", "a\n", "é", "日")
_RIGHT = (
    *("a", " a", "  b", "\n", "\n\nuser", "1", "日本", "\u0301x"),
    *("A", "\t", ".", "'s", " ", " \n x", "ca\u0327", "😀", "\u200d👩", "\ufe0f", "ﬁ", "Ａ", "▁a", "_", "<", ">", "]"),
    *("\u00a0x", "\u3000x", "##a", "Ġa", "\r\n"),
)
# After the first left side, only this many right sides are tried.
_SHORT = 8
# Tokens that are recognised in some surroundings only, tried as right sides.
_MAX_PICKY = 16


class Encoder(Protocol):
    """Encodes text completely. Special tokens spelled in it are recognised."""

    def encode(self, text: str, add_special_tokens: bool = False) -> Sequence[int]: ...


class Cutter:
    """The safe cuts of one tokenizer.

    ``literals`` are the texts of the added tokens that the tokenizer looks for before it normalises, and their ids.
    Those that occur in ``template`` (the chat template's source) are tried first. ``safe`` are the ids of those behind
    which a text may be cut; empty when there is no safe cut at all.
    """

    def __init__(self, encoder: Encoder, literals: Mapping[str, int], template: str = "") -> None:
        by_id = sorted(((token, text) for text, token in literals.items() if text))
        self._tokens = [token for token, _ in by_id]
        self.safe: frozenset[int] = frozenset()
        try:
            self._matcher = StopAutomaton([text.encode() for _, text in by_id])
        except ValueError:
            # More literals than the automaton takes: no cut can be told from a part of something longer.
            self._matcher = StopAutomaton([])
            return
        flags = bytearray(max(self._tokens, default=-1) + 1)
        for token in self._tokens:
            flags[token] = 1
        # Some leave no id behind, in the library or in what wraps it; others, as <unk>, also stand for ordinary text.
        probes = {token for probe in _LEFT + _RIGHT for token in encoder.encode(probe)}
        silent = {token for token, text in by_id if token not in encoder.encode(text)}
        self._vague = silent | probes.intersection(self._tokens)
        for token in self._vague:
            flags[token] = 0
        self._flags = bytes(flags)
        trial = _Trial(encoder, self, [text for token, text in by_id if token not in encoder.encode(f"x{text}x")])
        tried = [(token, text) for token, text in by_id if token not in self._vague]
        tried.sort(key=lambda entry: entry[1] not in template)
        self.safe = frozenset(token for token, text in tried[:MAX_TRIED] if trial.holds(text))

    def find(self, data: bytes) -> list[tuple[int, int]]:
        """Return ``(end, id)`` of each added token in ``data`` (UTF-8), left to right as the tokenizer matches them."""
        return [(end, self._tokens[number]) for end, number in self._matcher.leftmost(data)]

    def choose(self, found: Iterable[tuple[int, int]], size: int) -> list[int]:
        """Return the indexes in ``found`` of the cuts to use in a text of ``size`` bytes.

        The choice up to an offset depends on nothing behind it, so texts that begin alike share their cuts.
        """
        chosen: list[int] = []
        last = 0
        for index, (end, token) in enumerate(found):
            if token in self.safe and last + MIN_GAP <= end < size:
                chosen.append(index)
                last = end
        return chosen

    def counts(self, found: Sequence[tuple[int, int]], ids: Sequence[int]) -> list[int] | None:
        """Return how many of a text's ``ids`` reach up to each of the tokens ``found`` in it.

        None when the ids do not contain exactly these tokens in this order. 0 for tokens that ids do not show.
        """
        positions = find_ids(ids, self._flags)
        expected = [token for _, token in found if token not in self._vague]
        if [ids[position] for position in positions] != expected:
            return None
        ends = iter(positions)
        return [0 if token in self._vague else next(ends) + 1 for _, token in found]


class _Trial:
    """Tries added tokens out; ``picky`` are the texts of those that are not recognised everywhere."""

    def __init__(self, encoder: Encoder, cutter: Cutter, picky: list[str]) -> None:
        self._encoder = encoder
        self._cutter = cutter
        rights = [*_RIGHT, *picky[:_MAX_PICKY]]
        self._rights = [(right, self._encode(right)) for right in rights]

    def _encode(self, text: str) -> list[int]:
        return list(self._encoder.encode(text))

    def holds(self, literal: str) -> bool:
        """Whether no probe tells a text with ``literal`` in it, encoded whole, from its two parts."""
        return all(
            self._holds_after(left + literal, self._rights if left == _LEFT[0] else self._rights[:_SHORT])
            for left in _LEFT
        )

    def _holds_after(self, left: str, rights: Iterable[tuple[str, list[int]]]) -> bool:
        head = self._encode(left)
        end = len(left.encode())
        for right, tail in rights:
            found = self._cutter.find((left + right).encode())
            index = next((index for index, (at, _) in enumerate(found) if at == end), None)
            if index is None:
                # It goes on into a longer token: nobody would cut here.
                continue
            ids = self._encode(left + right)
            counts = self._cutter.counts(found, ids)
            if ids != head + tail or counts is None or counts[index] != len(head):
                return False
        return True


def frame(encoder: Encoder) -> tuple[list[int], list[int]] | None:
    """Return the ids that ``add_special_tokens`` puts in front of and behind every text; None when it does not."""
    found: tuple[list[int], list[int]] | None = None
    for probe in _LEFT[:1] + tuple(left + right for left, right in pairwise(_RIGHT)):
        bare, full = list(encoder.encode(probe)), list(encoder.encode(probe, True))
        if found is None:
            starts = (at for at in range(len(full) - len(bare) + 1) if full[at : at + len(bare)] == bare)
            at = next(starts, None)
            if at is None:
                return None
            found = full[:at], full[at + len(bare) :]
        if full != [*found[0], *bare, *found[1]]:
            return None
    return found
