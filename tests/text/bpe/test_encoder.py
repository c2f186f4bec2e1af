"""Ids of the native encoder equal the tokenizers library's, or it is not used (DESIGN 5)."""

import json
import random
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from smg.text.bpe import FastEncoder, NotByteBpe, prove
from smg.text.bpe.classes import classes
from smg.text.bpe.description import SPLITS
from smg.text.bpe.probes import PROBES
from tests.text.makers import byte_level_json, metaspace_json

CORPUS = [*PROBES, "def encode(self, text: str) -> list[int]:\n    return [1, 22, 333]\n" * 3] * 4
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|im|>", "<think>")

texts = st.lists(
    st.one_of(
        st.sampled_from([*SPECIALS, "<|im_", "<|", *PROBES]),
        st.text(max_size=12),
        st.text(st.sampled_from("ab c\n'sT1é日\u0301\u1161\u017fK"), max_size=12),
    ),
    max_size=6,
).map("".join)


def trained(expressions: tuple[str, ...], nfc: int, ignore_merges: int = 0) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=bool(ignore_merges)))
    tokenizer.normalizer = normalizers.NFC() if nfc else None
    steps = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in expressions]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return tokenizer


def library(tokenizer: Tokenizer):
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def changed(**parts: object) -> Tokenizer:
    """The small byte-level tokenizer with parts of its description replaced."""
    told = json.loads(byte_level_json())
    for name, value in parts.items():
        if name == "model":
            told["model"] |= value
        else:
            told[name] = value
    return Tokenizer.from_str(json.dumps(told))


# Each expression with one of the normalizers and one of the ways to take words.
PAIRS = [
    pytest.param(trained(expressions, nfc, whole), id=f"{matcher[0]}-{matcher[1]}-{'nfc' if nfc else 'raw'}")
    for (expressions, matcher), nfc, whole in zip(
        SPLITS.items(), [0, 1, 0, 1, 0, 1, 1, 0, 0], [0, 0, 1, 0, 1, 0, 0, 0, 1], strict=True
    )
]


@pytest.mark.parametrize("tokenizer", PAIRS)
@given(text=texts)
def test_ids_are_the_librarys(tokenizer, text):
    assert fast_of(tokenizer).encode(text) == library(tokenizer)(text)


def fast_of(tokenizer: Tokenizer, known: dict[int, FastEncoder] = {}) -> FastEncoder:  # noqa: B006
    if id(tokenizer) not in known:
        known[id(tokenizer)] = prove(tokenizer, library(tokenizer))
    return known[id(tokenizer)]


def alone(tokenizer: Tokenizer) -> FastEncoder:
    """The encoder of ``tokenizer`` with nobody to hand anything over to."""

    def refuse(text: str, why: str) -> list[int]:
        raise AssertionError(f"handed over, because of {why}: {text[:40]!r}")

    fast = fast_of(tokenizer)
    return FastEncoder(fast.native, fast.added, fast.normalised, refuse)


COMBINING = "ab 1\n'e\u0301\u0327\u0338\u0344\u1100\u1161\u11a8가\u212b\u1e9b\u0958\u017f<>=日"
tangled = st.lists(
    st.text(st.sampled_from(COMBINING), max_size=20) | st.sampled_from([*SPECIALS, *PROBES]), max_size=6
).map("".join)


@pytest.mark.parametrize("tokenizer", PAIRS)
@given(text=tangled)
def test_texts_in_no_normal_form_are_encoded_natively(tokenizer, text):
    text = re.sub("'+\u017f", "\u017f", text)
    assert alone(tokenizer).encode(text) == library(tokenizer)(text)


@pytest.mark.parametrize("tokenizer", PAIRS)
def test_what_combines_with_the_end_of_an_added_token_stays_apart(tokenizer):
    for text in ("<|im_end|>\u0338", "a<|im|>\u0301b<think>\u0338=\u0338", "<\u0338|im_end|>"):
        assert alone(tokenizer).encode(text) == library(tokenizer)(text)


def test_long_texts_in_no_normal_form():
    tokenizer = trained(next(iter(SPLITS)), nfc=True)
    text = "e\u0301 and <|im_end|> \u1100\u1161 more " * 10_000
    assert list(alone(tokenizer).encode(text)) == library(tokenizer)(text)


