"""Escaping and templates to bytes, against a model built on ``json.dumps``."""

import json
from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native import sse

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NASTY = st.text(st.sampled_from(['"', "\\", "\n", "\x00", "\x1f", "\x7f", "a", "é", "\u2028", "😀", "/"]))


def model_escape(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def model_fill(pieces: tuple[bytes, ...], holes: tuple[str, ...], text: str, sequence: int) -> bytes:
    values = {"text": model_escape(text), "sequence": str(sequence).encode()}
    return b"".join(piece + values.get(hole, b"") for piece, hole in zip_longest(pieces, holes, fillvalue=""))


@given(TEXT | NASTY)
def test_escape_equals_the_model(text):
    assert sse.escape(text) == model_escape(text)
    assert json.loads(b'"' + sse.escape(text) + b'"') == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b""),
        ("plain", b"plain"),
        ('say "hi"\n', b'say \\"hi\\"\\n'),
        ("\b\f\r\t\\", b"\\b\\f\\r\\t\\\\"),
        ("\x00\x01\x1f", b"\\u0000\\u0001\\u001f"),
        ("\x7f/", b"\x7f/"),
        ("\u2028\u2029", b"\xe2\x80\xa8\xe2\x80\xa9"),
        ("😀", b"\xf0\x9f\x98\x80"),
    ],
)
def test_escape_writes_exactly(text, expected):
    assert sse.escape(text) == expected


@pytest.mark.parametrize("text", ["\ud83d", "a\ude00b"])
def test_unpaired_surrogates_have_no_utf8_form(text):
    with pytest.raises(UnicodeEncodeError):
        sse.escape(text)
    with pytest.raises(UnicodeEncodeError):
        sse.fill((b"", b""), ("text",), text, 0)


@pytest.mark.parametrize("value", [None, b"bytes", 3])
def test_only_text_is_escaped(value):
    with pytest.raises(TypeError):
        sse.escape(value)


@st.composite
def templates(draw):
    holes = tuple(draw(st.lists(st.sampled_from(["text", "sequence"]), max_size=4)))
    pieces = tuple(draw(st.lists(st.binary(max_size=12), min_size=len(holes) + 1, max_size=len(holes) + 1)))
    return pieces, holes


@given(templates(), TEXT | NASTY, st.integers(-(2**63), 2**63 - 1))
def test_fill_equals_the_model(template, text, sequence):
    pieces, holes = template
    assert sse.fill(pieces, holes, text, sequence) == model_fill(pieces, holes, text, sequence)


def test_fill_of_a_chat_delta():
    pieces = (b'data: {"n":', b',"delta":{"content":"', b'"}}\n\n')
    assert sse.fill(pieces, ("sequence", "text"), 'a "b"', 17) == b'data: {"n":17,"delta":{"content":"a \\"b\\""}}\n\n'


@pytest.mark.parametrize("number", [0, 9, 10, -1, 2**63 - 1, -(2**63)])
def test_sequence_is_decimal(number):
    assert sse.fill((b"<", b">"), ("sequence",), "", number) == f"<{number}>".encode()


@pytest.mark.parametrize(
    ("pieces", "holes"),
    [((b"a",), ("text",)), ((b"a", b"b"), ()), ((), ()), ((b"a", b"b"), ("index",))],
)
def test_templates_that_do_not_fit_are_refused(pieces, holes):
    with pytest.raises(ValueError, match=r"fit|unknown hole"):
        sse.fill(pieces, holes, "x", 1)


def test_pieces_must_be_bytes():
    with pytest.raises(TypeError):
        sse.fill((b"a", "b"), ("text",), "x", 1)
    with pytest.raises(TypeError):
        sse.fill((b"a", None), ("text",), "x", 1)


def test_a_long_text_is_escaped_like_its_parts():
    part = 'line "one"\n\t\x01é' * 1000
    text = part * 30
    assert len(text.encode()) > 256 << 10
    assert sse.escape(text) == sse.escape(part) * 30
    assert sse.fill((b"<", b">"), ("text",), text, 0) == b"<" + sse.escape(part) * 30 + b">"
