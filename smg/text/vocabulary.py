"""The two ways to hold a model's vocabulary: as the tokenizers library has it, or in a mapped file (DESIGN 6)."""

import logging
from pathlib import Path
from typing import Protocol

from smg.core.stream import Decoder
from smg.text.bpe import FastEncoder, NotByteBpe, prove
from smg.text.config_files import TokenizerError
from smg.text.facts import Facts, find_out
from smg.text.lazy_library import LazyLibrary
from smg.text.library import Library
from smg.text.mapped.file import Tables
from smg.text.shield import JOINER
from smg.text.tables import vocabulary
from smg.text.token_bytes import UnsupportedDecoder

log = logging.getLogger("smg.text")


class Vocabulary(Protocol):
    """What the ways to hold a vocabulary have in common; ``library`` returns the library's tokenizer, ``why`` it must.

    ``token_id`` knows all tokens but the joiner. ``decoder`` raises TokenizerError for what cannot be decoded.
    """

    @property
    def facts(self) -> Facts: ...

    @property
    def fast(self) -> FastEncoder | None: ...

    def token_id(self, text: str) -> int | None: ...

    def decoder(self) -> Decoder: ...

    def library(self, why: str) -> Library: ...


class LoadedVocabulary:
    """All from the library: seconds, and much memory, for a large vocabulary.

    ``reason`` is why there is no native encoder, empty when there is one.
    """

    def __init__(self, path: Path) -> None:
        """Raises TokenizerError."""
        self._library = Library(path)
        self.facts = find_out(self._library, self._library.directory)
        self._decoder: Decoder | None = None
        self.fast: FastEncoder | None = None
        self.reason = ""
        try:
            self.fast = prove(self._library.tokenizer, self._library.encode, self._library.joiner)
        except NotByteBpe as error:
            self.reason = str(error)
            log.info("%s is encoded by the tokenizers library: %s", self._library.directory, error)

    def token_id(self, text: str) -> int | None:
        """See ``Vocabulary``."""
        return self._library.token_id(text)

    def decoder(self) -> Decoder:
        """See ``Vocabulary``; takes up to a second the first time."""
        if self._decoder is None:
            try:
                self._decoder = vocabulary(self._library.table())
            except UnsupportedDecoder as error:
                raise TokenizerError(str(error)) from None
        return self._decoder

    def library(self, why: str) -> Library:
        """See ``Vocabulary``."""
        return self._library


class MappedVocabulary:
    """All from a prepared file; the library is loaded for what the native encoder hands over."""

    def __init__(self, directory: Path, tables: Tables) -> None:
        """Raises TokenizerError for a file that is not what it should be."""
        head = tables.head
        self.facts = head.facts
        self._tables = tables
        self._lazy = LazyLibrary(directory, head.sources)
        silent = [] if head.facts.joiner is None else [(JOINER, -1)]
        try:
            self.fast = FastEncoder(tables.encoder, [*head.added, *silent], head.normalised, self._lazy.encode)
        except NotByteBpe as error:
            raise TokenizerError(f"the prepared tokenizer is damaged: {error}") from None

    def token_id(self, text: str) -> int | None:
        """See ``Vocabulary``."""
        try:
            found = self._tables.ids.get(text.encode())
        except UnicodeEncodeError:
            return None
        return None if found < 0 else found

    def decoder(self) -> Decoder:
        """See ``Vocabulary``."""
        if self._tables.vocab is None:
            raise TokenizerError(self._tables.head.decoder_error)
        return self._tables.vocab

    def library(self, why: str) -> Library:
        """See ``Vocabulary``, and ``LazyLibrary.get`` for what it raises."""
        return self._lazy.get(why)
