"""Ids of the native encoder equal the tokenizers library's, or it is not used (DESIGN 5)."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from smg.text.bpe import FastEncoder, NotByteBpe, prove
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


def test_a_long_text_with_characters_to_check_goes_to_the_library():
    tokenizer = trained(next(iter(SPLITS)), nfc=True)
    text = "e\u0301 and more " * 10_000
    assert fast_of(tokenizer).encode(text) == library(tokenizer)(text)


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


@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip", "normalized"])
def test_added_tokens_that_look_beside_them_are_refused(flag):
    tokenizer = Tokenizer.from_str(byte_level_json())
    tokenizer.add_tokens([AddedToken("<picky>", **{"normalized": False, flag: True})])
    with pytest.raises(NotByteBpe, match="<picky>"):
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


def test_unpaired_surrogates_are_for_the_library():
    tokenizer = Tokenizer.from_str(byte_level_json())
    fast = prove(tokenizer, library(tokenizer))
    for encode in (fast.encode, library(tokenizer)):
        with pytest.raises((UnicodeEncodeError, TypeError, ValueError)):
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
