"""Places of tokens in text: the same as those in the decoded whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.engine_server.mock import tokenizer as mock
from smg.text.positions import Positions
from tests.pipeline.fakes import text_model

DECODER = text_model().tokenizer.decoder


def places(ids, **fields):
    positions = Positions(DECODER, **fields)
    return [positions.feed(token) for token in ids]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab", [0, 1]),
        (" the there", [0, 4]),
        # Four bytes, one character.
        ("x😀y", [0, 1, 1, 1, 1, 2]),
    ],
)
def test_characters_before_each_token(text, expected):
    assert places(mock.encode_text(text)) == expected


def test_skipped_special_tokens_have_no_length():
    ids = [97, mock.END_OF_TEXT, 98]
    assert places(ids) == [0, 1, 1]
    assert places(ids, skip_special_tokens=False) == [0, 1, 14]
    assert places(ids, shown={mock.END_OF_TEXT}) == [0, 1, 14]


@given(st.text(max_size=40))
def test_a_token_begins_where_what_came_before_it_ends(text):
    ids = mock.encode_text(text)
    for number, place in enumerate(places(ids, skip_special_tokens=False)):
        before = b"".join(DECODER.token_bytes(token) for token in ids[:number])
        # Whole characters only: the bytes of one that is not complete are dropped here.
        assert place == len(before.decode("utf-8", "ignore"))
