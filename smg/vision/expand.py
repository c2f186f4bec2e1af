"""Placeholder tokens to the runs of tokens that engines put image features into (spec multimodal 6.1)."""

from collections.abc import Sequence
from typing import NamedTuple

from smg.core.errors import GatewayError
from smg.vision.families.base import Replacement


class Binding(NamedTuple):
    """Where one item stands in the expanded prompt, as (offset, length) ranges of token positions.

    ``item`` counts items of its modality, ``ordinal`` all items in prompt order. ``structural`` is everything that
    belongs to the item, ``patches`` the positions its features are written to.
    """

    modality: str
    item: int
    ordinal: int
    structural: tuple[int, int]
    patches: list[tuple[int, int]]


class Anchor(NamedTuple):
    """What a modality's placeholder became when the prompt was tokenised, and what takes its place, in order."""

    modality: str
    search_id: int
    replacements: Sequence[Replacement]


def check_anchors(ids: Sequence[int], counts: dict[str, tuple[int, int]]) -> None:
    """Compare placeholders in the prompt with planned items, before anything is fetched.

    ``counts`` maps a modality to (id its placeholder has in the prompt, planned items).

    Raises:
        GatewayError: ``multimodal_prompt_contract_mismatch``: the template dropped items, or the client wrote the
            model's own placeholder into its text.
    """
    for modality, (search_id, planned) in counts.items():
        found = sum(1 for one in ids if one == search_id)
        if found != planned:
            raise _mismatch(f"the prompt has {found} {modality} placeholders for {planned} {modality} parts")


def expand(ids: Sequence[int], anchors: Sequence[Anchor]) -> tuple[list[int], list[Binding]]:
    """Replace the k-th placeholder of each modality by its k-th replacement.

    Returns the expanded ids and one binding per item, in prompt order.

    Raises:
        GatewayError: ``multimodal_prompt_contract_mismatch`` when placeholders and replacements don't agree.
    """
    by_id = {anchor.search_id: anchor for anchor in anchors}
    if len(by_id) != len(anchors):
        raise _mismatch("two kinds of media have the same placeholder")
    taken = dict.fromkeys(by_id, 0)
    out: list[int] = []
    bindings: list[Binding] = []
    skip = 0
    for position, one in enumerate(ids):
        if skip:
            skip -= 1
            continue
        anchor = by_id.get(one)
        if anchor is None:
            out.append(one)
            continue
        index = taken[one]
        if index >= len(anchor.replacements):
            raise _mismatch(f"the prompt has more {anchor.modality} placeholders than {anchor.modality} parts")
        taken[one] = index + 1
        replacement = anchor.replacements[index]
        skip = _clear(replacement, anchor.modality, out, ids[position + 1 : position + 1 + len(replacement.after)])
        bindings.append(_bind(anchor, index, len(bindings), len(out)))
        out.extend(replacement.ids)
    for anchor in anchors:
        if taken[anchor.search_id] < len(anchor.replacements):
            raise _mismatch(f"the prompt has fewer {anchor.modality} placeholders than {anchor.modality} parts")
    return out, bindings


def _clear(replacement: Replacement, modality: str, out: list[int], following: Sequence[int]) -> int:
    """Take what ``replacement`` replaces in front of its placeholder out of ``out``; returns how much it is behind.

    Raises GatewayError when the template has written something else there.
    """
    before = len(replacement.before)
    if tuple(out[len(out) - before :]) != replacement.before or tuple(following) != replacement.after:
        raise _mismatch(f"the prompt has no markers around the {modality} placeholder")
    del out[len(out) - before :]
    return len(replacement.after)


def _bind(anchor: Anchor, index: int, ordinal: int, offset: int) -> Binding:
    replacement = anchor.replacements[index]
    if not replacement.ids or any(one < 0 for one in replacement.ids):
        raise _mismatch(f"the {anchor.modality} has no valid tokens")
    prefix = min(replacement.prefix, offset)
    ranges = replacement.features
    if ranges is None:
        ranges = runs(replacement.ids, replacement.feature_id)
    _check_ranges(ranges, len(replacement.ids), anchor.modality)
    patches = [(offset + start, length) for start, length in ranges]
    structural = (offset - prefix, len(replacement.ids) + prefix)
    return Binding(anchor.modality, index, ordinal, structural, patches)


def runs(ids: Sequence[int], wanted: int) -> list[tuple[int, int]]:
    """Maximal runs of ``wanted`` in ``ids``, as (offset, length)."""
    found: list[tuple[int, int]] = []
    start = -1
    for position, one in enumerate([*ids, -1]):
        if one == wanted and start < 0:
            start = position
        elif one != wanted and start >= 0:
            found.append((start, position - start))
            start = -1
    return found


def _check_ranges(ranges: Sequence[tuple[int, int]], length: int, modality: str) -> None:
    end = 0
    for start, count in ranges:
        if start < end or count < 1:
            raise _mismatch(f"the feature ranges of the {modality} overlap or are empty")
        end = start + count
    if not ranges or end > length:
        raise _mismatch(f"the feature ranges of the {modality} are missing or lie outside")


def _mismatch(message: str) -> GatewayError:
    return GatewayError("multimodal_prompt_contract_mismatch", message)
