"""Stop strings: earliest end, ties to the longest, and no character held that could not be part of one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.text.stops import StopScanner
from tests.splits import splits


def run(stops, chunks, visible=False):
    """(text sent, matched) of a whole stream."""
    scanner = StopScanner(stops, visible)
    text = "".join(scanner.feed(chunk) for chunk in chunks)
    return text + scanner.flush(), scanner.matched


def model(stops, text, visible=False):
    """Look at every end in turn."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end if visible else end - len(longest)], longest
    return text, None


STOPS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4)


@given(STOPS, st.lists(st.text("abc", max_size=6), max_size=6), st.booleans())
def test_any_chunking_equals_the_model(stops, chunks, visible):
    assert run(stops, chunks, visible) == model(stops, "".join(chunks), visible)


@given(STOPS, st.text("abc", max_size=12))
def test_FIX_5_only_a_possible_beginning_is_held(stops, text):
    scanner = StopScanner(stops)
    scanner.feed(text)
    if scanner.matched is None:
        beginnings = {stop[:length] for stop in stops for length in range(len(stop))}
        assert scanner.held == max((tail for tail in beginnings if text.endswith(tail)), key=len)


def early_model(stops, text, early):
    """Look at every end behind the first ``early`` characters in turn."""
    for end in range(early + 1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(STOPS, st.lists(st.text("abc", max_size=3), max_size=6), st.lists(st.text("abc", max_size=6), max_size=6))
def test_what_is_complete_early_does_not_count_and_what_begins_there_does(stops, early, chunks):
    scanner = StopScanner(stops)
    text = "".join(scanner.feed(chunk, early=True) for chunk in early)
    assert scanner.matched is None
    text += "".join(scanner.feed(chunk) for chunk in chunks) + scanner.flush()
    assert (text, scanner.matched) == early_model(stops, "".join(early + chunks), len("".join(early)))


def test_tx_04_across_three_deltas():
    for chunks in splits(["go S", "TO", "P now"]):
        assert run(["STOP"], chunks) == ("go ", "STOP")


@pytest.mark.parametrize("chunks", [["a #", "# b"], ["end #"], ["end ##"]])
def test_tx_05_what_was_held_in_vain_is_released(chunks):
    for split in splits(chunks):
        assert run(["###"], split) == ("".join(chunks), None)


def test_tx_06_a_long_stop_string_delays_nothing():
    scanner = StopScanner(["<|a-very-long-stop-marker-of-40-characters|>"])
    assert [scanner.feed(chunk) for chunk in ["I", " am", " here"]] == ["I", " am", " here"]
    assert scanner.feed(" <") == " "
    assert scanner.held == "<"
    assert scanner.feed(" x") == "< x"


@pytest.mark.parametrize(
    ("stops", "expected"),
    [(["bc", "abc"], ("x", "abc")), (["abcd", "b"], ("xa", "b")), (["xabcz", "c"], ("xab", "c"))],
)
def test_earliest_end_then_longest(stops, expected):
    for chunks in splits(["xabcd"]):
        assert run(stops, chunks) == expected


def test_visible_keeps_the_match():
    for chunks in splits(["one two three"]):
        assert run(["two"], chunks, visible=True) == ("one two", "two")


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopScanner(["a", ""])
