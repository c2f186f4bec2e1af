"""What the slots' KV memory holds, and the changes of its full blocks (spec engine-contract 2.12).

A block is ``BLOCK_SIZE`` consecutive tokens of a slot, from its start on, and is known by a hash over them and all
before. The same block in two slots is held twice, and reported twice.
"""

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

BLOCK_SIZE = 16


class Block(NamedTuple):
    """``tokens`` are its own BLOCK_SIZE ids; ``parent`` is the hash of the block before, None at the start."""

    hash: int
    parent: int | None
    tokens: tuple[int, ...]


class Stored(NamedTuple):
    """One slot has more full blocks, each the parent of the next."""

    blocks: tuple[Block, ...]


class Removed(NamedTuple):
    """One slot lost its copies of these blocks, children before parents."""

    hashes: tuple[int, ...]


class Cleared(NamedTuple):
    """Nothing is held any more."""


Change: TypeAlias = Stored | Removed | Cleared


def block_of(parent: int | None, tokens: Sequence[int]) -> Block:
    """Make the block of ``tokens`` behind ``parent``; the hash is any 64 bits, as a signed number."""
    head = b"" if parent is None else struct.pack("<q", parent)
    digest = hashlib.blake2b(head + struct.pack(f"<{len(tokens)}I", *tokens), digest_size=8).digest()
    return Block(int.from_bytes(digest, "big", signed=True), parent, tuple(tokens))


class SlotMemory:
    """The tokens each of ``slots`` slots holds. Not thread-safe."""

    def __init__(self, slots: int) -> None:
        self._tokens: list[list[int]] = [[] for _ in range(slots)]
        self._blocks: list[list[Block]] = [[] for _ in range(slots)]
        self._changes: list[Change] = []

    def __getitem__(self, slot: int) -> Sequence[int]:
        return self._tokens[slot]

    def blocks(self, slot: int) -> Sequence[Block]:
        """The slot's full blocks."""
        return self._blocks[slot]

    def keep(self, slot: int, length: int) -> None:
        """Drop all but the first ``length`` tokens of a slot."""
        del self._tokens[slot][length:]
        blocks = self._blocks[slot]
        lost = blocks[length // BLOCK_SIZE :]
        if lost:
            del blocks[length // BLOCK_SIZE :]
            self._changes.append(Removed(tuple(block.hash for block in reversed(lost))))

    def extend(self, slot: int, tokens: Sequence[int]) -> None:
        """Append ``tokens`` to a slot."""
        held, blocks = self._tokens[slot], self._blocks[slot]
        held += tokens
        fresh = []
        for start in range(len(blocks) * BLOCK_SIZE, len(held) - BLOCK_SIZE + 1, BLOCK_SIZE):
            fresh.append(block_of(blocks[-1].hash if blocks else None, held[start : start + BLOCK_SIZE]))
            blocks.append(fresh[-1])
        if fresh:
            self._changes.append(Stored(tuple(fresh)))

    def copy(self, source: int, target: int, length: int) -> None:
        """Make ``target`` hold the first ``length`` tokens of ``source``."""
        self.keep(target, 0)
        self.extend(target, self._tokens[source][:length])

    def clear(self) -> None:
        """Drop everything."""
        for slot in range(len(self._tokens)):
            self._tokens[slot], self._blocks[slot] = [], []
        self._changes.append(Cleared())

    def changes(self) -> list[Change]:
        """What changed since this was last asked, in order."""
        out, self._changes = self._changes, []
        return out
