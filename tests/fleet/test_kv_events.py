"""What is believed of an engine's KV events, and when (spec routing 3 and its defects 1 to 4)."""

import pytest
from smg_grpc_proto.generated import common_pb2 as pb

from smg._native.event_blocks import EventBlocks
from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg.engines.base import EngineLoad
from smg.engines.kv_events import Chunk, Cleared, KvBatch, Removed, Stored, decode
from smg.fleet import kv_events
from smg.fleet.kv_events import KvFeed

BLOCK = 4
SLOT = 0


class IndexPlace:
    """A slot of a real index."""

    def __init__(self) -> None:
        self.index = PrefixIndex.create(1 << 20, slots=4)
        self.index.admit(SLOT)

    def blocks(self, size: int) -> EventBlocks:
        return EventBlocks(self.index, SLOT, size)

    def live(self, size: int) -> None:
        self.index.set_live(SLOT, size)

    def forget_sent(self) -> None:
        self.index.renew(SLOT, 0)

    def adapter(self, name: str) -> int:
        return len(name)

    def sent(self, tokens: list[int]) -> None:
        self.index.insert(self.keys(tokens), self.index.ticket(SLOT))

    def keys(self, tokens: list[int], adapter: int = 0) -> PrefixKeys:
        return PrefixKeys.of_tokens(tokens, BLOCK, adapter=adapter)

    def held(self, tokens: list[int], adapter: int = 0) -> int:
        """Blocks of the prompt in the exact plane."""
        return self.index.depth(self.keys(tokens, adapter), [SLOT], 1)[0]

    def believed_sent(self, tokens: list[int]) -> int:
        return self.index.depth(self.keys(tokens), [SLOT], 0)[0]


@pytest.fixture
def place():
    made = IndexPlace()
    yield made
    made.index.close()


@pytest.fixture
def feed(place) -> KvFeed:
    return KvFeed(place)


def tokens(*names: int) -> list[int]:
    return [name for name in names for _ in range(BLOCK)]


def stored(*names: int, parent: int | None = None, **fields) -> Stored:
    """Blocks called by the token they consist of."""
    return Stored(names, tokens(*names), BLOCK, parent, **fields)


def batch(sequence: int, *events, timestamp: float | None = None, **fields) -> KvBatch:
    return KvBatch(sequence, float(sequence) if timestamp is None else timestamp, events, **fields)


class TestInOrder:
    def test_a_chain_from_the_root_makes_a_rank_live(self, feed, place):
        assert feed.state == "syncing"
        assert not feed.apply(batch(7, stored(1, 2)), 0)
        assert (feed.state, feed.last, place.index.live(SLOT)) == ("live", 7, BLOCK)
        feed.apply(batch(8, stored(3, parent=2)), 0)
        assert (place.held(tokens(1, 2, 3, 4)), feed.size) == (3, 3)

    def test_removed_blocks_are_gone(self, feed, place):
        feed.apply(batch(1, stored(1, 2, 3)), 0)
        feed.apply(batch(2, Removed([2, 3])), 0)
        assert (place.held(tokens(1, 2, 3)), feed.size) == (1, 1)

    def test_of_two_copies_one_stays(self, feed, place):
        feed.apply(batch(1, stored(1, 2), stored(1, 2)), 0)
        feed.apply(batch(2, Removed([2, 1])), 0)
        assert place.held(tokens(1, 2)) == 2
        feed.apply(batch(3, Removed([2, 1])), 0)
        assert (place.held(tokens(1, 2)), feed.size) == (0, 0)

    def test_a_batch_twice_counts_once(self, feed, place):
        feed.apply(batch(1, stored(1)), 0)
        feed.apply(batch(2, Removed([1])), 0)
        assert not feed.apply(batch(1, stored(1), timestamp=1.0), 0)
        assert (place.held(tokens(1)), feed.resyncs) == (0, 0)

    def test_load_records_do_not_move_the_cursor(self, feed, place):
        feed.apply(batch(5, stored(1)), 0)
        feed.apply(batch(0, timestamp=99.0, load_only=True), 0)
        feed.apply(batch(5, timestamp=99.0, load_only=True), 0)
        feed.apply(batch(6, stored(2, parent=1)), 0)
        assert (feed.state, feed.gaps, feed.last) == ("live", 0, 6)

    def test_cleared_means_that_nothing_is_held_and_nothing_sent_is_there(self, feed, place):
        place.sent(tokens(1, 2))
        feed.apply(batch(1, stored(1, 2)), 0)
        feed.apply(batch(2, Cleared()), 0)
        assert (feed.state, place.held(tokens(1, 2)), place.believed_sent(tokens(1, 2))) == ("live", 0, 0)
        assert place.index.live(SLOT) == BLOCK
        feed.apply(batch(3, stored(1)), 0)
        assert place.held(tokens(1, 2)) == 1


