"""The blocks an engine has told it holds, kept in the exact plane of the prefix index (spec routing 2.3, 3)."""

from collections.abc import Iterable

from smg._native.prefix_index import PrefixIndex

class EventBlocks:
    """One worker's blocks, in the one process that follows its events. Hashes are the engine's own, 64 bits signed or
    not. Whether the worker is routed by them is not decided here: see ``PrefixIndex.set_live``.
    """

    slot: int
    block: int  # tokens
    lost: int  # blocks the index did not take: it knows less than the engine holds
    owed: int  # prefixes that are gone and that the index still shows, as somebody sat on their part of it

    def __init__(self, index: PrefixIndex, slot: int, block: int, salt: int = 0) -> None:
        """Begins empty: whatever the exact plane held for ``slot`` is forgotten. Raises ValueError, IndexError."""

    def __len__(self) -> int:
        """Number of different prefixes held."""

    def __contains__(self, name: int) -> bool: ...
    def clear(self) -> None:
        """Forget everything, in O(1) as far as readers are concerned; ``sweep`` frees the places.

        Nothing here touches the slot any more once its worker was dismissed.
        """

    def store(self, hashes: Iterable[int], tokens: Iterable[int], parent: int | None = None, adapter: int = 0) -> bool:
        """Enter a chain of blocks below ``parent`` (None: from the root); False when the parent is not known.

        Raises ValueError when tokens and blocks do not fit, or for what is no token id.
        """

    def remove(self, hashes: Iterable[int]) -> None:
        """Take blocks out; unknown ones are ignored, and descendants stay."""

    def settle(self) -> bool:
        """Take out what is ``owed``, without waiting long for anybody; True when nothing is owed any more."""

    def repair(self) -> bool:
        """Enter everything once more and take out what is ``owed``, after a part of the index was emptied or could not
        be had; False while something is ``lost`` or ``owed``.
        """
