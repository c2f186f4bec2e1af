"""Tokenizers of vocab.json and merges.txt: the same ids as the tokenizer.json they were taken from."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.text.tokenizer import Tokenizer, TokenizerError
from tests.golden.corpus import SAMPLES
from tests.golden.families import family


def write(directory: Path, **changes: object) -> Path:
    """The qwen2 family in the old form."""
    whole = json.loads(family("qwen2").to_str())
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "vocab.json").write_text(json.dumps(whole["model"]["vocab"], ensure_ascii=False), "utf-8")
    merges = "\n".join(" ".join(merge) for merge in whole["model"]["merges"])
    (directory / "merges.txt").write_text("#version: 0.2\n" + merges + "\n", "utf-8")
    added = {
        str(token["id"]): {name: value for name, value in token.items() if name != "id"}
        for token in whole["added_tokens"]
    }
    config = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added} | changes
    (directory / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return directory


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer(write(tmp_path_factory.mktemp("qwen2")))


def ids_of(text: str) -> list[int]:
    return family("qwen2").encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(tokenizer, name):
    text = SAMPLES[name] + "<|im_start|>user\n2024 ½ <think>x</think><|im_end|>"
    assert tokenizer.encode(text) == ids_of(text)
    assert tokenizer.decode(ids_of(text), False) == family("qwen2").decode(ids_of(text), skip_special_tokens=False)


@given(st.text(max_size=40))
def test_any_text(tokenizer, text):
    assert tokenizer.encode(text) == ids_of(text)


def test_the_added_tokens_are_special_or_literal_as_declared(tokenizer):
    assert tokenizer.decoder.is_special(tokenizer.token_id("<|im_end|>"))
    assert not tokenizer.decoder.is_special(tokenizer.token_id("<tool_call>"))
    assert {"<|im_start|>", "<think>"} < set(tokenizer.literals)


def test_a_token_that_would_get_another_id_is_a_load_error(tmp_path):
    added = {"900": {"content": "<|im_start|>", "special": True}}
    with pytest.raises(TokenizerError, match="declared with id 900"):
        Tokenizer(write(tmp_path, added_tokens_decoder=added))


@pytest.mark.parametrize("name", ["GPT2Tokenizer", None])
def test_other_classes_are_refused_by_name(tmp_path, name):
    with pytest.raises(TokenizerError, match=str(name)):
        Tokenizer(write(tmp_path, tokenizer_class=name))


def test_broken_files_are_load_errors(tmp_path):
    (write(tmp_path) / "vocab.json").write_text("{")
    with pytest.raises(TokenizerError, match=r"vocab\.json is not a tokenizer"):
        Tokenizer(tmp_path)
