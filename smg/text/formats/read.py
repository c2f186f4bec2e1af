"""Which reader a tokenizer file is for (spec text-pipeline 1.1)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from smg.text.formats import qwen2, sentencepiece, tekken, tiktoken
from smg.text.formats.added import add_declared, plain
from smg.text.formats.loaded import FormatError, Loaded


def read(path: Path, config: Mapping[str, Any], model: Mapping[str, Any], added: Mapping[str, Any]) -> Loaded:
    """Read the tokenizer file ``path``; the others are tokenizer_config, config and added_tokens.json beside it.

    Raises:
        FormatError: the file cannot be read, is broken or asks for something that is not supported.
    """
    try:
        if path.name == "vocab.json":
            return Loaded(qwen2.from_vocab_and_merges(path.parent, config))
        if path.suffix == ".tiktoken" or (path.name != "tekken.json" and tiktoken.is_rank_file(path)):
            return tiktoken.read(path, config, model)
        if path.name == "tekken.json":
            return tekken.read(path)
        if path.suffix == ".json":
            return Loaded(tokenizers.Tokenizer.from_file(str(path)))
        loaded = sentencepiece.read(path, config)
    except FormatError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise FormatError(f"{path} is not a tokenizer the tokenizers library understands: {error}") from error
    add_declared(loaded.tokenizer, config.get("added_tokens_decoder") or plain(added))
    return loaded