class TestTrouble:
    def test_kv_gap_recovers(self, feed, place):
        """A lost batch costs the blocks known so far, once; the feed goes on from what it received."""
        place.sent(tokens(1, 2))
        feed.apply(batch(1, stored(1, 2)), 0)
        feed.apply(batch(4, stored(9, parent=2)), 0)
        assert (feed.state, feed.gaps, feed.last, place.held(tokens(1, 2))) == ("resync", 1, 4, 0)
        # Until it is live again it is scored by what was sent.
        assert (place.index.live(SLOT), place.believed_sent(tokens(1, 2))) == (0, 2)
        feed.apply(batch(5, stored(5, 6)), 0)
        feed.apply(batch(6, stored(7, parent=6)), 0)
        assert (feed.state, feed.gaps, place.held(tokens(5, 6, 7))) == ("live", 1, 3)

    def test_kv_gap_recovers_by_a_snapshot_where_the_engine_gives_them(self, feed, place):
        feed.apply(batch(3, Cleared(), stored(1), chunk=Chunk(0, 1, True)), 0)
        assert feed.state == "live"
        assert feed.apply(batch(9), 0)

    def test_kv_restart_by_numbers_that_begin_anew(self, feed, place):
        place.sent(tokens(1, 2))
        feed.apply(batch(50, stored(1, 2), timestamp=100.0), 0)
        feed.apply(batch(1, stored(5), timestamp=101.0), 0)
        assert (feed.state, feed.last, place.held(tokens(1, 2)), place.held(tokens(5))) == ("live", 1, 0, 1)
        assert place.believed_sent(tokens(1, 2)) == 0

    def test_kv_restart_with_blocks_of_another_size(self, feed, place):
        feed.apply(batch(50, stored(1, 2), timestamp=100.0), 0)
        feed.apply(batch(1, Stored([7], [7] * 8, 8), timestamp=101.0), 0)
        assert (feed.state, place.index.live(SLOT), feed.refused) == ("live", 8, 0)

    def test_a_stream_that_was_lost_begins_anew(self, feed, place):
        feed.apply(batch(50, stored(1, 2)), 0)
        feed.drop()
        assert (feed.state, feed.last, place.held(tokens(1, 2)), place.index.live(SLOT)) == ("resync", None, 0, 0)
        feed.apply(batch(60, stored(1)), 0)
        assert (feed.state, feed.gaps) == ("live", 0)

    def test_blocks_of_a_worker_that_was_dismissed_touch_nobody(self, feed, place):
        feed.apply(batch(1, stored(1)), 0)
        place.index.dismiss(SLOT)
        place.index.admit(SLOT)
        ticket = place.index.ticket(SLOT, 1)
        feed.apply(batch(2, stored(2, parent=1)), 0)
        feed.apply(batch(9), 0)
        assert place.index.ticket(SLOT, 1) == ticket
        assert (place.held(tokens(1, 2)), place.held(tokens(2))) == (0, 0)


