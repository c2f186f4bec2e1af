"""The hand-written matchers against the library's regular expressions (DESIGN 5)."""

import random
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from smg._native.word_split import words
from smg.text.bpe.classes import classes
from smg.text.bpe.description import SPLITS

KINDS = [pytest.param(expressions, *matcher, id=f"kind{matcher[0]}") for expressions, matcher in SPLITS.items()]

# Characters between which the expressions' alternatives change.
EDGES = (
    "aZé"
    "ǅ"
    "ʰ"
    "日"
    "ª"
    "ЖжΩ"
    "\u0300\u093f\u0e31"
    "09²Ⅷ٣"
    " \t\n\r\u00a0\u3000\u0085\u2028"
    ".,!'/\\\"_-#"
    "+<$^`|~"
    "€☃"
    "\x00\x1f\u200b\u200d\ufeff\ue000"
    "ぁヿ一龥龦々〇⺀𖿢𖿰𠀀"
    "한"
    "😀"
    "stmdrvelSTL"
)
FOLDING = "\u017f"
texts = st.text(st.one_of(st.sampled_from(EDGES), st.characters(exclude_categories=["Cs", "Cn"])), max_size=40).map(
    lambda text: text.replace(FOLDING, "")
)


def of_the_library(expressions: tuple[str, ...], text: str) -> list[str]:
    steps = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]
    return [piece for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


@pytest.mark.parametrize(("expressions", "kind", "digits"), KINDS)
@given(text=texts)
@example("  a\n\n b  ")
@example("'S'll'D we'VE")
@example("ABCd日A\u0300B .\u0300A")
@example("\u0300")
@example("\u0300A\u0300")
@example("x  \r\n\r\n  y ")
@example("12345 6789")
def test_words_are_those_of_the_library(expressions, kind, digits, text):
    assert words(classes(), kind, digits, text) == of_the_library(expressions, text)


@pytest.mark.parametrize(("expressions", "kind", "digits"), KINDS)
def test_each_character_among_others(expressions, kind, digits):
    # Every tenth code point with random neighbours: all classes of the table meet all alternatives.
    rng = random.Random(kind)
    for start in range(rng.randrange(1, 11), sys.maxunicode, 10 * 400):
        chars = [
            chr(code) for code in range(start, min(start + 4000, sys.maxunicode), 10) if not 0xD800 <= code < 0xE000
        ]
        text = "".join(f"{rng.choice(EDGES)}{char}{rng.choice(EDGES)}" for char in chars).replace(FOLDING, "")
        assert words(classes(), kind, digits, text) == of_the_library(expressions, text), start


@given(text=st.text(max_size=60), kind=st.integers(0, 7), digits=st.integers(0, 3))
def test_words_are_the_whole_text(text, kind, digits):
    text = text.encode("utf-8", "replace").decode()
    assert "".join(words(classes(), kind, digits, text)) == text


def test_wrong_table_is_refused():
    with pytest.raises(ValueError, match="code point"):
        words(b"\0" * 10, 0, 0, "a")


def test_surrogates_are_refused():
    with pytest.raises(UnicodeEncodeError):
        words(classes(), 0, 0, "\ud800")


@pytest.mark.parametrize(("expressions", "kind", "digits"), KINDS)
def test_long_texts_take_no_quadratic_time(expressions, kind, digits):
    # A megabyte of words without a number: looking for the next number at each word would take minutes.
    text = "some words. " * 90_000
    assert len(words(classes(), kind, digits, text)) == 270_001
