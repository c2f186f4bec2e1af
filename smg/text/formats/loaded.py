"""What the reader of a format gives back."""

from typing import Any

import msgspec
import tokenizers


class FormatError(Exception):
    """A tokenizer file is broken, or asks for something that is not supported; the text is for the operator."""


class Loaded(msgspec.Struct, frozen=True):
    """A tokenizer, and what holds where tokenizer_config.json says nothing (its keys: ``bos_token`` and so on)."""

    tokenizer: tokenizers.Tokenizer
    defaults: dict[str, Any] = {}