class TestSnapshots:
    def test_its_last_chunk_makes_a_rank_live(self, feed, place):
        feed.apply(batch(8, Cleared(), stored(1), chunk=Chunk(0, 2, True)), 0)
        feed.apply(batch(9, stored(2, parent=1), chunk=Chunk(1, 2, True)), 0)
        assert (feed.state, feed.last, place.held(tokens(1, 2))) == ("live", 9, 2)

    def test_one_of_an_empty_cache_says_that_nothing_sent_is_there(self, feed, place):
        place.sent(tokens(1))
        feed.apply(batch(1, Cleared(), chunk=Chunk(0, 1, True)), 0)
        assert (feed.state, place.believed_sent(tokens(1))) == ("syncing", 0)
        feed.apply(batch(2, stored(1)), 0)
        assert feed.state == "live"

    def test_a_second_one_replaces_what_was_known(self, feed, place):
        feed.apply(batch(5, Cleared(), stored(1), chunk=Chunk(0, 1, True)), 0)
        feed.apply(batch(3, Cleared(), stored(2), chunk=Chunk(0, 1, True)), 0)
        assert (place.held(tokens(1)), place.held(tokens(2)), feed.state, feed.last) == (0, 1, "live", 3)


class TestOrphans:
    def test_kv_orphan_waits_for_its_parent(self, feed, place):
        feed.apply(batch(1, stored(3, parent=2), stored(4, parent=3)), 0)
        assert (feed.state, feed.orphans, feed.size) == ("syncing", 2, 0)
        feed.apply(batch(2, stored(1, 2)), 1)
        assert (place.held(tokens(1, 2, 3, 4)), feed.size) == (4, 4)

    def test_kv_orphan_is_never_put_at_the_root(self, feed, place):
        feed.apply(batch(1, stored(3, parent=2)), 0)
        assert place.held(tokens(3)) == 0

    def test_kv_orphan_is_given_up_in_time(self, feed, place):
        feed.apply(batch(1, stored(3, parent=2)), 0)
        feed.expire(kv_events.ORPHAN_SECS)
        feed.apply(batch(2, stored(1, 2)), 99)
        assert place.held(tokens(1, 2, 3)) == 2

    def test_kv_orphan_that_was_removed_meanwhile_stays_away(self, feed, place):
        feed.apply(batch(1, stored(3, parent=2)), 0)
        feed.apply(batch(2, Removed([3])), 0)
        feed.apply(batch(3, stored(1, 2)), 0)
        assert place.held(tokens(1, 2, 3)) == 2

    def test_there_is_room_for_so_many_and_the_oldest_go(self, feed, place, monkeypatch):
        monkeypatch.setattr(kv_events, "ORPHANS", 2)
        feed.apply(batch(1, *(stored(10 + parent, parent=parent) for parent in (1, 2, 3))), 0)
        feed.apply(batch(2, *(stored(parent) for parent in (1, 2, 3))), 0)
        assert [place.held(tokens(parent, 10 + parent)) for parent in (1, 2, 3)] == [1, 2, 2]


class TestWhatIsNotPlain:
    def test_lora_prefix_isolation(self, feed, place):
        feed.apply(batch(1, stored(1, 2, adapter="sql")), 0)
        assert (place.held(tokens(1, 2)), place.held(tokens(1, 2), adapter=3)) == (0, 2)

    def test_below_a_block_that_was_left_out_nothing_is_entered(self, feed, place):
        feed.apply(batch(1, stored(1, skipped=[2, 3]), stored(4, parent=3), stored(5, parent=4)), 0)
        assert (place.held(tokens(1)), feed.size, feed.orphans) == (1, 1, 0)

    def test_blocks_of_a_second_size_are_refused(self, feed, place):
        feed.apply(batch(1, stored(1), Stored([2], [2] * 8, 8, 1), Stored([3], [3] * 4, 4, 2)), 0)
        assert (feed.size, feed.refused, feed.state) == (1, 1, "live")


