"""Token ids and decoded text equal the ``tokenizers`` library's, for every family of tokenizers."""

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import decoders
from transformers import PreTrainedTokenizerFast

from smg._native.stream_table import StreamTable
from smg.core.stream import RowOutput, RowSpec
from smg.text.encode import CachedEncoder, CacheSizes
from smg.text.token_bytes import UnsupportedDecoder
from smg.text.tokenizer import Tokenizer, TokenizerError
from tests.golden.corpus import SAMPLES
from tests.golden.families import FAMILIES, Plain, added_texts, family, literals

# The library turns a whole run of byte tokens into U+FFFD when one byte of it is wrong; we replace that byte alone.
BYTE_FALLBACK = {"llama2", "metaspace first", "gemma"}


@cache
def roomy(name: str) -> CachedEncoder:
    return CachedEncoder(Plain(family(name)), literals(family(name)))


@cache
def cramped(name: str) -> CachedEncoder:
    return CachedEncoder(Plain(family(name)), literals(family(name)), CacheSizes(5, 2000, 2000))


def expected(name: str, text: str, add_special_tokens: bool = False) -> list[int]:
    return family(name).encode(text, add_special_tokens=add_special_tokens).ids


def conversation(name: str, generator: random.Random) -> str:
    """Samples with the family's own special tokens around them, close and apart."""
    added = added_texts(family(name))
    pieces = []
    for _ in range(generator.randint(1, 8)):
        pieces += [generator.choice(["", " ", "\n", "x", "word", *added]), generator.choice(added)]
        pieces.append(generator.choice(list(SAMPLES.values()))[: generator.randint(0, 120)])
    return "".join(pieces)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("sample", SAMPLES)
def test_ids_of_samples(name, sample):
    text = SAMPLES[sample]
    for whole in (text, added_texts(family(name))[0] + text, text + "".join(added_texts(family(name))) + text):
        for add_special_tokens in (False, True, False):
            assert roomy(name).encode(whole, add_special_tokens) == expected(name, whole, add_special_tokens)


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_of_conversations_that_share_their_beginnings(name):
    generator = random.Random(name)
    for _ in range(15):
        text = ""
        for turn in range(4):
            text += conversation(name, generator)
            for encoder in (roomy(name), cramped(name)):
                assert encoder.encode(text, turn % 2 == 1) == expected(name, text, turn % 2 == 1)
    stats = roomy(name).stats()
    assert (stats.prefix_hits > 0) == (stats.safe_tokens > 0)


PIECES = ["a", "word", " ", "  ", "\n", "é", "e\u0301", "\u0301", "日本", "😀", "\u200d", "1", "'s"]
PIECES += ["Hello, world", "▁", "<", ">", "\x00", "\r\n", "\r", " \n ", "\t", "\u2028", "\u3000", "\u0085", "\u1680"]
# Directions, variation selectors, marks (out of order, alone, known to few), private and unassigned planes, cases.
PIECES += ["\u202e", "\u2066", "\ufe0f", "\U000e0100", "\u0345\u0334", "\U00010f4a\U00010f47", "\u0a3c", "\U000323b0"]
PIECES += [
    "\U0010ffff",
    "\ue000",
    "\u212b",
    "\uf94a",
    "\uac00\u11a8",
    "\u1100\u1161",
    "K",
    "ſ",
    "'ſ",
    "İ",
    "１２",
    "Ⅷ",
    "🇳🇴",
]


