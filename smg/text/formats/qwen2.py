"""Tokenizers that come as vocab.json and merges.txt: those of the Qwen 2 line (spec text-pipeline 1.3)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from smg.engine_server import splits
from smg.fleet.tokenizer_files import QWEN2
from smg.text.formats.added import add_declared
from smg.text.formats.loaded import FormatError


def from_vocab_and_merges(directory: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer of ``directory``; ``config`` is its tokenizer_config.json.

    Raises:
        FormatError: another ``tokenizer_class``, or an added token that does not get the id it is declared with.
        Exception: what the library raises for files it cannot read.
    """
    name = config.get("tokenizer_class")
    if name not in QWEN2:
        raise FormatError(
            f"{directory} has vocab.json and merges.txt of the class {name!r}; only Qwen2Tokenizer is known"
        )
    out = Tokenizer(models.BPE.from_file(str(directory / "vocab.json"), str(directory / "merges.txt")))
    out.normalizer = normalizers.NFC()
    prefix = bool(config.get("add_prefix_space", False))
    words = pre_tokenizers.Split(Regex(splits.QWEN2), "isolated")
    out.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)]
    )
    out.decoder = decoders.ByteLevel()
    out.post_processor = processors.ByteLevel(trim_offsets=False)
    add_declared(out, config.get("added_tokens_decoder") or {})
    return out
