"""KV events tell exactly what the slots hold (spec engine-contract 2.12)."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from smg_grpc_proto.generated import common_pb2

from smg.engine_server.llama.kv_blocks import BLOCK_SIZE, SlotMemory, block_of
from smg.engine_server.llama.kv_feed import DataLoss, Feed, OutOfRange

SLOTS = 3


class Replayed:
    """A subscriber's model: copies per block hash; checks that nothing is removed or built upon that is not there."""

    def __init__(self) -> None:
        self.copies: Counter[int] = Counter()
        self.stored: list[tuple[int, ...]] = []
        self.cursor = 0

    def apply(self, batch) -> None:
        assert self.cursor == 0 or batch.sequence_number == self.cursor + 1
        self.cursor = batch.sequence_number
        for event in batch.events:
            match event.WhichOneof("data"):
                case "cleared":
                    self.copies.clear()
                case "removed":
                    for number in event.removed.block_hashes:
                        assert self.copies[number] > 0
                        self.copies[number] -= 1
                case "stored":
                    self._store(event.stored)

    def _store(self, stored) -> None:
        parent = stored.parent_block_hash if stored.HasField("parent_block_hash") else None
        for block in stored.blocks:
            assert parent is None or self.copies[parent] > 0
            assert block.block_size == BLOCK_SIZE == len(block.token_ids)
            assert block.block_hash == block_of(parent, block.token_ids).hash
            self.copies[block.block_hash] += 1
            self.stored.append(tuple(block.token_ids))
            parent = block.block_hash


def full_blocks(slots: Iterable[Sequence[int]]) -> Counter[int]:
    """The truth, from the tokens of each slot alone: copies per block hash."""
    out: Counter[int] = Counter()
    for tokens in slots:
        parent = None
        for start in range(0, len(tokens) - BLOCK_SIZE + 1, BLOCK_SIZE):
            parent = block_of(parent, tokens[start : start + BLOCK_SIZE]).hash
            out[parent] += 1
    return out


def held(memory: SlotMemory) -> Counter[int]:
    return full_blocks(memory[slot] for slot in range(SLOTS))


slots = st.integers(0, SLOTS - 1)
# Few different tokens, so that slots share blocks.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("extend"), slots, st.lists(st.sampled_from([7, 8]), max_size=3).map(lambda few: few * 16)),
        st.tuples(st.just("extend"), slots, st.lists(st.just(7), max_size=40)),
        st.tuples(st.just("keep"), slots, st.integers(0, 70)),
        st.tuples(st.just("copy"), slots, slots, st.integers(0, 70)),
        st.tuples(st.just("clear")),
    ),
    max_size=25,
)


def play(memory: SlotMemory, step) -> None:
    match step:
        case ("copy", source, target, _) if source == target:
            pass
        case (name, *arguments):
            getattr(memory, name)(*arguments)


async def read(feed: Feed, start: int, replayed: Replayed, until: int) -> None:
    async for batch in feed.subscribe(start):
        replayed.apply(batch)
        if replayed.cursor == until:
            return


async def follow(plan, late: int) -> None:
    """Play ``plan``; subscribers from its start, its end and step ``late`` on must all know what is held."""
    memory, feed = SlotMemory(SLOTS), Feed()
    number, followers = 1, []
    for count, step in enumerate(plan):
        if count == late:
            followers.append(Replayed())
            await read(feed, 0, followers[0], number)
        play(memory, step)
        if changes := memory.changes():
            feed.publish(changes)
            number += 1
    for start in (1, 0):
        followers.append(Replayed())
        await read(feed, start, followers[-1], number)
    for replayed in followers:
        if replayed.cursor < number:
            await read(feed, replayed.cursor + 1, replayed, number)
        assert +replayed.copies == held(memory)


@given(steps, st.integers(0, 25))
def test_replaying_the_events_gives_the_full_blocks_of_all_slots(plan, late):
    asyncio.run(follow(plan, late))


def test_a_block_is_known_by_all_before_it():
    one, other = block_of(None, [1] * 16), block_of(5, [1] * 16)
    assert one == block_of(None, [1] * 16)
    assert one.hash != other.hash
    assert -(2**63) <= one.hash < 2**63


async def test_the_first_batch_says_that_a_fresh_engine_holds_nothing():
    batch = await anext(Feed().subscribe(1))
    assert batch.sequence_number == 1
    assert [event.WhichOneof("data") for event in batch.events] == ["cleared"]
    assert batch.timestamp > 0


async def test_a_snapshot_lists_every_copy_and_ends_where_live_batches_go_on():
    memory, feed = SlotMemory(SLOTS), Feed()
    memory.extend(0, [1] * 40)
    memory.copy(0, 1, 40)
    feed.publish(memory.changes())
    stream = feed.subscribe(0)
    chunk = await anext(stream)
    assert (chunk.sequence_number, chunk.snapshot.index, chunk.snapshot.count, chunk.snapshot.blocks) == (2, 0, 1, 4)
    assert chunk.snapshot.unknown_before == 0
    kinds = [event.WhichOneof("data") for event in chunk.events]
    assert kinds == ["cleared", "stored", "stored", "stored", "stored"]
    assert {event.event_id for event in chunk.events} == {0}
    memory.keep(1, 0)
    feed.publish(memory.changes())
    live = await anext(stream)
    assert live.sequence_number == 3
    assert not live.HasField("snapshot")
    assert live.events[0].removed.tier == common_pb2.KV_CACHE_TIER_DEVICE


async def test_a_large_snapshot_comes_in_chunks_with_numbers_of_their_own():
    memory, feed = SlotMemory(SLOTS), Feed()
    for _ in range(3):
        memory.extend(0, list(range(16 * 600)))
        feed.publish(memory.changes())
    replayed, stream = Replayed(), feed.subscribe(0)
    chunks = [await anext(stream), await anext(stream)]
    for chunk in chunks:
        replayed.apply(chunk)
    assert [(chunk.sequence_number, chunk.snapshot.index) for chunk in chunks] == [(3, 0), (4, 1)]
    assert [chunk.snapshot.count for chunk in chunks] == [2, 2]
    assert +replayed.copies == held(memory)


async def test_a_snapshot_has_no_more_chunks_than_numbers():
    memory, feed = SlotMemory(SLOTS), Feed()
    memory.extend(0, list(range(16 * 3000)))
    feed.publish(memory.changes())
    stream = feed.subscribe(0)
    numbers = [(await anext(stream)).sequence_number for _ in range(2)]
    assert numbers == [1, 2]


@pytest.mark.parametrize("start", [1, 2, 8, 100])
async def test_a_number_that_is_not_in_the_history_is_out_of_range(start):
    feed = Feed(history=3)
    for _ in range(4):
        feed.publish([])
    with pytest.raises(OutOfRange, match="3 to 5"):
        await anext(feed.subscribe(start))


async def test_the_next_number_waits_for_its_batch():
    feed = Feed()
    stream = feed.subscribe(2)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert not waiting.done()
    feed.publish([])
    assert (await waiting).sequence_number == 2


async def test_who_falls_behind_the_history_is_told_so():
    feed = Feed(history=3)
    stream = feed.subscribe(1)
    assert (await anext(stream)).sequence_number == 1
    for _ in range(4):
        feed.publish([])
    with pytest.raises(DataLoss, match="from 2 to 2"):
        await anext(stream)
