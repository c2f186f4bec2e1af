"""With the prepared file a tokenizer answers as without."""

import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smg.text.registry import TextModel
from smg.text.shield import JOINER
from smg.text.tokenizer import Tokenizer, TokenizerError
from tests.golden.corpus import SAMPLES
from tests.text.mapped.models import WRITERS, directory, prepared

# Encoded by the library alone: the file says so, and nothing else.
LIBRARY = {"metaspace", "sentencepiece"}
LIBRARY |= {f"family {name}" for name in ("awkward", "llama2", "metaspace first", "gemma", "unigram", "wordpiece")}
NATIVE = sorted(WRITERS.keys() - LIBRARY)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@cache
def pair(name: str, base: Path) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizer without the file, and with it."""
    path = directory(name, base)
    return Tokenizer(path), Tokenizer(path, prepared(name, base))


def answer(call):
    """What a call returns, or the text of its error."""
    try:
        return call()
    except TokenizerError as error:
        return str(error)


@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_what_only_the_library_can_do_is_left_to_it(base, name):
    mapped = prepared(name, base)
    assert mapped.tables is None
    assert mapped.head.reason
    without, loaded = pair(name, base)
    assert not loaded.native
    assert loaded.encode("hello world", True) == without.encode("hello world", True)
    assert mapped.head.facts.size == without.size


@pytest.mark.parametrize("name", NATIVE)
def test_what_is_known_of_it(base, name):
    without, mapped = pair(name, base)
    assert (without.native, mapped.native) == (True, True)
    for field in ("directory", "size", "specials", "eos_ids", "literals", "model_config"):
        assert getattr(mapped, field) == getattr(without, field), field
    assert mapped.specials.context() == without.specials.context()
    config = {name: value for name, value in without.config.items() if name != "added_tokens_decoder"}
    assert mapped.config == config


@pytest.mark.parametrize("name", NATIVE)
def test_every_token(base, name):
    without, mapped = pair(name, base)
    texts = [JOINER, "", "no such token", "Ġ", "a b", "\ud800"]
    texts += without._vocabulary.library("").vocabulary()
    for text in texts[:5] + texts[6:]:
        assert mapped.token_id(text) == without.token_id(text), text
    assert mapped.token_id("\ud800") is None
    theirs, ours = without.decoder, mapped.decoder
    assert ours.size == theirs.size
    for token in range(-1, without.size + 2):
        assert ours.token_bytes(token) == theirs.token_bytes(token)
        assert ours.first_bytes(token) == theirs.first_bytes(token)
        assert ours.is_special(token) == theirs.is_special(token)


@pytest.mark.parametrize("name", NATIVE)
def test_samples(base, name):
    without, mapped = pair(name, base)
    generator = random.Random(name)
    specials = list(without.literals)
    for text in SAMPLES.values():
        spelled = text[:30] + generator.choice(specials or [""]) + text[30:]
        for whole in (text, spelled, without.shield.protect_text(spelled)):
            for add in (False, True):
                ids = mapped.encode(whole, add)
                assert ids == without.encode(whole, add)
            for skip in (False, True):
                assert mapped.decode(ids, skip) == without.decode(ids, skip)
        assert mapped.shield.protect_text(spelled) == without.shield.protect_text(spelled)


@pytest.mark.parametrize("name", NATIVE)
@settings(max_examples=40)
@given(data=st.data())
def test_any_text(base, name, data):
    without, mapped = pair(name, base)
    pieces = st.text(max_size=10) | st.text("e\u0301\u1100\u1161 a1'\u017f", max_size=10)
    pieces |= st.sampled_from(sorted(without.literals))
    text = "".join(data.draw(st.lists(pieces, max_size=6)))
    protected = without.shield.protect_text(text)
    assert mapped.encode(text) == without.encode(text)
    assert mapped.encode(protected, True) == without.encode(protected, True)
    assert not set(mapped.encode(protected)) & {mapped.token_id(text) for text in mapped._vocabulary.facts.controls}


@pytest.mark.parametrize("name", NATIVE)
def test_a_text_model_is_made_without_the_library(base, name):
    """The caches, the template and its probes included."""
    path = directory(name, base)
    mapped = Tokenizer(path, prepared(name, base))
    ours, theirs = TextModel(mapped), TextModel(path)
    assert not mapped._vocabulary._lazy.loaded
    prompt = "<|im_start|>user\nhello, " + "wörld " * 50 + "<|im_end|>\n"
    assert [ours.encoder.encode(prompt) for _ in range(2)] == [theirs.encoder.encode(prompt)] * 2
    assert ours.encoder.stats().safe_tokens == theirs.encoder.stats().safe_tokens
    assert ours.source == theirs.source


def test_pairs_of_texts_load_the_library(base):
    without, mapped = pair("family llama3", base)
    expected = answer(lambda: without.encode_pair("one", "two"))
    assert answer(lambda: mapped.encode_pair("one", "two")) == expected
    assert mapped._vocabulary._lazy.loaded
