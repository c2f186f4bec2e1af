"""Processed media as engines' adapters take them (``core.media``; spec multimodal 12)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from smg.core.media import MediaInputs, MediaItem, Tensor
from smg.vision.expand import Binding
from smg.vision.families.base import Replacement
from smg.vision.families.base import Tensor as Array
from smg.vision.items import LoadedItem, MediaFamily, Medium


class Group(NamedTuple):
    """The items of one kind: what takes the place of each placeholder, and their tensors (None: none are wanted)."""

    medium: Medium
    family: MediaFamily
    items: Sequence[LoadedItem]
    replacements: Sequence[Replacement]
    arrays: Sequence[Array] | None

    @property
    def token_id(self) -> int:
        """The token features are written over."""
        return self.replacements[0].feature_id


def describe(groups: Sequence[Group], bindings: Sequence[Binding], prompt: tuple[Sequence[int], int]) -> MediaInputs:
    """All items in the order of ``bindings``; ``prompt`` is the anchored prompt and the length of the expanded one."""
    by_kind = {group.medium.kind: group for group in groups}
    sides = {kind: group.family.side([item.plan for item in group.items]) for kind, group in by_kind.items()}
    mixed = len(groups) > 1
    items = []
    for binding in bindings:
        group, side = by_kind[binding.modality], sides[binding.modality]
        items.append(_item(group, side, binding, group.token_id if mixed else None))
    first, anchored, expanded = groups[0], *prompt
    side = {} if mixed else sides[first.medium.kind]
    return MediaInputs(
        items=items,
        tensor=None if mixed else _joined(first),
        side={name: _plain(values) for name, values in side.items()},
        sizes="" if mixed else first.family.layout.sizes,
        flat=() if mixed else first.family.layout.rows,
        keep_on_cpu=() if mixed else first.family.keep_on_cpu,
        token_id=first.token_id,
        anchored=anchored,
        expanded=expanded,
        family="" if mixed else first.family.name,
    )


def _item(group: Group, side: dict[str, Array], binding: Binding, token_id: int | None) -> MediaItem:
    index = binding.item
    item = group.items[index]
    own = _rows(group, index)
    array = None if group.arrays is None else group.arrays[index]
    flat = group.family.layout.kind == "flat"
    return MediaItem(
        modality=group.medium.kind,
        digest=item.digest.hex(),
        encoded=item.encoded,
        structural=binding.structural,
        patches=binding.patches,
        tensor=None if array is None else _tensor([array], group, array.shape if flat else (1, *array.shape)),
        side={name: _plain(values[own.get(name, slice(index, index + 1))]) for name, values in side.items()},
        token_id=token_id,
    )


def _rows(group: Group, index: int) -> dict[str, slice]:
    """The rows of one item in the side tensors that have one for each row of the primary tensor."""
    if not group.family.layout.rows:
        return {}
    start = sum(item.plan.shape[0] for item in group.items[:index])
    own = slice(start, start + group.items[index].plan.shape[0])
    return dict.fromkeys(group.family.layout.rows, own)


def _joined(group: Group) -> Tensor | None:
    """One tensor of all items."""
    arrays = group.arrays
    if arrays is None:
        return None
    if group.family.layout.kind == "flat":
        return _tensor(arrays, group, (sum(array.shape[0] for array in arrays), *arrays[0].shape[1:]))
    return _tensor(arrays, group, (len(arrays), *arrays[0].shape))


def _tensor(arrays: Sequence[Array], group: Group, shape: tuple[int, ...]) -> Tensor:
    return Tensor(group.family.precision, shape, tuple(arrays))


def _plain(array: Array) -> Tensor:
    return Tensor(array.dtype.name, array.shape, (np.ascontiguousarray(array),))
