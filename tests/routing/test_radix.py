"""The exact tree against a list of what was sent, and the shared index against the tree: blocks only round down."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg.routing.index.radix import RadixIndex

texts = st.text("ab", max_size=8)
tokens = st.lists(st.integers(0, 2), max_size=12)
workers = st.sampled_from(["u", "v", "w"])


def common(one, other) -> int:
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


@settings(deadline=None)
@given(sent=st.lists(st.tuples(texts, workers), max_size=30), asked=texts, removed=workers | st.none())
def test_a_match_is_the_longest_common_beginning_with_anything_sent(sent, asked, removed):
    tree = RadixIndex()
    for text, worker in sent:
        tree.insert(text, worker)
    if removed is not None:
        tree.remove(removed)
        sent = [(text, worker) for text, worker in sent if worker != removed]
    wanted = {}
    for text, worker in sent:
        wanted[worker] = max(wanted.get(worker, 0), common(text, asked))
    assert tree.match(asked) == {worker: length for worker, length in wanted.items() if length}


@settings(deadline=None)
@given(sent=st.lists(st.tuples(tokens, workers), max_size=30), asked=tokens, block=st.integers(1, 4))
def test_the_shared_index_is_the_tree_rounded_down_to_blocks(sent, asked, block):
    index, tree, names = PrefixIndex.create(1 << 16, slots=3), RadixIndex(), ["u", "v", "w"]
    for slot in range(3):
        index.admit(slot)
    for ids, worker in sent:
        index.insert(PrefixKeys.of_tokens(ids, block), index.ticket(names.index(worker)))
        tree.insert(ids, worker)
    exact = tree.match(asked)
    depths = index.depth(PrefixKeys.of_tokens(asked, block), range(3))
    assert depths == [exact.get(worker, 0) // block for worker in names]
    index.close()


def test_tok_count_exact_repeats_do_not_count():
    tree = RadixIndex()
    for _ in range(5):
        tree.insert([1, 2, 3, 4], "w")
    tree.insert([1, 2, 9], "w")
    tree.insert([1, 2, 3], "v")
    assert (tree.size("w"), tree.size("v"), tree.size("nobody")) == (5, 3, 0)


def test_evict_leaf_first():
    tree = RadixIndex()
    tree.insert("system prompt, old question", "w")
    tree.insert("system prompt, new question", "w")
    tree.evict("w", 28)
    assert tree.match("system prompt, old question") == {"w": 15}
    assert tree.match("system prompt, new question") == {"w": 27}
    tree.evict("w", 0)
    assert tree.match("system prompt, new question") == {}


@pytest.mark.parametrize("prompt", ["", []])
def test_nothing_matches_nothing(prompt):
    tree = RadixIndex()
    tree.insert(prompt, "w")
    assert tree.match(prompt) == {}