# Alone and among others: what each character of a newer Unicode version is, is asked of the library, not of Python.
RECENT = [chr(code) for code in range(0x110000) if classes()[code] & 0x40 and classes()[code] & 15]


@pytest.mark.parametrize("tokenizer", [pair for pair in PAIRS if pair.id.endswith("raw")])
def test_new_characters_need_no_library_where_nothing_is_normalised(tokenizer):
    assert len(RECENT) > 100
    for start in range(0, len(RECENT), 50):
        some = RECENT[start : start + 50]
        for text in ("".join(some), " ".join(some), "a".join(some), " 1".join(some)):
            assert alone(tokenizer).encode(text) == library(tokenizer)(text)


# Marks and a pair that the library's normalizer does not know, beside some that it does.
ODD_MARKS = "ae\u0301\u0316\u0334\u0345\u08ce\u08cf\u309a\U00010f47\U00010f4a\U00011930\U00011935\U00016ff0\U00011938"


@pytest.mark.parametrize("tokenizer", [pair for pair in PAIRS if pair.id.endswith("nfc")])
@given(text=st.text(st.sampled_from(ODD_MARKS), min_size=1, max_size=12))
@example(text="\U00010f4a\U00010f47")
@example(text="e\u08cf\u0301")
@example(text="\U00011935\U00011930")
def test_marks_that_only_one_side_knows_are_put_in_order_as_the_library_does(tokenizer, text):
    assert fast_of(tokenizer).encode(text) == library(tokenizer)(text)


def test_an_expression_may_have_newlines_themselves_or_their_escapes():
    """As DeepSeek's files have them."""
    for expressions in SPLITS:
        written = tuple(text.replace(r"\r", "\r").replace(r"\n", "\n") for text in expressions)
        tokenizer = trained(written, nfc=False)
        fast = prove(tokenizer, library(tokenizer))
        for text in PROBES:
            assert fast.encode(text) == library(tokenizer)(text)


def handed_over(tokenizer: Tokenizer, text: str) -> str:
    """Why ``text`` is handed over."""
    reasons: list[str] = []
    fast = fast_of(tokenizer)

    def note(text: str, why: str) -> list[int]:
        reasons.append(why)
        return library(tokenizer)(text)

    assert FastEncoder(fast.native, fast.added, fast.normalised, note).encode(text) == library(tokenizer)(text)
    return "".join(reasons)


def test_what_is_handed_over_says_why():
    tokenizer = trained(list(SPLITS)[1], nfc=True)
    assert "long s" in handed_over(tokenizer, "it'\u017f and it's")
    assert "normal form" in handed_over(tokenizer, f"new {RECENT[0]}")
    assert "long run" in handed_over(tokenizer, "a" + "\u0301\u0327" * 3000)
    assert not handed_over(tokenizer, "Stra\u017fe e\u0301")


def test_gpt2_without_expressions_of_its_own():
    tokenizer = Tokenizer.from_str(byte_level_json())
    fast = prove(tokenizer, library(tokenizer))
    assert fast.encode("hello <|im_start|>world<tool_call>") == library(tokenizer)("hello <|im_start|>world<tool_call>")


def test_a_silent_token_leaves_no_id():
    tokenizer = Tokenizer.from_str(byte_level_json())
    silent = tokenizer.token_to_id("<tool_call>")

    def without(text):
        return [token for token in library(tokenizer)(text) if token != silent]

    fast = prove(tokenizer, without, silent)
    assert fast.encode("hello<tool_call> world") == without("hello<tool_call> world")
    assert silent not in fast.encode("hello<tool_call> world")


