"""A native encoder for a tokenizer of the library, tried out against it before it is used (DESIGN 6)."""

import array
from collections.abc import Callable
from itertools import chain

import tokenizers

from smg._native.bpe import ByteBpe
from smg._native.bpe_tables import pack
from smg.text.bpe.classes import classes
from smg.text.bpe.description import Description, NotByteBpe, describe
from smg.text.bpe.encoder import FastEncoder
from smg.text.bpe.probes import PROBES


def prove(
    tokenizer: tokenizers.Tokenizer, library: Callable[[str], list[int]], silent: int | None = None
) -> FastEncoder:
    """Read the tokenizer's description and try the encoder out against ``library``, a second for 150,000 tokens.

    ``silent`` is an added token that leaves no id behind.

    Raises:
        NotByteBpe: the tokenizer is of another kind, or ids differ on a probe.
    """
    told = describe(tokenizer.to_str())
    added = [(token.content, -1 if token.id == silent else token.id) for token in told.added]
    fast = FastEncoder(_native(told), added, told.nfc, lambda text, _: library(text))
    for probe in [*PROBES, *(f"a {text}b" for text, _ in added)]:
        if fast.encode(probe) != library(probe):
            raise NotByteBpe(f"ids differ from the library's for {probe[:40]!r}")
    return fast


def _native(told: Description) -> ByteBpe:
    merges = array.array("i", chain.from_iterable(told.merges)).tobytes()
    return ByteBpe(pack(told.bytes_to_ids, merges, told.words, classes(), told.kind, told.digits))
