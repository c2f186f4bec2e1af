"""The bundle made from a GGUF gives the ids that llama.cpp itself gives."""

import io
import json
import zipfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from smg.engine_server.llama import default_model, gguf_metadata, tokenizer_bundle
from smg.text.token_bytes import _alphabet

TEXTS = [
    "",
    "Hello, world!",
    "  leading and trailing  ",
    "line\n\n\nbreaks\r\n\tand\ttabs   \n",
    "I'll say it's they're we've I'd I'm don't",
    "I'LL SAY IT'S",
    "12345 6.789e-10 0xFF ½ ² ٣٤ 一二三 Ⅷ",
    "Größe, naïve, Łódź, ελληνικά, русский текст, עברית, العربية",
    "日本語のテキスト、中文文本，한국어 텍스트 ไทย हिन्दी",
    "🙂👩‍👩‍👧‍👦🇪🇺 e\u0301 \u200d \ufeff \u00a0nbsp",
    "def f(x: int) -> str:\n    return f'{x!r}' # ok\n\nif __name__ == \"__main__\":\n\tprint(f(3))",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><repo_name>x<file_sep>y <|not special|>",
    "$#@!%^&*()_+-=[]{};':\",./<>?\\|`~ …—–“”",
]


@pytest.fixture(scope="module")
def metadata():
    return gguf_metadata.read(default_model())


@pytest.fixture(scope="module")
def tokenizer(metadata) -> Tokenizer:
    return tokenizer_bundle.tokenizer(metadata)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_llama_cpp(model, tokenizer, text):
    ids = tokenizer.encode(text).ids
    assert ids == model.tokenize(text)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


# Bytes of UTF-8 that SmolLM2's vocabulary has no token for: they cannot be spelled, and neither side tries to.
MISSING = bytes.fromhex("04 06 13 14 16 1d f1 f2")


def spelled(text: str) -> bool:
    return not set(text.encode()) & set(MISSING)


def test_the_missing_bytes_are_all(tokenizer):
    utf8 = set(range(1, 0xF5)) - {0xC0, 0xC1}
    alphabet = {byte: text for text, byte in _alphabet().items()}
    assert {byte for byte in utf8 if tokenizer.token_to_id(alphabet[byte]) is None} == set(MISSING)


@pytest.mark.parametrize(
    ("text", "like", "left", "right"),
    [
        ("! \x04!", "! !", ["!", "Ġ!"], ["!", "Ġ", "!"]),
        # C2 99 F2 82 80 80: without F2, 99 and 82 are neighbours, and there is a token of both.
        ("\x99\U00082000", None, ["Â", "ĻĤ", "Ģ", "Ģ"], ["Â", "Ļ", "Ĥ", "Ģ", "Ģ"]),
    ],
)
def test_a_missing_byte_is_left_out_before_merging_by_us_and_after_it_by_llama_cpp(
    model, tokenizer, text, like, left, right
):
    """The library drops it from the word first, as when the model was trained; then its neighbours may merge."""
    assert tokenizer.encode(text).tokens == left
    assert like is None or tokenizer.encode(text).ids == tokenizer.encode(like).ids
    assert [tokenizer.id_to_token(token) for token in model.tokenize(text)] == right


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0").filter(spelled)))
@example(text="\x99\U000c2000")
def test_ids_are_those_of_llama_cpp_for_any_text(model, tokenizer, text):
    assert tokenizer.encode(text).ids == model.tokenize(text)


def test_the_archive_has_what_a_gateway_needs(metadata):
    archive = tokenizer_bundle.build(metadata, [2, 0])
    assert archive == tokenizer_bundle.build(metadata, [2, 0])
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        config = json.loads(files.read("tokenizer_config.json"))
        assert config["eos_token"] == "<|im_end|>"
        assert "<|im_start|>" in config["chat_template"]
        assert config["model_max_length"] == 8192
        assert json.loads(files.read("generation_config.json"))["eos_token_id"] == [2, 0]
        assert json.loads(files.read("config.json"))["vocab_size"] == 49152
        tokenizer = Tokenizer.from_str(files.read("tokenizer.json").decode())
    assert tokenizer.token_to_id("<|im_end|>") == 2


@pytest.mark.parametrize(
    "change", [{"tokenizer.ggml.model": "llama"}, {"tokenizer.ggml.model": "t5"}, {"tokenizer.ggml.pre": "unheard-of"}]
)
def test_an_unknown_kind_of_tokenizer_is_not_guessed_at(metadata, change):
    with pytest.raises(tokenizer_bundle.UnknownTokenizer):
        tokenizer_bundle.build(metadata | change, [2])


def test_a_beginning_of_sequence_token_is_added_where_the_model_wants_it(metadata):
    tokenizer = tokenizer_bundle.tokenizer(metadata | {"tokenizer.ggml.add_bos_token": True})
    bos = metadata["tokenizer.ggml.bos_token_id"]
    assert tokenizer.encode("hi").ids[0] == bos
    assert bos not in tokenizer.encode("hi", add_special_tokens=False).ids


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGML" + bytes(20), b"GGUF\x03" + bytes(11) + b"\x01" + bytes(7)])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"GGUF|cut short"):
        gguf_metadata.read(path)
