"""What the process that prepares a tokenizer tells."""

import msgspec


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """``size`` of the vocabulary, and why the tokenizer cannot be loaded (``error``) or its file not be written."""

    size: int = 0
    error: str = ""
    unwritten: str = ""