def fragments(name: str) -> list[str]:
    """The added tokens, their halves, and two of them glued where they look alike."""
    texts = added_texts(family(name))
    halves = [half for text in texts for half in (text[: len(text) // 2], text[1:], text[:-1])]
    return [*texts, *halves, *(text[:-1] + text for text in texts)]


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60)
@given(st.data())
def test_cached_ids_never_differ(name, data):
    pieces = st.lists(st.sampled_from(PIECES + fragments(name)) | st.text(max_size=4), max_size=30)
    text = "".join(data.draw(pieces)).encode("utf-8", "ignore").decode()
    padded = "x" * 70 + text + "y" * 70 + text
    for encoder in (roomy(name), cramped(name)):
        for whole in (text, padded, padded + text):
            assert encoder.encode(whole) == expected(name, whole)


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_of_words_of_100_kb(name, directory):
    draw = random.Random(name)
    letters = "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(100_000))
    marks = "a" + "".join(draw.choice("\u0301\u0316\u0334\u0345") for _ in range(5_000))
    tokenizer = loaded(name, directory)
    for text in ("a" * 100_000, letters, "日" * 33_000, "1" * 100_000, " " * 100_000, "\n" * 100_000, marks):
        assert list(tokenizer.encode(text)) == expected(name, text)


@cache
def loaded(name: str, directory: str) -> Tokenizer:
    path = f"{directory}/{name.replace(' ', '_')}.json"
    family(name).save(path)
    return Tokenizer(path)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("tokenizers"))


@pytest.mark.parametrize("cached", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("name", FAMILIES)
def test_ids_are_those_of_transformers(name, cached, directory):
    """From the file on, as both load it; texts of mixed scripts, code, emoji, long words and spelled special tokens."""
    ours = loaded(name, directory)
    theirs = PreTrainedTokenizerFast(tokenizer_file=f"{directory}/{name.replace(' ', '_')}.json")
    sizes = None if cached else CacheSizes(exact_bytes=0, prefix_bytes=0)
    encoder = CachedEncoder(ours, ours.literals, sizes)
    generator = random.Random(name)
    texts = [*SAMPLES.values(), *(conversation(name, generator) for _ in range(20))]
    for text in (*texts, *texts):
        for add_special_tokens in (False, True):
            assert encoder.encode(text, add_special_tokens) == theirs.encode(
                text, add_special_tokens=add_special_tokens
            )
    assert (encoder.stats().exact_hits > 0) == cached


NATIVE = {"gpt2", "llama3", "qwen2", "smollm", "tekken_style", "deepseek"}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_published_forms_of_byte_level_bpe_are_encoded_natively(name, directory):
    assert loaded(name, directory).native == (name in NATIVE)


class Joined:
    """A tap that joins the text."""

    def __init__(self) -> None:
        self.text = ""

    def on_output(self, row: int, output: RowOutput) -> None:
        self.text += output.text


def streamed(tokenizer: Tokenizer, ids: list[int], sizes: list[int], skip_special_tokens: bool) -> str:
    table, tap = StreamTable(RowOutput), Joined()
    row = table.open(RowSpec(skip_special_tokens=skip_special_tokens), tokenizer.decoder, tap)
    at = 0
    for size in [*sizes, len(ids)]:
        table.feed(row, ids[at : at + size])
        at += size
    table.finish(row)
    return tap.text


@pytest.mark.parametrize("name", FAMILIES)
def test_streamed_text_of_samples(name, directory):
    tokenizer = loaded(name, directory)
    specials = added_texts(family(name))
    for text in SAMPLES.values():
        ids = expected(name, text + specials[-1] + text[:50])
        for skip in (True, False):
            whole = family(name).decode(ids, skip_special_tokens=skip)
            for sizes in ([], [1] * len(ids), [3, 1, 4, 1, 5] * (len(ids) // 14)):
                assert streamed(tokenizer, ids, sizes, skip) == whole == tokenizer.decode(ids, skip)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=80)
@given(st.data())
def test_streamed_text_of_random_ids(name, directory, data):
    tokenizer = loaded(name, directory)
    # Ids of the tokenizer itself: loading adds one of its own behind them.
    known = st.integers(0, family(name).get_vocab_size() - 1)
    ids, sizes = data.draw(st.lists(known, max_size=40)), data.draw(st.lists(st.integers(0, 7), max_size=10))
    for skip in (True, False):
        text = streamed(tokenizer, ids, sizes, skip)
        assert text == tokenizer.decode(ids, skip)
        if name not in BYTE_FALLBACK:
            assert text == family(name).decode(ids, skip_special_tokens=skip)


def test_a_decoder_that_looks_at_neighbours_is_refused_with_a_reason(directory):
    suffixed = Library.from_str(family("gpt2").to_str())
    suffixed.decoder = decoders.BPEDecoder()
    suffixed.save(f"{directory}/suffixed.json")
    with pytest.raises(TokenizerError, match="BPEDecoder"):
        _ = Tokenizer(f"{directory}/suffixed.json").decoder
    assert UnsupportedDecoder.__doc__
