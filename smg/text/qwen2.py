"""Tokenizers that come as vocab.json and merges.txt: those of the Qwen 2 line (spec text-pipeline 1.3)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from smg.engine_server import splits

CLASSES = frozenset({"Qwen2Tokenizer", "Qwen2TokenizerFast"})


class NotQwen2(Exception):
    """The files are those of another tokenizer, or contradict each other; the text says how."""


def from_vocab_and_merges(directory: Path, config: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer of ``directory``; ``config`` is its tokenizer_config.json.

    Raises:
        NotQwen2: another ``tokenizer_class``, or an added token that does not get the id it is declared with.
        Exception: what the library raises for files it cannot read.
    """
    name = config.get("tokenizer_class")
    if name not in CLASSES:
        raise NotQwen2(f"{directory} has vocab.json and merges.txt of the class {name!r}; only Qwen2Tokenizer is known")
    out = Tokenizer(models.BPE.from_file(str(directory / "vocab.json"), str(directory / "merges.txt")))
    out.normalizer = normalizers.NFC()
    prefix = bool(config.get("add_prefix_space", False))
    words = pre_tokenizers.Split(Regex(splits.QWEN2), "isolated")
    out.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)]
    )
    out.decoder = decoders.ByteLevel()
    out.post_processor = processors.ByteLevel(trim_offsets=False)
    _add_tokens(out, config.get("added_tokens_decoder") or {})
    return out


def _add_tokens(out: Tokenizer, declared: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the declared tokens in the order of their ids; the library numbers them itself."""
    for number, token in sorted((int(number), token) for number, token in declared.items()):
        special = bool(token.get("special", False))
        added = AddedToken(
            token["content"],
            single_word=bool(token.get("single_word", False)),
            lstrip=bool(token.get("lstrip", False)),
            rstrip=bool(token.get("rstrip", False)),
            normalized=bool(token.get("normalized", not special)),
            special=special,
        )
        if special:
            out.add_special_tokens([added])
        else:
            out.add_tokens([added])
        got = out.token_to_id(token["content"])
        if got != number:
            raise NotQwen2(f"the added token {token['content']!r} is declared with id {number}, but would get {got}")
