"""The table of code points is what the library sees (scripts/gen-unicode)."""

import unicodedata

from tokenizers import normalizers

from smg.text.bpe.classes import classes

NFC_CHECK, FOLDS, RECENT = 0x10, 0x20, 0x40


def test_one_byte_for_each_code_point():
    assert len(classes()) == 0x110000


def test_characters_without_a_flag_are_their_own_normal_form_beside_each_other():
    table = classes()
    plain = "".join(chr(code) for code in range(0x110000) if not table[code] & 0x70 and not 0xD800 <= code < 0xE000)
    assert normalizers.NFC().normalize_str(plain) == plain
    backwards = plain[::-1]
    assert normalizers.NFC().normalize_str(backwards) == backwards


def test_recent_characters_are_those_this_python_may_not_know():
    table = classes()
    unknown = {code for code in range(0x110000) if table[code] & 15 and unicodedata.category(chr(code)) == "Cn"}
    assert all(table[code] & RECENT for code in unknown)


def test_normal_forms_differ_only_for_characters_called_recent():
    """The library's tables of normal forms are older than those of its classes: it does not know all marks."""
    table = classes()
    lines = (unicodedata.decomposition(chr(code)).split() for code in range(0x110000))
    pairs = ["".join(chr(int(part, 16)) for part in line) for line in lines if line and line[0][0] != "<"]
    marks = [chr(code) for code in range(0x110000) if unicodedata.combining(chr(code))]
    # Each beside marks that stand further in and out, and beside all others of its place.
    orders = [f"a{first}{second}" for char in marks for first, second in ((char, "\u0334"), ("\u0345", char))]
    orders += [f"a{mark}{char}" for char in marks for mark in ("\u0301", "\u0316", "\u3099", "\u05b0")]
    known = [text for text in (*pairs, *orders) if not any(table[ord(char)] & RECENT for char in text)]
    assert len(known) > 4000
    normal = normalizers.NFC().normalize_str
    assert [text for text in known if normal(text) != unicodedata.normalize("NFC", text)] == []


def test_only_the_long_s_folds_to_a_letter_of_a_contraction():
    assert [code for code in range(0x110000) if classes()[code] & FOLDS] == [0x17F]
    folding = [chr(code) for code in range(128, 0x110000) if chr(code).casefold() in set("stmdrvel")]
    assert folding == ["\u017f"]
