"""FastEncoder: the native encoder behind a tokenizer, the library for what it is not sure of."""

import array
import unicodedata
from collections.abc import Callable
from itertools import chain

import tokenizers

from smg._native.bpe import ByteBpe
from smg._native.stop_scan import StopAutomaton
from smg.text.bpe.classes import classes
from smg.text.bpe.description import Description, NotByteBpe, describe
from smg.text.bpe.probes import PROBES

Library = Callable[[str], list[int]]

# Flags of characters (word_split.pxd).
_NFC_CHECK, _FOLDS, _RECENT = 0x10, 0x20, 0x40

# Checking normal forms holds the GIL: longer texts with something to check go to the library, which lets go of it.
_LONG = 100_000


class FastEncoder:
    """Encodes as ``library`` does, a tokenizer's own encoding without special tokens around the text.

    ``silent`` is an added token that leaves no id behind. May be used from several threads at once.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, library: Library, silent: int | None = None) -> None:
        """Read the tokenizer's description and try the encoder out against the library, some 0.3 s for 150,000 tokens.

        Raises:
            NotByteBpe: the tokenizer is of another kind, or ids differ on a probe.
        """
        told = describe(tokenizer.to_str())
        self._library = library
        self._nfc = told.nfc
        self._native = _native(told)
        added = [token.content.encode() for token in told.added]
        self._lengths = [len(text) for text in added]
        self._ids = [-1 if token.id == silent else token.id for token in told.added]
        try:
            self._matcher = StopAutomaton(added)
        except ValueError:
            raise NotByteBpe("more added tokens than can be looked for") from None
        for probe in [*PROBES, *(f"a {token.content}b" for token in told.added)]:
            if self.encode(probe) != library(probe):
                raise NotByteBpe(f"ids differ from the library's for {probe[:40]!r}")

    def encode(self, text: str) -> list[int]:
        """Encode ``text``; added tokens spelled in it are recognised. Raises what the library raises."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            # Unpaired surrogates: what becomes of them is for the library to say.
            return self._library(text)
        if not text.isascii() and not self._sure(text, data):
            return self._library(text)
        found = self._matcher.leftmost(data)
        return self._native.encode(data, [(end - self._lengths[n], end, self._ids[n]) for end, n in found])

    def _sure(self, text: str, data: bytes) -> bool:
        flags = self._native.flags(data)
        if flags & (_FOLDS | _RECENT):
            return False
        if not self._nfc or not flags & _NFC_CHECK:
            return True
        return len(text) < _LONG and unicodedata.is_normalized("NFC", text)


def _native(told: Description) -> ByteBpe:
    merges = array.array("i", chain.from_iterable(told.merges)).tobytes()
    return ByteBpe(told.bytes_to_ids, merges, told.words, classes(), told.kind, told.digits)
