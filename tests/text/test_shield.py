"""The shield by itself: nothing spells a control token any more, nothing else changes, and it takes no time to speak of
(cases CT-04 and PF-01)."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native.stop_scan import StopAutomaton
from smg.text import shield as module
from smg.text.shield import JOINER, Shield, reveal

TEXTS = st.text("ab<|>s é", max_size=30)


@given(st.lists(st.text("ab<|>s é", min_size=1, max_size=5), max_size=6), TEXTS)
def test_CT_04_no_piece_spells_a_special_and_the_text_is_the_same(specials, text):
    protected = Shield(specials).protect_text(text)
    assert reveal(protected) == text
    # One that has no place to be cut, of a single character behind blanks, is beyond it.
    cuttable = [special for special in specials if any(not char.isspace() for char in special[1:])]
    assert not [special for special in cuttable for piece in protected.split(JOINER) if special in piece]
    assert (protected == text) == (not any(special in text for special in cuttable))


def test_CT_04_unpaired_surrogates_stay_what_they_are():
    assert Shield(["<s>"]).protect_text("\ud800<s>\udfff") == f"\ud800<{JOINER}s>\udfff"


def test_CT_04_specials_beyond_one_table_are_found_all_the_same(monkeypatch):
    def small(patterns):
        if len(patterns) > 3:
            raise ValueError("too many")
        return StopAutomaton(patterns)

    monkeypatch.setattr(module, "StopAutomaton", small)
    specials = [f"<{number}>" for number in range(10)]
    assert Shield(specials).protect_text("".join(specials)) == "".join(f"<{JOINER}{text[1:]}" for text in specials)


@pytest.mark.parametrize("text", ["<" * 500_000, "<td>x[1]</td>" * 40_000, "<SPECIAL_" * 50_000])
def test_PF_01_a_thousand_specials_cost_little_whatever_the_text(text):
    shield = Shield(["<s>", "[INST]", *(f"<SPECIAL_{number}>" for number in range(1000))])
    # The processor's time of this thread; searching for one after the other takes 5 s of the first text.
    start = time.thread_time()
    assert shield.protect_text(text) == text
    assert time.thread_time() - start < 0.3
