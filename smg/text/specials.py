"""What the files beside a tokenizer say about its special tokens and about the ids that end a generation."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from smg.text.config_files import read_json

# Names tried when tokenizer_config.json does not mention a special token at all (spec text-pipeline 1.3).
_GUESSES = {
    "bos_token": ("<s>", "<|startoftext|>", "<BOS>", "[CLS]"),
    "eos_token": ("</s>", "<|endoftext|>", "<EOS>", "[SEP]"),
    "unk_token": ("<unk>", "<UNK>", "[UNK]"),
    "pad_token": ("<pad>", "<PAD>", "[PAD]"),
}

_HARMONY_ENDS = ("<|return|>", "<|call|>")


class SpecialTokens(msgspec.Struct, frozen=True):
    """Texts of the named special tokens, None where the model has none."""

    bos: str | None = None
    eos: str | None = None
    unk: str | None = None
    pad: str | None = None

    def context(self) -> dict[str, str]:
        """The chat template's variables; absent ones stay undefined."""
        named = {"bos_token": self.bos, "eos_token": self.eos, "unk_token": self.unk, "pad_token": self.pad}
        return {name: text for name, text in named.items() if text is not None}


def find_specials(config: Mapping[str, Any], added: Collection[str]) -> SpecialTokens:
    """The named special tokens of tokenizer_config.json (``config``), guessed among the ``added`` tokens' texts."""
    found: dict[str, str | None] = {}
    for name, guesses in _GUESSES.items():
        if name in config:
            found[name.removesuffix("_token")] = _token_text(config[name])
        else:
            found[name.removesuffix("_token")] = next((text for text in guesses if text in added), None)
    return SpecialTokens(**found)


def find_eos(directory: Path, eos: str | None, token_id: Callable[[str], int | None]) -> tuple[int, ...]:
    """Union over config.json and generation_config.json (spec text-pipeline 1.5), else the tokenizer's own ``eos``.

    Raises:
        TokenizerError: one of the files cannot be read.
    """
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        config = read_json(directory / name)
        nested = config.get("text_config")
        value = config.get("eos_token_id")
        if value is None and isinstance(nested, dict):
            value = nested.get("eos_token_id")
        found.update(item for item in (value if isinstance(value, list) else [value]) if type(item) is int)
    if token_id("<|constrain|>") is not None:
        # Harmony's messages to a tool or to the user end the turn, whether or not the configuration says so.
        found.update(token for text in _HARMONY_ENDS if (token := token_id(text)) is not None)
    if not found and eos is not None:
        token = token_id(eos)
        found.update(() if token is None else (token,))
    return tuple(sorted(found))


def _token_text(value: Any) -> str | None:
    """A token in tokenizer_config.json: a string, ``{"content": …}`` or null."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
