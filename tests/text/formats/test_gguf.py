"""SentencePiece tokenizers inside GGUF files: written again as the model file they came from."""

import io
import zipfile

import pytest
import sentencepiece

from smg.engine_server.llama import tokenizer_bundle
from smg.text.formats.sentencepiece_file import parse
from smg.text.tokenizer import Tokenizer
from tests.text.formats.test_sentencepiece import TEXTS, agree, trained


def metadata(name: str) -> dict[str, object]:
    """What a converter puts into a GGUF file for the trained model ``name``."""
    model = parse(trained(name))
    return {
        "general.architecture": "llama",
        "llama.context_length": 64,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece.text for piece in model.pieces],
        "tokenizer.ggml.scores": [piece.score for piece in model.pieces],
        "tokenizer.ggml.token_type": [int(piece.type) for piece in model.pieces],
        "tokenizer.ggml.unknown_token_id": model.unk,
        "tokenizer.ggml.bos_token_id": model.bos,
        "tokenizer.ggml.eos_token_id": model.eos,
        "tokenizer.ggml.add_space_prefix": model.dummy_prefix,
        "tokenizer.chat_template": "hi",
    }


@pytest.mark.parametrize("name", ["llama", "gemma", "controls"])
def test_the_ids_are_those_of_the_original(tmp_path, name):
    archive = tokenizer_bundle.build(metadata(name), [2])
    zipfile.ZipFile(io.BytesIO(archive)).extractall(tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    ours = Tokenizer(tmp_path)
    library = sentencepiece.SentencePieceProcessor(model_proto=trained(name))
    for text in TEXTS:
        agree(ours, library, text)
    assert ours.encode("hello", True) == [library.bos_id(), *library.encode("hello")]
    assert (ours.eos_ids, ours.specials.bos, ours.specials.pad) == ((2,), "<s>", None)


def test_the_beginning_can_be_turned_off(tmp_path):
    archive = tokenizer_bundle.build(metadata("llama") | {"tokenizer.ggml.add_bos_token": False}, [2])
    zipfile.ZipFile(io.BytesIO(archive)).extractall(tmp_path)
    ours = Tokenizer(tmp_path)
    assert ours.encode("hello", True) == ours.encode("hello")
