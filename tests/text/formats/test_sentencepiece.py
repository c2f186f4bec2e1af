"""SentencePiece models: the ids and texts of the sentencepiece library itself."""

import contextlib
import io
import json
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from smg.text.formats.loaded import FormatError
from smg.text.formats.sentencepiece_file import PieceType, parse
from smg.text.tokenizer import Tokenizer, TokenizerError
from tests.golden.corpus import SAMPLES, TRAINING
from tests.text.formats.test_ranks import RUNS, published

LLAMA = {
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "split_digits": True,
    "vocab_size": 700,
}
MODELS = {
    "llama": LLAMA | {"model_type": "bpe"},
    "controls": LLAMA | {"model_type": "bpe", "control_symbols": ["[INST]", "[/INST]"]},
    "gemma": LLAMA
    | {
        "model_type": "bpe",
        "add_dummy_prefix": False,
        "user_defined_symbols": ["<table>", "▁▁", "▁▁▁▁", "the", "\n\n"],
    },
    "unigram": LLAMA | {"model_type": "unigram"},
    "no bytes": {"model_type": "bpe", "vocab_size": 400, "normalization_rule_name": "identity"},
}
TEXTS = [*SAMPLES.values(), *RUNS, "▁▁ the <table>x</table>\n\n\n   the▁", " x", "x ", "1234 + 56", "«éa»\u2028"]


@cache
def trained(name: str) -> bytes:
    out = io.BytesIO()
    options = {"vocab_size": 700, "hard_vocab_limit": False, "character_coverage": 0.99} | MODELS[name]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING * 8), model_writer=out, minloglevel=3, num_threads=1, **options
    )
    return out.getvalue()


def write(directory: Path, name: str, **files: object) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.model").write_bytes(trained(name))
    for file, value in files.items():
        (directory / f"{file}.json").write_text(json.dumps(value))
    return directory


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    base = tmp_path_factory.mktemp("sentencepiece")
    return {
        name: (
            Tokenizer(write(base / name.replace(" ", "-"), name)),
            sentencepiece.SentencePieceProcessor(model_proto=trained(name)),
        )
        for name in MODELS
    }


