"""What an engine that is far ahead has sent is worked off in portions (field case ME-01)."""

from hypothesis import given
from hypothesis import strategies as st

from smg.core.batch import TokenBatch, TokenLogprobs
from smg.pipeline.portions import PORTION, portion

batches = st.lists(
    st.builds(
        TokenBatch,
        index=st.integers(0, 2),
        ids=st.lists(st.integers(0, 9), max_size=12),
        finish=st.sampled_from([None, "stop"]),
        prompt_tokens=st.just(7),
    ),
    max_size=6,
)


def scored(batch: TokenBatch) -> TokenBatch:
    batch.logprobs = [TokenLogprobs(token, -0.5 * token) for token in batch.ids]
    return batch


def flat(batches: list[TokenBatch]) -> list[tuple[int, int | str]]:
    """Ids and ends in their order, each with its choice."""
    out: list[tuple[int, int | str]] = []
    for batch in batches:
        out += [(batch.index, token) for token in batch.ids]
        if batch.finish is not None:
            out.append((batch.index, batch.finish))
    return out


@given(batches=batches, size=st.integers(1, 8), logprobs=st.booleans())
def test_portions_are_bounded_and_together_what_came(batches, size, logprobs):
    batches = [scored(batch) for batch in batches] if logprobs else batches
    rest, taken = batches, []
    while rest:
        now, rest = portion(rest, size)
        assert now
        assert sum(len(batch.ids) for batch in now) <= size
        assert all(batch.prompt_tokens == 7 for batch in now)
        if logprobs:
            assert all([row.token for row in batch.logprobs] == batch.ids for batch in now)
        taken += now
    assert flat(taken) == flat(batches)


def test_what_fits_is_left_as_it_is():
    given = [TokenBatch(ids=[1, 2]), TokenBatch(ids=[], finish="stop")]
    now, later = portion(given)
    assert (now, later) == (given, [])
    assert now[0] is given[0]


def test_the_first_part_tells_of_the_prompt_and_the_last_of_the_end():
    rows = [TokenLogprobs(3, -1.0)]
    whole = TokenBatch(
        ids=[5] * (PORTION + 1), prompt_logprobs=rows, finish="stop", matched_stop=5, kv_params=b"kv", cached_tokens=2
    )
    (first,), (last,) = portion([whole])
    assert (len(first.ids), first.prompt_logprobs, first.finish, first.matched_stop) == (PORTION, rows, None, None)
    assert (last.ids, last.prompt_logprobs, last.finish, last.matched_stop) == ([5], None, "stop", 5)
    assert (first.kv_params, last.kv_params, first.cached_tokens, last.cached_tokens) == (None, b"kv", 2, 2)
