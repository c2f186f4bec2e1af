"""Test tokenizers of every kind, as directories, and their prepared files."""

from functools import cache
from pathlib import Path

from smg.text.mapped.file import Mapped, read, write
from smg.text.mapped.make import prepare
from tests.golden.families import FAMILIES, family
from tests.text.bpe.test_encoder import PAIRS
from tests.text.formats import test_ranks as ranks
from tests.text.formats import test_sentencepiece as pieces
from tests.text.makers import byte_level_json, chat_model, metaspace_json, write_model

KEY = "5a" * 32


def _writers() -> dict[str, object]:
    config = {"bos_token": "<s>", "add_bos_token": True, "eos_token": "</s>"}
    harmony = {"eos_token_id": [3, 1], "text_config": {"eos_token_id": 2}}
    return {
        "chat": chat_model,
        "eos": lambda path: write_model(path, byte_level_json(), config=harmony, generation_config={"eos_token_id": 7}),
        "metaspace": lambda path: write_model(path, metaspace_json("legacy"), tokenizer_config=config),
        "tiktoken": lambda path: ranks.write(path, "tokenizer.model", config={"model_type": "llama"}),
        "sentencepiece": lambda path: pieces.write(path, "llama"),
        **{f"family {name}": lambda path, name=name: write_model(path, family(name).to_str()) for name in FAMILIES},
        **{f"split {pair.id}": lambda path, pair=pair: write_model(path, pair.values[0].to_str()) for pair in PAIRS},
    }


WRITERS = _writers()


@cache
def directory(name: str, base: Path) -> Path:
    """Write the model ``name`` below ``base``, once."""
    path = base / name.replace(" ", "_")
    path.mkdir()
    WRITERS[name](path)
    return path


@cache
def prepared(name: str, base: Path) -> Mapped:
    """Its prepared file, written and mapped."""
    path = directory(name, base)
    made = prepare(path, KEY)
    write(path / "prepared", made.head, made.sections)
    return read(path / "prepared", KEY)
