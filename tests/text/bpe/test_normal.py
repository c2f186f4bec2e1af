"""Normal form C in slices equals that of the whole text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers

from smg.text.bpe import normal
from smg.text.bpe.classes import classes
from smg.text.bpe.normal import Tangled, nfc

NFC_CHECK, RECENT = 0x10, 0x40


def settled(char: str) -> bool:
    return not classes()[ord(char)] & NFC_CHECK


combining = st.text(st.sampled_from("ae\u0301\u0327\u0323 \u1100\u1161\u11a8가각\u212b\u0344x日"), max_size=60)


@given(text=combining | st.text(max_size=60))
def test_slices_change_nothing(text):
    expected = unicodedata.normalize("NFC", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normal, "SLICE", 3)
        assert nfc(text, settled) == expected
    if not any(classes()[ord(char)] & RECENT for char in text):
        assert normalizers.NFC().normalize_str(text.encode("utf-8", "ignore").decode()) == expected.encode(
            "utf-8", "ignore"
        ).decode("utf-8")


def test_a_text_of_many_slices():
    text = "e\u0301 and \u1100\u1161\u11a8 " * 5000
    assert nfc(text, settled) == unicodedata.normalize("NFC", text)


def test_a_long_run_of_characters_that_combine_is_not_sorted_here():
    tangle = "\u0301\u0327" * 4000
    with pytest.raises(Tangled):
        nfc("x" * 100 + tangle, settled)
    # One that is as long as a slice and what may lengthen it is.
    assert nfc("x" + "\u0301" * 3000, settled) == "x" + "\u0301" * 3000