@pytest.mark.parametrize(
    ("tokenizer", "why"),
    [
        (Tokenizer.from_str(metaspace_json("first")), "byte fallback"),
        (Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]")), "not a byte-pair model|WordPiece"),
        (Tokenizer(models.Unigram([("a", 0.0)])), "not a byte-pair model|Unigram"),
        (changed(pre_tokenizer=None), "no pre-tokenizer"),
        (changed(normalizer={"type": "Lowercase"}), "normalizer Lowercase"),
        (changed(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}), "blank"),
        (changed(pre_tokenizer={"type": "Digits", "individual_digits": True}), "not byte-level"),
        (changed(model={"end_of_word_suffix": "</w>"}), "affixes"),
        (changed(model={"dropout": 0.1}), "drop-out"),
    ],
    ids=[
        "byte-fallback",
        "wordpiece",
        "unigram",
        "no-words",
        "lowercase",
        "prefix-space",
        "digits",
        "suffix",
        "dropout",
    ],
)
def test_what_the_encoder_does_not_do_is_refused(tokenizer, why):
    with pytest.raises(NotByteBpe, match=why):
        prove(tokenizer, library(tokenizer))


@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip"])
def test_added_tokens_that_look_beside_them_are_refused(flag):
    tokenizer = Tokenizer.from_str(byte_level_json())
    tokenizer.add_tokens([AddedToken("<picky>", **{"normalized": False, flag: True})])
    with pytest.raises(NotByteBpe, match="<picky>"):
        prove(tokenizer, library(tokenizer))


def with_tokens(nfc: bool, *added: AddedToken) -> Tokenizer:
    tokenizer = trained(next(iter(SPLITS)), nfc)
    tokenizer.add_tokens(list(added))
    return tokenizer


def test_tokens_that_are_looked_for_in_normalised_text_are_refused_where_texts_are_normalised():
    tokenizer = with_tokens(True, AddedToken("<｜User｜>", normalized=True))
    with pytest.raises(NotByteBpe, match="User"):
        prove(tokenizer, library(tokenizer))


LATE = with_tokens(
    False, *(AddedToken(text, normalized=True) for text in ("<｜User｜>", "<｜Us", "<｜User｜>>", "x<y", "[A]"))
)


@given(
    text=st.lists(st.sampled_from([*SPECIALS, "<｜User｜>", "<｜Us", "er｜>", ">", "x<", "y", "[A", "]", "<"])).map(
        "".join
    )
)
def test_where_nothing_is_normalised_it_makes_no_difference(text):
    """As in DeepSeek's files."""
    assert alone(LATE).encode(text) == library(LATE)(text)


@pytest.mark.parametrize("late", ["a<|im", "_end|>b", "im_start", "<|im_end|>x", "<think>"[1:-1]])
def test_tokens_of_two_kinds_that_can_overlap_are_refused(late):
    tokenizer = with_tokens(False, AddedToken(late, normalized=True))
    with pytest.raises(NotByteBpe, match="overlap"):
        prove(tokenizer, library(tokenizer))


def test_an_unknown_expression_is_refused():
    words = {"type": "Split", "pattern": {"Regex": r"\w+"}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = changed(pre_tokenizer={"type": "Sequence", "pretokenizers": [words, level]})
    with pytest.raises(NotByteBpe, match="unknown expression"):
        prove(tokenizer, library(tokenizer))


def test_an_encoder_that_differs_is_not_used():
    tokenizer = Tokenizer.from_str(byte_level_json())
    with pytest.raises(NotByteBpe, match="ids differ"):
        prove(tokenizer, lambda text: [*library(tokenizer)(text), 1])


def test_unpaired_surrogates_are_refused_as_by_the_library():
    tokenizer = Tokenizer.from_str(byte_level_json())
    for encode in (alone(tokenizer).encode, library(tokenizer)):
        with pytest.raises((UnicodeEncodeError, TypeError)):
            encode("\ud800")


def test_a_corpus_of_random_words():
    rng = random.Random(4)
    tokenizer = trained(list(SPLITS)[1], nfc=True)
    fast, slow = fast_of(tokenizer), library(tokenizer)
    for _ in range(50):
        text = " ".join(rng.choice(CORPUS)[rng.randrange(40) :][: rng.randrange(60)] for _ in range(20))
        assert fast.encode(text) == slow(text)


def test_digits_cut_out_one_by_one():
    tokenizer = changed(
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        }
    )
    fast = prove(tokenizer, library(tokenizer))
    for text in ("1 a  12 b", "x 1\n\n 2", "hello  3"):
        assert fast.encode(text) == library(tokenizer)(text)