class TestWire:
    """What is decoded of a batch, and what of it counts."""

    def message(self) -> pb.KvEventBatch:
        out = pb.KvEventBatch(sequence_number=3, timestamp=2.5, dp_rank=1)
        told = out.events.add().stored
        told.parent_block_hash = -5
        for name in (7, 8):
            told.blocks.add(block_hash=name, token_ids=[name] * 4, block_size=4)
        return out

    def only(self, message: pb.KvEventBatch):
        return decode(message.SerializeToString()).events

    def test_a_batch(self):
        out = self.message()
        out.events.add().removed.block_hashes.extend([7, -1])
        out.events.add().cleared.SetInParent()
        batch = decode(out.SerializeToString())
        assert (batch.sequence, batch.timestamp, batch.rank, batch.chunk, batch.load_only) == (3, 2.5, 1, None, False)
        assert batch.events == (Stored([7, 8], [7] * 4 + [8] * 4, 4, -5, skipped=[]), Removed([7, -1]), Cleared())

    def test_snapshots_and_load_records(self):
        out = self.message()
        out.snapshot.index, out.snapshot.count, out.snapshot.unknown_before = 1, 4, 2
        out.load.load_only = True
        batch = decode(out.SerializeToString())
        assert (batch.chunk, batch.load_only) == (Chunk(1, 4, complete=False), True)

    def test_the_load_of_the_rank(self):
        out = self.message()
        assert decode(out.SerializeToString()).load is None
        out.load.running_requests, out.load.waiting_requests, out.load.token_usage = 2, 3, 0.9
        assert decode(out.SerializeToString()).load == EngineLoad(dp_rank=1, running=2, waiting=3, usage=0.9)
        out.load.waiting_uncached_tokens, out.load.active_token_usage, out.load.cache_hit_rate = 70, 0.25, 0.5
        out.load.num_used_tokens, out.load.max_total_num_tokens, out.load.max_running_requests = 10, 100, 8
        out.load.gen_throughput = 7.5
        assert decode(out.SerializeToString()).load == EngineLoad(1, 2, 3, 10, 100, 0.25, 70, 7.5, 0.5, 0.0, 8)

    @pytest.mark.parametrize(
        "change",
        [
            {"tier": pb.KV_CACHE_TIER_HOST},
            {"tier": pb.KV_CACHE_TIER_EXTERNAL},
            {"locality": pb.KV_CACHE_LOCALITY_REMOTE},
            {"group_idx": 1},
            {"kv_cache_spec_kind": "sliding_window"},
        ],
    )
    def test_what_is_not_in_device_memory_for_all_tokens_does_not_count(self, change):
        out = self.message()
        for name, value in change.items():
            setattr(out.events[0].stored, name, value)
        assert self.only(out) == ()

    def test_device_memory_is_what_counts(self):
        out = self.message()
        told = out.events[0].stored
        told.tier, told.locality, told.kv_cache_spec_kind = 1, 1, "full_attention"
        assert len(self.only(out)) == 1

    def test_an_adapters_name_keys_its_blocks(self):
        out = self.message()
        out.events[0].stored.lora_name = "sql"
        out.events[0].stored.blocks[0].extra_keys.add(text="sql")
        [event] = self.only(out)
        assert (event.adapter, list(event.hashes), list(event.skipped)) == ("sql", [7, 8], [])

    def test_multimodal_blocks_and_all_after_them_are_left_out(self):
        out = self.message()
        out.events[0].stored.blocks[1].extra_keys.add().multimodal.identifier = "image"
        [event] = self.only(out)
        assert (list(event.hashes), event.tokens, list(event.skipped)) == ([7], [7] * 4, [8])

    def test_a_salted_chain_is_left_out_whole(self):
        out = self.message()
        out.events[0].stored.cache_salt = "tenant"
        [event] = self.only(out)
        assert (list(event.hashes), list(event.skipped)) == ([], [7, 8])

    def test_blocks_of_a_wrong_length_are_left_out(self):
        out = self.message()
        out.events[0].stored.blocks[1].token_ids.append(1)
        [event] = self.only(out)
        assert (list(event.hashes), list(event.skipped)) == ([7], [8])

    def test_what_is_no_batch_is_an_error(self):
        with pytest.raises(ValueError, match="KvEventBatch"):
            decode(b"\xff\xff\xff")
