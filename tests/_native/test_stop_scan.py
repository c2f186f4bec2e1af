"""The stop automaton against a model that tries every pattern at every place (spec text-pipeline 5)."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smg._native.stop_scan import StopAutomaton

# Few letters, so that patterns overlap, contain and continue one another.
DENSE = st.lists(st.sampled_from([b"a", b"b", b"\xff"]), max_size=40).map(b"".join)
DENSE_PATTERNS = st.lists(
    st.lists(st.sampled_from([b"a", b"b", b"\xff"]), min_size=1, max_size=6).map(b"".join), max_size=5
)
ANY_PATTERNS = st.lists(st.binary(min_size=1, max_size=8), max_size=6)


def model_find(patterns: list[bytes], data: bytes) -> tuple[int, int]:
    """Earliest end, ties to the longest; of equal patterns the first. (-1, -1) without a match."""
    for end in range(1, len(data) + 1):
        hits = [number for number, pattern in enumerate(patterns) if data[:end].endswith(pattern)]
        if hits:
            return end, max(hits, key=lambda number: (len(patterns[number]), -number))
    return -1, -1


def model_held(patterns: list[bytes], data: bytes) -> int:
    tails = (size for size in range(len(data), 0, -1) if any(p.startswith(data[-size:]) for p in patterns))
    return next(tails, 0)


def model_leftmost(patterns: list[bytes], data: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(data):
        hits = [number for number, pattern in enumerate(patterns) if data.startswith(pattern, at)]
        if hits:
            best = max(hits, key=lambda number: (len(patterns[number]), -number))
            at += len(patterns[best])
            found.append((at, best))
        else:
            at += 1
    return found


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def scan_chunks(automaton: StopAutomaton, chunks: list[bytes]) -> tuple[int, int, int]:
    """(end in the whole text, pattern, held back at the end or at the match)."""
    state = read = 0
    for chunk in chunks:
        state, end, pattern = automaton.scan(chunk, state)
        if end >= 0:
            return read + end, pattern, 0
        read += len(chunk)
    return -1, -1, automaton.depth(state)


@given(DENSE_PATTERNS, DENSE, st.lists(st.integers(0, 100), max_size=8))
@example([b"ab", b"b"], b"aab", [])
@example([b"aab", b"ab"], b"aab", [2])
@example([], b"anything", [3])
def test_earliest_end_longest_tie_and_minimal_hold_for_any_cut(patterns, data, cuts):
    end, pattern, held = scan_chunks(StopAutomaton(patterns), split_at(data, cuts))
    assert (end, pattern) == model_find(patterns, data)
    if end < 0:
        assert held == model_held(patterns, data)


@given(ANY_PATTERNS, st.binary(max_size=200), st.data())
def test_any_bytes(patterns, noise, data):
    inserted = data.draw(st.sampled_from([b"", *patterns]))
    at = data.draw(st.integers(0, len(noise)))
    text = noise[:at] + inserted + noise[at:]
    one_by_one = [text[i : i + 1] for i in range(len(text))]
    end, pattern, _ = scan_chunks(StopAutomaton(patterns), one_by_one)
    assert (end, pattern) == model_find(patterns, text)


@given(DENSE_PATTERNS, DENSE)
def test_leftmost_longest_without_overlaps(patterns, data):
    assert StopAutomaton(patterns).leftmost(data) == model_leftmost(patterns, data)


@given(ANY_PATTERNS, st.lists(st.integers(0, 5), max_size=12))
def test_leftmost_among_any_bytes(patterns, picks):
    data = b"".join((patterns[pick] if pick < len(patterns) else b"<\xff") for pick in picks)
    assert StopAutomaton(patterns).leftmost(data) == model_leftmost(patterns, data)


def test_every_byte_value_may_begin_a_pattern():
    automaton = StopAutomaton([bytes([byte, 0x41]) for byte in range(256)])
    assert automaton.scan(b"\x00\xff\x80A") == (automaton.scan(b"\x80A")[0], 4, 0x80)
    assert automaton.scan(b"BB")[1] == -1


def test_a_tie_goes_to_the_longest_and_an_earlier_end_beats_an_earlier_start():
    assert StopAutomaton([b"d", b"bcd"]).scan(b"abcd")[1:] == (4, 1)
    assert StopAutomaton([b"bcde", b"c"]).scan(b"abcde")[1:] == (3, 1)


def test_only_what_may_still_match_is_held():
    automaton = StopAutomaton([b"<|a-very-long-stop-marker-of-40-characters|>"])
    for text, held in ((b"I am here", 0), (b"a <", 1), (b"a < ", 0), (b"<|a-v", 5), (b"<|a<|", 2)):
        assert automaton.depth(automaton.scan(text)[0]) == held


def test_the_first_of_equal_patterns_is_reported():
    assert StopAutomaton([b"x", b"x"]).scan(b"x")[1:] == (1, 0)


def test_buffers_of_any_kind_are_read():
    automaton = StopAutomaton([b"b"])
    assert automaton.scan(bytearray(b"ab")) == automaton.scan(memoryview(b"xab")[1:]) == automaton.scan(b"ab")
    assert automaton.scan(b"", 0) == (0, -1, -1)


@pytest.mark.parametrize("state", [-1, 3, 2**31 - 1])
def test_a_state_of_another_automaton_is_refused(state):
    automaton = StopAutomaton([b"ab"])
    with pytest.raises(ValueError, match="no state"):
        automaton.scan(b"a", state)
    with pytest.raises(ValueError, match="no state"):
        automaton.depth(state)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="must not be empty"):
        StopAutomaton([b"a", b""])


@pytest.mark.parametrize("pattern", [None, "text", 3])
def test_patterns_are_bytes(pattern):
    with pytest.raises(TypeError):
        StopAutomaton([pattern])


def test_memory_is_bounded():
    assert StopAutomaton([b"x" * 4000]).nbytes < 64 * 1024
    with pytest.raises(ValueError, match="too many or too long"):
        StopAutomaton([bytes([i % 256, i // 256]) * 50 for i in range(1000)])


def test_thousands_of_patterns_that_begin_alike_share_their_states():
    patterns = [b"<unused%d>" % number for number in range(6000)]
    automaton = StopAutomaton(patterns)
    assert automaton.nbytes < 1024 * 1024
    assert automaton.leftmost(b"a <unused17><unused5999>") == [(12, 17), (24, 5999)]


def test_a_long_text_has_the_matches_of_its_parts():
    matcher, part = StopAutomaton([b"stop", b"<|end|>", b"stopped"]), b"go on and stopped, not stop<|end|> " * 100
    parts = 40
    assert len(part) * parts > 64 << 10
    found = matcher.leftmost(part)
    assert len(found) == 300
    assert matcher.leftmost(part * parts) == [
        (number * len(part) + end, pattern) for number in range(parts) for end, pattern in found
    ]
    assert matcher.scan(b"." * (128 << 10) + b"stop") == (matcher.scan(b"stop")[0], (128 << 10) + 4, 0)