def agree(ours: Tokenizer, library: sentencepiece.SentencePieceProcessor, text: str, unigram: bool = False) -> None:
    for symbol in ours.literals:
        # Control pieces in a text are text to the library and special tokens here; see below for them.
        text = text.replace(symbol, "")
    # Of Unigram models only: the tokenizers library takes the spelling of a byte piece for that piece.
    text = text.replace("<0x41>", "") if unigram else text
    expected = library.encode(text)
    assert ours.encode(text) == expected
    if library.unk_id() not in expected:
        # Of models that squeeze blanks the library drops every one at the beginning, we drop one.
        squeezed = ours.encode("  a") == ours.encode("a")
        decoded = ours.decode(expected)
        assert (decoded.lstrip(" ") if squeezed else decoded) == library.decode(expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("text", TEXTS)
def test_encodes_and_decodes_like_the_library(pairs, name, text):
    agree(*pairs[name], text, name == "unigram")


@pytest.mark.parametrize("name", ["llama", "gemma", "no bytes"])
@given(text=st.text(max_size=40) | st.text("ab the\n▁<>12日é", max_size=60))
def test_any_text(pairs, name, text):
    agree(*pairs[name], text)


@pytest.mark.parametrize("name", ["llama", "gemma"])
@given(data=st.data())
def test_any_ids_decode_like_the_library(pairs, name, data):
    ours, library = pairs[name]
    ids = data.draw(st.lists(st.integers(3, ours.size - 1), max_size=12))
    expected = library.decode(ids)
    if "\ufffd" not in expected and not expected.startswith(" "):
        assert ours.decode(ids).removeprefix(" ") == expected


def test_control_pieces_are_special_and_the_text_behind_each_gets_its_mark(pairs):
    ours, library = pairs["controls"]
    ids = ours.encode("<s>[INST]hello there[/INST]answer</s>")
    one, two = (library.piece_to_id(piece) for piece in ("[INST]", "[/INST]"))
    expected = [library.bos_id(), one, *library.encode("hello there"), two, *library.encode("answer"), library.eos_id()]
    assert ids == expected
    shielded = ours.shield.protect_text("hello [INST]there")
    assert one not in ours.encode(shielded)
    assert ours.decode(ours.encode(shielded)) == "hello [INST]there"


def test_only_the_first_part_gets_a_mark_when_the_configuration_says_so(tmp_path):
    ours = Tokenizer(write(tmp_path, "controls", tokenizer_config={"legacy": False}))
    library = sentencepiece.SentencePieceProcessor(model_proto=trained("controls"))
    assert ours.encode("hello") == library.encode("hello")
    ids = ours.encode("[INST]hello")
    assert ours.decode(ids[1:]) == "hello"
    assert library.id_to_piece(ids[1]) != library.encode("hello", out_type=str)[0]


def test_the_beginning_is_put_in_front_unless_the_configuration_says_no(tmp_path, pairs):
    ours, library = pairs["llama"]
    assert (ours.specials.bos, ours.specials.eos, ours.specials.unk) == ("<s>", "</s>", "<unk>")
    assert ours.encode("hello", True) == [library.bos_id(), *library.encode("hello")]
    assert ours.eos_ids == (library.eos_id(),)
    without = Tokenizer(write(tmp_path, "llama", tokenizer_config={"add_bos_token": False}))
    assert without.encode("hello", True) == library.encode("hello")


@pytest.mark.parametrize(
    "files",
    [
        {"added_tokens": {"<|im_end|>": 700, "<|im_start|>": 701}},
        {
            "tokenizer_config": {
                "added_tokens_decoder": {
                    "0": {"content": "<unk>", "special": True},
                    "700": {"content": "<|im_end|>", "special": True},
                    "701": {"content": "<|im_start|>", "special": True},
                }
            }
        },
    ],
)
def test_tokens_added_to_the_vocabulary(tmp_path, files):
    size = len(parse(trained("llama")).pieces)
    text = json.dumps(files).replace("700", str(size)).replace("701", str(size + 1))
    ours = Tokenizer(write(tmp_path, "llama", **json.loads(text)))
    assert ours.encode("<|im_start|>a<|im_end|>")[::2] == [size + 1, size]


def test_an_added_token_with_another_id_is_a_load_error(tmp_path):
    with pytest.raises(TokenizerError, match="declared with id 9000"):
        Tokenizer(write(tmp_path, "llama", added_tokens={"<|x|>": 9000}))


@pytest.mark.parametrize("data", [b"", b"\x0a\xff", b"PK\x03\x04 something else", b"\x08\x01"])
def test_other_files_are_no_models(data):
    with pytest.raises(FormatError, match="not a SentencePiece model"):
        parse(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(FormatError):
        assert parse(data).pieces


def test_words_and_characters_are_other_kinds(tmp_path):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING), model_writer=out, model_type="char", vocab_size=60, minloglevel=3
    )
    (tmp_path / "tokenizer.model").write_bytes(out.getvalue())
    with pytest.raises(TokenizerError, match="not supported"):
        Tokenizer(tmp_path)


def test_the_model_file_is_read_as_the_library_reads_it():
    library = sentencepiece.SentencePieceProcessor(model_proto=trained("gemma"))
    model = parse(trained("gemma"))
    assert [piece.text for piece in model.pieces] == [library.id_to_piece(at) for at in range(len(model.pieces))]
    assert (model.unk, model.bos, model.eos, model.pad) == (0, 1, 2, -1)
    assert model.byte_fallback
    assert (model.dummy_prefix, model.squeeze) == (False, False)
    kinds = {piece.text: piece.type for piece in model.pieces}
    assert kinds["<table>"] == PieceType.USER_DEFINED
    assert kinds["<0x0A>"] == PieceType.BYTE


@pytest.mark.parametrize(
    "name",
    ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3", "mistral_instruct_tokenizer_241114.model.v7"],
)
def test_published_models(tmp_path, name):
    source = published(name)
    (tmp_path / name).symlink_to(source)
    ours, library = Tokenizer(tmp_path), sentencepiece.SentencePieceProcessor(model_file=str(source))
    for text in TEXTS:
        agree(ours, library, text)
