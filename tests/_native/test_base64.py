"""Base64 decoding, against the standard library's."""

import base64 as standard
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.base64 import decode

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def model(text: str) -> bytes | None:
    """The same by the standard library, None for what is no base64."""
    kept = "".join(char for char in text if char not in " \t\r\n\v\f")
    digits = kept.rstrip("=")
    pads = len(kept) - len(digits)
    if any(char not in ALPHABET for char in digits) or pads > -len(digits) % 4:
        return None
    try:
        return standard.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except binascii.Error:
        return None


@given(st.binary(max_size=200), st.integers(0, 2), st.sampled_from(["", " ", "\n", "\r\n\t"]))
def test_what_was_encoded_comes_back_without_padding_and_with_line_breaks(data, dropped, space):
    text = standard.b64encode(data).decode()
    text = text[: len(text) - min(dropped, text.count("="))]
    assert decode(space.join(text)) == data


@given(st.text(ALPHABET[:6] + "= \n-_é", max_size=12))
def test_it_agrees_with_the_model_on_anything(text):
    expected = model(text)
    if expected is None:
        with pytest.raises(ValueError, match="not base64"):
            decode(text)
    else:
        assert decode(text) == expected


@pytest.mark.parametrize("text", ["a", "ab=c", "ab===", "=", "====", "a$bc", "ab-_", "abcdé", "\ud800"])
def test_what_is_no_base64_is_refused(text):
    with pytest.raises(ValueError, match="not base64"):
        decode(text)


@given(st.text(ALPHABET[:3], max_size=12), st.binary(max_size=30))
def test_what_stands_in_front_is_passed_over(before, data):
    assert decode(before + standard.b64encode(data).decode(), len(before)) == data


@pytest.mark.parametrize("start", [-1, 5])
def test_a_beginning_outside_of_the_text_is_none(start):
    with pytest.raises(ValueError, match="not base64"):
        decode("AAAA", start)
