"""The prefix index against a plain-Python model: what is stored, evicted, forgotten, and by whom it is seen."""

import os

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from smg._native.event_blocks import EventBlocks
from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from tests._native.prefix_model import Model

BLOCK = 2
BYTES = 1 << 20
SLOTS = 4
slots = st.integers(0, SLOTS - 1)
# Few tokens, so that prompts share beginnings; up to 30 blocks, so that both ways of asking are taken.
prompts = st.one_of(
    st.lists(st.integers(0, 1), max_size=12),
    st.integers(0, 60).map(lambda size: [0] * size),
    st.tuples(st.integers(40, 56), st.integers(0, 3)).map(lambda pair: [0] * pair[0] + [pair[1]] * 4),
)


def keys_of(prompt: list[int]) -> PrefixKeys:
    return PrefixKeys.of_tokens(prompt, BLOCK)


def planes(index: PrefixIndex, keys: PrefixKeys, slots) -> list[tuple[int, int]]:
    """(approximate, exact) depth of each slot."""
    return list(zip(index.depth(keys, slots, 0), index.depth(keys, slots, 1), strict=True))


class Agreement(RuleBasedStateMachine):
    """Depths of both planes equal the longest common beginning in whole blocks, whatever happened before."""

    @initialize()
    def start(self) -> None:
        self.index = PrefixIndex.create(BYTES, slots=SLOTS)
        self.other = PrefixIndex.attach(self.index.fd)
        self.model = Model()
        self.asked: list[list[int]] = [[0] * 60, [0, 1] * 6]
        self.blocks: list[EventBlocks] = []
        self.told: list[dict[int, tuple[list[int], int]]] = []  # name: its whole beginning, its key
        for slot in range(SLOTS):
            self.index.admit(slot)
            self.blocks.append(EventBlocks(self.index, slot, BLOCK))
            self.told.append({})

    def teardown(self) -> None:
        self.other.close()
        self.index.close()

    @rule(slot=slots, prompt=prompts)
    def send(self, slot, prompt):
        keys = keys_of(prompt)
        self.asked.append(prompt)
        assert self.index.insert(keys, self.index.ticket(slot)) == keys.count
        self.model.insert(keys, str(slot), self.index.tick)

    @rule(slot=slots, prompt=prompts)
    def send_in_steps(self, slot, prompt):
        keys, tick, start, steps = keys_of(prompt), self.index.next_tick(), 0, 0
        while start >= 0:
            start = self.index.insert_some(keys, self.index.ticket(slot), tick, start, 0.0)
            steps += 1
        assert steps <= 1 + keys.count // 8
        self.model.insert(keys, str(slot), tick)

    @rule(age=st.integers(0, 6))
    def expire(self, age):
        self.index.expire(max(self.index.tick - age, 0))
        self.model.evict(self.index.floor)

    @rule(slot=slots)
    def replace_worker(self, slot):
        self.index.dismiss(slot)
        assert planes(self.index, keys_of([0] * 4), [slot]) == [(0, 0)]
        self.model.forget(str(slot))
        self.index.admit(slot)
        self.blocks[slot] = EventBlocks(self.index, slot, BLOCK)
        self.told[slot] = {}

    @rule()
    def sweep(self):
        assert self.index.sweep()

    @rule(slot=slots, name=st.integers(-3, 8), parent=st.none() | st.integers(-3, 8), prompt=prompts)
    def engine_stores(self, slot, name, parent, prompt):
        prompt = prompt[: len(prompt) // BLOCK * BLOCK]
        names = list(range(name, name + len(prompt) // BLOCK))
        told = self.told[slot]
        known = parent is None or parent in told
        assert self.blocks[slot].store(names, prompt, parent) == known
        if not known:
            return
        before = [] if parent is None else told[parent][0]
        for number, each in enumerate(names):
            whole = before + prompt[: (number + 1) * BLOCK]
            told[each] = (whole, keys_of(whole).tolist()[-1])
        self.asked.append(before + prompt)
        self.retell(slot)

    @rule(slot=slots, names=st.lists(st.integers(-3, 12), max_size=6))
    def engine_removes(self, slot, names):
        self.blocks[slot].remove(names)
        for name in names:
            self.told[slot].pop(name, None)
        self.retell(slot)

    @rule(slot=slots)
    def engine_clears(self, slot):
        self.blocks[slot].clear()
        self.told[slot] = {}
        self.retell(slot)

    @rule(slot=slots)
    def repair(self, slot):
        assert self.blocks[slot].repair()

    def retell(self, slot: int) -> None:
        self.model.forget(str(slot), plane=1)
        for _, key in self.told[slot].values():
            self.model.exact.setdefault(key, set()).add(str(slot))

    @invariant()
    def agree(self):
        for prompt in self.asked[:2] + self.asked[-8:]:
            keys = keys_of(prompt)
            wanted = [tuple(self.model.depth(keys, str(slot), plane) for plane in (0, 1)) for slot in range(SLOTS)]
            assert planes(self.other, keys, range(SLOTS)) == wanted
        for slot in range(SLOTS):
            assert len(self.blocks[slot]) == len({key for _, key in self.told[slot].values()})
            assert self.blocks[slot].lost == 0


def test_overlap_exact_fuzz():
    run_state_machine_as_test(Agreement, settings=settings(max_examples=80, stateful_step_count=40, deadline=None))


@pytest.fixture
def index():
    made = PrefixIndex.create(BYTES, processes=4, slots=256)
    yield made
    made.close()


class TestWithdraw:
    def test_from_a_depth_on_the_worker_holds_nothing_more_and_others_all(self, index):
        keys = keys_of(list(range(20)))
        for slot in (0, 1):
            index.insert(keys, index.admit(slot))
        index.withdraw(keys, index.ticket(0), 4)
        assert planes(index, keys, [0, 1]) == [(4, 0), (10, 0)]
        index.insert(keys, index.ticket(0))
        assert planes(index, keys, [0]) == [(10, 0)]

    def test_a_former_worker_takes_nothing_from_its_successor(self, index):
        keys, ticket = keys_of([1] * 8), index.admit(0)
        index.dismiss(0)
        index.insert(keys, index.admit(0))
        index.withdraw(keys, ticket, 0)
        assert planes(index, keys, [0]) == [(4, 0)]

    def test_depths_beyond_the_prompt_take_nothing(self, index):
        keys = keys_of([1] * 8)
        index.insert(keys, index.admit(0))
        index.withdraw(keys, index.ticket(0), 9)
        index.withdraw(keys, 0, 0)
        assert planes(index, keys, [0]) == [(4, 0)]


class TestSeveralHolders:
    def test_all_workers_that_hold_a_prefix_are_seen(self, index):
        keys = keys_of(list(range(40)))
        for slot, length in ((1, 40), (7, 20), (9, 40)):
            index.insert(keys_of(list(range(length))), index.admit(slot))
        assert [depth for depth, _ in planes(index, keys, [1, 7, 9, 3])] == [20, 10, 20, 0]

    def test_more_than_64_workers(self, index):
        shared, deep = list(range(16)), list(range(100))
        for slot in range(256):
            index.insert(keys_of(shared), index.admit(slot))
        for slot in (3, 64, 200):
            index.insert(keys_of(deep), index.ticket(slot))
        depths = [depth for depth, _ in planes(index, keys_of(deep), range(256))]
        assert [slot for slot, depth in enumerate(depths) if depth == 50] == [3, 64, 200]
        assert set(depths) == {8, 50}

    def test_the_order_of_slots_is_kept_and_may_repeat(self, index):
        index.insert(keys_of([1, 2, 3, 4]), index.admit(5))
        assert planes(index, keys_of([1, 2, 3, 4]), [4, 5, 5]) == [(0, 0), (2, 0), (2, 0)]


class TestKeys:
    """The index makes the same keys, with its own memory in mind."""

    def test_of_text(self, index):
        for size in (0, 15, 16, 700, 5000):
            assert index.text_keys("x" * size, 7).tolist() == PrefixKeys.of_text("x" * size, 7).tolist()

    def test_of_tokens(self, index):
        for size in (0, 1, 40, 5000):
            keys = index.token_keys(range(size), BLOCK, 7, 3)
            assert keys.tolist() == PrefixKeys.of_tokens(range(size), BLOCK, 7, 3).tolist()


class TestSteps:
    """A long prompt is entered piece by piece."""

    def test_a_step_ends_when_its_time_is_over_and_tells_where(self, index):
        keys, ticket = keys_of(list(range(2 * 60))), index.admit(0)
        tick = index.next_tick()
        assert index.insert_some(keys, ticket, tick, 0, 0.0) == 8
        assert planes(index, keys, [0]) == [(8, 0)]
        assert index.insert_some(keys, ticket, tick, 8, 0.0) == 16
        assert index.insert_some(keys, ticket, tick, 16, 60.0) == -1
        assert planes(index, keys, [0]) == [(60, 0)]
        assert index.tick == tick, "one prompt, one number"

    def test_what_is_known_takes_steps_like_what_is_new(self, index):
        keys, ticket = keys_of(list(range(2 * 60))), index.admit(0)
        index.insert(keys, ticket)
        tick, start, steps = index.next_tick(), 0, 0
        while (start := index.insert_some(keys, ticket, tick, start, 0.0)) >= 0:
            steps += 1
        assert steps == 60 // 8
        assert planes(index, keys, [0]) == [(60, 0)]

    def test_the_rest_of_a_worker_that_has_left_is_not_entered(self, index):
        keys, ticket = keys_of(list(range(2 * 60))), index.admit(0)
        tick = index.next_tick()
        start = index.insert_some(keys, ticket, tick, 0, 0.0)
        index.dismiss(0)
        index.admit(0)
        assert index.insert_some(keys, ticket, tick, start, 0.0) == -1
        assert planes(index, keys, [0]) == [(0, 0)]

    def test_a_prompt_longer_than_the_index_comes_to_an_end(self, index):
        keys = keys_of(list(range(4 * index.counts()["capacity"])))
        ticket, tick, start = index.admit(0), index.next_tick(), 0
        while (went := index.insert_some(keys, ticket, tick, start, 0.0)) >= 0:
            assert went > start
            start = went
        assert 0 < start < keys.count

    def test_there_is_nothing_before_the_first_block(self, index):
        with pytest.raises(ValueError, match="no block -1"):
            index.insert_some(keys_of([1, 2]), index.admit(0), 1, -1, 1.0)


class TestEviction:
    """Tests 8 and 10 of spec routing 11."""

    def fill(self, index, prompts, length=40):
        ticket = index.admit(0)
        for number in range(prompts):
            index.insert(keys_of([number * 3 + 1, *range(length)]), ticket)

    def test_evict_leaf_first_no_prefix_survives_without_its_ancestors(self, index):
        """Far more than fits: what is left of every prompt is its beginning."""
        capacity = index.counts()["capacity"]
        count = 4 * capacity // 20
        model, ticket = Model(), index.admit(0)
        for number in range(count):
            keys = keys_of([number // 3, *range(40)])
            index.insert(keys, ticket)
            model.insert(keys, "0", index.tick)
        model.evict(index.floor)
        assert index.floor > 1
        depths = []
        for number in range(0, count, 7):
            keys = keys_of([number // 3, *range(40)])
            assert planes(index, keys, [0])[0][0] == model.depth(keys, "0", 0)
            depths.append(model.depth(keys, "0", 0))
        assert depths[0] == 0
        assert depths[-1] == 20

    def test_the_budget_holds(self, index):
        self.fill(index, 5000)
        counts = index.counts()
        assert counts["entries"] <= counts["places"] <= counts["capacity"]
        assert counts["bytes"] <= BYTES
        assert counts["entries"] > counts["capacity"] // 2

    def test_memory_grows_with_what_is_held(self):
        index = PrefixIndex.create(64 << 20)

        def resident() -> int:
            return os.fstat(index.fd).st_blocks * 512

        self.fill(index, 20)
        assert resident() < (8 << 20) + (1 << 18)
        self.fill(index, 20_000)
        held = index.counts()["entries"]
        assert held == 20_000 * 20
        assert 32 * held < resident() < 2 * 32 * held
        index.close()

    def test_a_prefix_in_use_outlives_colder_ones(self, index):
        """Also where an eviction has already begun: using it again counts."""
        hot, ticket = keys_of(list(range(40))), index.admit(1)
        index.insert(hot, ticket)
        for number in range(5000):
            index.insert(keys_of([number * 3 + 1, *range(40)]), index.admit(0))
            if number % 20 == 0:
                index.insert(hot, ticket)
        assert planes(index, hot, [0, 1]) == [(0, 0), (20, 0)]

    def test_a_former_holder_does_not_come_back_with_a_new_one(self, index):
        keys = keys_of([1, 2, 3, 4])
        index.insert(keys, index.admit(0))
        index.expire(index.tick + 1)
        index.insert(keys, index.admit(1))
        assert planes(index, keys, [0, 1]) == [(0, 0), (2, 0)]

    def test_exact_blocks_are_never_evicted(self, index):
        index.admit(2)
        blocks, ids = EventBlocks(index, 2, BLOCK), list(range(1000))
        assert blocks.store(range(500), ids)
        self.fill(index, 5000)
        assert planes(index, keys_of(ids), [2]) == [(0, 500)]

    def test_exact_blocks_beyond_the_budget_are_counted_as_lost(self, index):
        index.admit(2)
        blocks, count = EventBlocks(index, 2, BLOCK), index.counts()["capacity"]
        assert blocks.store(range(count), range(2 * count))
        assert 0 < blocks.lost < count
        assert not blocks.repair()
        blocks.clear()
        assert index.sweep()
        assert blocks.store([1, 2], [1, 2, 3, 4])
        assert (blocks.lost, planes(index, keys_of([1, 2, 3, 4]), [2])) == (0, [(0, 2)])

    def test_a_prompt_longer_than_the_index_keeps_its_beginning(self, index):
        keys = keys_of(list(range(4 * index.counts()["capacity"])))
        held = index.insert(keys, index.admit(0))
        assert 0 < held < keys.count
        assert 0 < planes(index, keys, [0])[0][0] <= held


class TestEvents:
    """Tests 3, 12 and 13 of spec routing 11."""

    @pytest.fixture
    def blocks(self, index):
        index.admit(0)
        return EventBlocks(index, 0, BLOCK)

    def exact(self, index, prompt):
        return planes(index, keys_of(prompt), [0])[0][1]

    def test_kv_orphan_an_unknown_parent_stores_nothing(self, index, blocks):
        assert not blocks.store([1, 2], [1, 2, 3, 4], parent=99)
        assert len(blocks) == 0
        assert self.exact(index, [1, 2, 3, 4]) == 0

    def test_a_chain_goes_on_where_its_parent_ends(self, index, blocks):
        assert blocks.store([1], [1, 2])
        assert blocks.store([2, 3], [3, 4, 5, 6], parent=1)
        assert self.exact(index, [1, 2, 3, 4, 5, 6, 7]) == 3
        assert self.exact(index, [3, 4, 5, 6]) == 0

    def test_overlap_exact_a_hole_ends_the_match(self, index, blocks):
        blocks.store([1, 2, 3], [1, 2, 3, 4, 5, 6])
        blocks.remove([2])
        assert self.exact(index, [1, 2, 3, 4, 5, 6]) == 1
        blocks.store([9], [3, 4], parent=1)
        assert self.exact(index, [1, 2, 3, 4, 5, 6]) == 3

    def test_index_restore_no_leak(self, index, blocks):
        blocks.store([1], [1, 2])
        blocks.store([1], [3, 4])
        assert len(blocks) == 1
        assert (self.exact(index, [1, 2]), self.exact(index, [3, 4])) == (0, 1)
        blocks.remove([1])
        assert (len(blocks), self.exact(index, [3, 4])) == (0, 0)

    def test_told_twice_counts_once_and_two_names_count_twice(self, index, blocks):
        blocks.store([1], [1, 2])
        blocks.store([1], [1, 2])
        blocks.store([2], [1, 2])
        assert len(blocks) == 1
        blocks.remove([1])
        assert self.exact(index, [1, 2]) == 1
        blocks.remove([2])
        assert self.exact(index, [1, 2]) == 0

    def test_lora_prefix_isolation(self, index, blocks):
        blocks.store([1, 2], [1, 2, 3, 4], adapter=7)
        assert self.exact(index, [1, 2, 3, 4]) == 0
        assert planes(index, PrefixKeys.of_tokens([1, 2, 3, 4], BLOCK, adapter=7), [0]) == [(0, 2)]
        assert planes(index, PrefixKeys.of_tokens([1, 2, 3, 4], BLOCK, adapter=8), [0]) == [(0, 0)]

    def test_hashes_are_64_bits_signed_or_not(self, index, blocks):
        blocks.store([-1], [1, 2])
        assert (1 << 64) - 1 in blocks
        blocks.remove([(1 << 64) - 1])
        assert self.exact(index, [1, 2]) == 0

    def test_wrong_sizes_are_refused(self, blocks):
        with pytest.raises(ValueError, match="3 tokens are not 2 blocks of 2"):
            blocks.store([1, 2], [1, 2, 3])
        with pytest.raises(ValueError, match="not a token id"):
            blocks.store([1], [1, -2])

    def test_many_names_come_and_go(self, index, blocks):
        """The private maps grow, shrink and close their gaps."""
        for start in range(0, 3000, 500):
            assert blocks.store(range(start, start + 1000), range(2 * start, 2 * start + 2000))
            blocks.remove(range(start, start + 500))
            assert all(name not in blocks for name in range(start, start + 500))
            assert all(name in blocks for name in range(start + 500, start + 1000))
            assert len(blocks) == 500
