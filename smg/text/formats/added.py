"""Tokens that tokenizer_config.json or added_tokens.json declare beside a vocabulary."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

from smg.text.formats.loaded import FormatError


def add_declared(out: Tokenizer, declared: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the tokens of an ``added_tokens_decoder`` (id to description) in the order of their ids.

    The library numbers tokens that the vocabulary lacks itself.

    Raises:
        FormatError: a token would not get the id it is declared with, or is described in an unknown way.
    """
    try:
        entries = sorted((int(number), token["content"], token) for number, token in declared.items())
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FormatError("added_tokens_decoder in tokenizer_config.json is not understood") from None
    for number, text, token in entries:
        special = bool(token.get("special", False))
        added = AddedToken(
            text,
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
        got = out.token_to_id(text)
        if got != number:
            raise FormatError(f"the added token {text!r} is declared with id {number}, but would get {got}")


def plain(tokens: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The ``{text: id}`` of an added_tokens.json, as ``add_declared`` takes it."""
    return {
        str(number): {"content": text, "special": False, "normalized": False}
        for text, number in tokens.items()
        if type(number) is int
    }
