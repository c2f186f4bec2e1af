"""Prompts that ask a model to fill a gap between two texts, in the ways model families were trained to."""

import msgspec

from smg.core.errors import GatewayError
from smg.text.tokenizer import Tokenizer


class Infill(msgspec.Struct, frozen=True):
    """One family's way: ``before`` prefix ``between`` suffix ``after``, or the suffix first.

    ``tokens`` are those the vocabulary must have whole.
    """

    before: str
    between: str
    after: str
    tokens: tuple[str, ...]
    suffix_first: bool = False

    def prompt(self, prefix: str, suffix: str) -> str:
        """The prompt whose continuation belongs between ``prefix`` and ``suffix``."""
        first, second = (suffix, prefix) if self.suffix_first else (prefix, suffix)
        return self.before + first + self.between + second + self.after


def _plain(before: str, between: str, after: str) -> Infill:
    return Infill(before, between, after, (before, between, after))


_FAMILIES = (
    _plain("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    _plain("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    _plain("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    _plain("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    Infill("<PRE> ", " <SUF>", " <MID>", ("▁<PRE>", "▁<SUF>", "▁<MID>")),
    Infill("[SUFFIX]", "[PREFIX]", "", ("[SUFFIX]", "[PREFIX]"), suffix_first=True),
)


def infill(tokenizer: Tokenizer, prefix: str, suffix: str) -> str:
    """Return the prompt for a gap, judged by the tokens that ``tokenizer`` has.

    Raises:
        GatewayError: ``unsupported_parameter`` (400): this model was not trained to fill gaps.
    """
    for family in _FAMILIES:
        if all(tokenizer.token_id(token) is not None for token in family.tokens):
            return family.prompt(prefix, suffix)
    raise GatewayError("unsupported_parameter", "this model cannot fill in text before a suffix", param="suffix")
