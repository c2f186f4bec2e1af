"""Sampling is what plain definitions say (spec engine-contract 2.3), and a pure function of seed and step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smg.engine_server.llama.sampling import Params, Sampler, draw, head, logprobs, shortlist, uniform


def reference(weights: np.ndarray, top_k: int, top_p: float, min_p: float) -> list[int]:
    """min-p, top-k and top-p the slow way."""
    order = sorted(range(len(weights)), key=lambda id: (-weights[id], id))
    order = [id for id in order if weights[id] >= min_p * weights[order[0]]]
    if top_k:
        order = order[:top_k]
    total, out, share = float(np.sum(weights[order])), [], 0.0
    for id in order:
        out.append(id)
        share += weights[id]
        if share >= top_p * total:
            break
    return out


def peaked(size: int, seed: int) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 3, size)
    return np.exp(logits - logits.max())


@pytest.mark.parametrize("size", [5, 1500])
@pytest.mark.parametrize("top_k", [0, 1, 4, 700])
@pytest.mark.parametrize("top_p", [1.0, 0.95, 0.3, 1e-6])
@pytest.mark.parametrize("min_p", [0.0, 0.02, 1.0])
def test_the_shortlist_is_min_p_then_top_k_then_top_p(size, top_k, top_p, min_p):
    weights = peaked(size, seed=size)
    assert shortlist(weights, Params(top_k=top_k, top_p=top_p, min_p=min_p)).tolist() == reference(
        weights, top_k, top_p, min_p
    )


@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.sampled_from([0.25, 0.5, 1.0])), st.integers(1, 40))
def test_ties_go_to_the_lower_id(weights, count):
    count = min(count, weights.size)
    expected = sorted(range(weights.size), key=lambda id: (-weights[id], id))[:count]
    assert head(weights, lambda ids: ids.size >= count)[:count].tolist() == expected


@pytest.mark.parametrize(
    ("number", "params", "token"),
    [
        (0.0, Params(), 0),
        (0.19, Params(), 0),
        (0.21, Params(), 1),
        (0.99, Params(), 2),
        # best first where something is cut off: 1 (0.6), then 0 (0.2 of the 0.8 left)
        (0.74, Params(top_k=2), 1),
        (0.76, Params(top_k=2), 0),
        (0.999, Params(top_k=1), 1),
    ],
)
def test_the_number_is_a_place_in_the_cumulative_distribution(number, params, token):
    assert draw(np.array([0.2, 0.6, 0.2]), number, params) == token


def test_drawn_frequencies_are_the_probabilities():
    logits = np.log(np.array([0.1, 0.2, 0.7], dtype=np.float32))
    drawn = [Sampler(Params(seed=seed), [0]).pick(logits) for seed in range(4000)]
    assert np.bincount(drawn, minlength=3) / 4000 == pytest.approx([0.1, 0.2, 0.7], abs=0.03)
    cooler = [Sampler(Params(seed=seed, temperature=0.5), [0]).pick(logits) for seed in range(4000)]
    assert np.bincount(cooler, minlength=3) / 4000 == pytest.approx([1 / 54, 4 / 54, 49 / 54], abs=0.03)


def test_a_step_depends_on_seed_and_step_only():
    logits = np.random.default_rng(0).normal(0, 1, 500).astype(np.float32)

    def run(seed):
        sampler = Sampler(Params(seed=seed), [1])
        return [sampler.pick(logits) for _ in range(20)]

    assert run(7) == run(7)
    assert run(7) != run(8)
    assert len(set(run(7))) > 5
    numbers = {uniform(seed, step) for seed in (-1, 0, 1, 2**31 - 1) for step in range(100)}
    assert len(numbers) == 400
    assert all(0 <= number < 1 for number in numbers)


def test_without_a_seed_requests_differ():
    logits = np.zeros(1000, dtype=np.float32)
    assert len({Sampler(Params(), [1]).pick(logits) for _ in range(20)}) > 5


def test_zero_temperature_takes_the_best_and_the_lower_of_two_equals():
    sampler = Sampler(Params(temperature=0.0), [0])
    assert sampler.pick(np.array([1, 5, 5, 2], dtype=np.float32)) == 1


def test_penalties_follow_their_definitions():
    params = Params(temperature=0, repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    sampler = Sampler(params, prompt=[1])
    logits = np.array([1.0, 1.9, -1.0, 0.9], dtype=np.float32)
    # the prompt's token 1 falls to 0.95: repetition counts the prompt, the other penalties the output only
    assert sampler.pick(logits) == 0
    # token 0: 1 / 2 - 0.5 - 0.25 = -0.25
    assert sampler.pick(logits) == 1
    # token 1: 0.95 - 0.75 = 0.2
    assert sampler.pick(logits) == 3
    # token 3: 0.45 - 0.75 = -0.3, token 1 is the best left
    assert sampler.pick(logits) == 1
    # token 1 twice: 0.95 - 1.0 - 0.25 = -0.3; token 0 is the best left
    assert sampler.pick(logits) == 0
    assert logits.tolist() == pytest.approx([1.0, 1.9, -1.0, 0.9])


def test_a_repetition_penalty_pushes_negative_logits_further_down():
    sampler = Sampler(Params(temperature=0, repetition_penalty=2.0), prompt=[0])
    assert sampler.pick(np.array([-1.0, -1.5], dtype=np.float32)) == 1


def test_logit_bias_is_added_before_everything_else():
    sampler = Sampler(Params(temperature=0, logit_bias={2: 10.0, 0: -100.0}), [0])
    assert sampler.pick(np.array([5, 1, 0], dtype=np.float32)) == 2


def test_held_ids_wait_for_min_tokens():
    sampler = Sampler(Params(temperature=0, min_tokens=2, held_ids=frozenset({0})), [1])
    logits = np.array([9, 1, 0], dtype=np.float32)
    assert [sampler.pick(logits) for _ in range(3)] == [1, 1, 0]


def test_a_constraint_goes_before_everything_else():
    allowed = np.array([False, True, True, False])
    logits = np.array([9, 1, 2, 9], dtype=np.float32)
    sampler = Sampler(Params(temperature=0, logit_bias={0: 100.0}), [0])
    assert sampler.pick(logits, allowed) == 2
    warm = [Sampler(Params(seed=seed, temperature=50.0, top_k=3), [0]).pick(logits, allowed) for seed in range(50)]
    assert set(warm) == {1, 2}
    assert logits.tolist() == [9, 1, 2, 9]


def test_a_constraint_that_leaves_only_the_end_goes_before_min_tokens():
    sampler = Sampler(Params(temperature=0, min_tokens=5, held_ids=frozenset({0})), [1])
    logits = np.array([1, 9, 9], dtype=np.float32)
    assert sampler.pick(logits, np.array([True, True, False])) == 1
    assert sampler.pick(logits, np.array([True, False, False])) == 0


def test_rounding_never_leads_to_a_token_without_weight():
    weights = np.array([1.0, 0.5, 0.0, 0.0])
    assert draw(weights, np.nextafter(1, 0), Params()) == 1
    assert draw(weights, np.nextafter(1, 0), Params(top_k=3)) == 1


def test_logits_that_are_not_numbers_are_an_error():
    with pytest.raises(ValueError, match="not numbers"):
        Sampler(Params(), [0]).pick(np.array([1, np.nan], dtype=np.float32))


def test_logprobs_are_of_the_raw_logits_with_the_sampled_token_first():
    logits = np.log(np.array([0.5, 0.2, 0.3], dtype=np.float32))
    row = logprobs(logits, 1, 2)
    assert row.value == pytest.approx(np.log(0.2), abs=1e-6)
    assert row.ids == [1, 0, 2]
    assert row.values == pytest.approx(np.log([0.2, 0.5, 0.3]), abs=1e-6)
    assert logprobs(logits, 2, 2).ids == [2, 0]
    assert [logprobs(logits, token, 1).ids for token in range(3)] == [[0], [1, 0], [2, 0]]
    assert logprobs(logits, 0, 3).ids == [0, 2, 1]
    bare = logprobs(logits, 1, 0)
    assert (bare.value, bare.ids, bare.values) == (row.value, [], [])
    assert logprobs(logits, 1, -1).ids == [1, 0, 2]


def test_logprobs_of_a_whole_vocabulary_add_up_to_one():
    logits = np.random.default_rng(1).normal(0, 4, 5000).astype(np.float32)
    row = logprobs(logits, 17, -1)
    assert sorted(row.ids) == list(range(5000))
    assert np.exp(row.values).sum() == pytest.approx(1, abs=1e-4)
    assert row.values[1:] == sorted(row.values[1:], reverse=True)
