"""KV events for subscribers: numbered batches, a bounded history, snapshots (spec engine-contract 2.12)."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

from smg_grpc_proto.generated import common_pb2

from smg.core import clock
from smg.engine_server.llama.kv_blocks import BLOCK_SIZE, Block, Change, Cleared, Removed, Stored

_HISTORY_BATCHES = 1024
_SNAPSHOT_BLOCKS = 1024


class OutOfRange(Exception):
    """The sequence number a subscriber wants to go on from is not in the history."""


class DataLoss(Exception):
    """A subscriber fell so far behind that the batches it lacks are gone."""


class Feed:
    """Lives on the event loop's thread. ``publish`` feeds it; ``subscribe`` reads it.

    Sequence numbers count from 1: the first batch says that the memory of a fresh engine is empty.
    """

    def __init__(self, history: int = _HISTORY_BATCHES) -> None:
        self._history: deque[Any] = deque(maxlen=history)
        self._sequence = 0
        self._events = 0
        self._copies: dict[int, tuple[Block, int]] = {}
        self._news = asyncio.Event()
        self.publish([Cleared()])

    def publish(self, changes: Sequence[Change]) -> None:
        """Number ``changes`` as one batch and hand it to all subscribers."""
        self._sequence += 1
        batch = common_pb2.KvEventBatch(sequence_number=self._sequence, timestamp=clock.wall(), dp_rank=0)
        for change in changes:
            self._events += 1
            batch.events.append(_event(change, self._events))
            self._apply(change)
        self._history.append(batch)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def subscribe(self, start: int) -> AsyncIterator[Any]:
        """Yield KvEventBatches without end: from number ``start`` on, or for 0 a snapshot and what follows it.

        Raises:
            OutOfRange: ``start`` is not in the history, nor the next number.
            DataLoss: the reader was too slow.
        """
        if start == 0:
            cursor = self._sequence
            for batch in self._snapshot():
                yield batch
        else:
            if not self._oldest <= start <= self._sequence + 1:
                raise OutOfRange(
                    f"sequence {start} is not in the history, which has {self._oldest} to {self._sequence}"
                )
            cursor = start - 1
        while True:
            if cursor == self._sequence:
                await self._news.wait()
                continue
            if cursor + 1 < self._oldest:
                raise DataLoss(f"the batches from {cursor + 1} to {self._oldest - 1} are gone")
            cursor += 1
            yield self._history[cursor - self._oldest]

    @property
    def _oldest(self) -> int:
        return self._sequence - len(self._history) + 1

    def _apply(self, change: Change) -> None:
        # A parent is in every slot its child is in, so it comes before its children here as long as they are held.
        match change:
            case Cleared():
                self._copies.clear()
            case Stored(blocks):
                for block in blocks:
                    _, count = self._copies.get(block.hash, (block, 0))
                    self._copies[block.hash] = (block, count + 1)
            case Removed(hashes):
                for number in hashes:
                    block, count = self._copies[number]
                    if count == 1:
                        del self._copies[number]
                    else:
                        self._copies[number] = (block, count - 1)

    def _snapshot(self) -> list[Any]:
        """The state at the current sequence, as chunks whose numbers end there."""
        held = [block for block, count in self._copies.values() for _ in range(count)]
        # There can't be more chunks than there are numbers to give them.
        size = max(_SNAPSHOT_BLOCKS, -(-len(held) // self._sequence))
        parts = [held[place : place + size] for place in range(0, len(held), size)] or [[]]
        out = []
        for index, part in enumerate(parts):
            batch = common_pb2.KvEventBatch(
                sequence_number=self._sequence - len(parts) + 1 + index,
                timestamp=clock.wall(),
                dp_rank=0,
                events=[_event(Stored((block,)), 0) for block in part],
                snapshot=common_pb2.KvSnapshotChunk(index=index, count=len(parts), blocks=len(held)),
            )
            if index == 0:
                batch.events.insert(0, _event(Cleared(), 0))
            out.append(batch)
        return out


def _event(change: Change, number: int) -> Any:
    event = common_pb2.KvCacheEvent(event_id=number)
    match change:
        case Cleared():
            event.cleared.SetInParent()
        case Stored(blocks):
            event.stored.tier = common_pb2.KV_CACHE_TIER_DEVICE
            if blocks[0].parent is not None:
                event.stored.parent_block_hash = blocks[0].parent
            for block in blocks:
                event.stored.blocks.add(block_hash=block.hash, token_ids=block.tokens, block_size=BLOCK_SIZE)
        case Removed(hashes):
            event.removed.tier = common_pb2.KV_CACHE_TIER_DEVICE
            event.removed.block_hashes.extend(hashes)
    return event
