"""Tokenizer: a directory's vocabulary and what the files beside it say about special tokens and end ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smg.core.stream import Decoder
from smg.text.config_files import TokenizerError
from smg.text.mapped.file import Mapped
from smg.text.shield import JOINER, Shield
from smg.text.specials import SpecialTokens
from smg.text.vocabulary import LoadedVocabulary, MappedVocabulary, Vocabulary

__all__ = ["SpecialTokens", "Tokenizer", "TokenizerError"]


class Tokenizer:
    """Encoding, decoding and special tokens of one model.

    ``eos_ids`` are sorted; ``size`` is the highest id plus one. ``literals`` are the added tokens that are looked for
    in a text before it is normalised, and their ids, ``added`` the texts of all added tokens. Instances may be
    used from several threads at once; encoding releases the GIL.
    """

    def __init__(self, path: str | Path, mapped: Mapped | None = None) -> None:
        """Load from a directory, or from a tokenizer file with its siblings; in milliseconds from a ``mapped`` file of
        the directory that has tables.

        Raises:
            TokenizerError: no tokenizer that can be loaded, or a file that cannot be read or understood.
        """
        path = Path(path)
        self.directory = path if path.is_dir() else path.parent
        tables = None if mapped is None else mapped.tables
        self._vocabulary: Vocabulary = LoadedVocabulary(path) if tables is None else MappedVocabulary(path, tables)
        facts = self._vocabulary.facts
        self.config: dict[str, Any] = facts.config
        self.model_config: dict[str, Any] = facts.model_config
        self.size = facts.size
        self.specials: SpecialTokens = facts.specials
        self.eos_ids = facts.eos_ids
        self._joiner = facts.joiner
        self.literals = facts.literals | ({} if facts.joiner is None else {JOINER: facts.joiner})
        self.added = frozenset(facts.added)
        self.shield = Shield(facts.controls, "" if facts.joiner is None else JOINER)
        self._fast = self._vocabulary.fast
        self._frame = facts.frame

    def encode(self, text: str, add_special_tokens: bool = False) -> Sequence[int]:
        """Encode ``text``. Special tokens spelled in it are recognised, unless the shield has been put over them.
        Many ids may be an array (``id_list``).

        Raises what the library raises, and LibraryNeeded on an event loop.
        """
        if self._fast is None:
            return self._vocabulary.library("").encode(text, add_special_tokens)
        if not add_special_tokens:
            return self._fast.encode(text)
        if self._frame is None:
            return self._vocabulary.library("what is put around a text depends on it").encode(text, True)
        return [*self._frame[0], *self._fast.encode(text), *self._frame[1]]

    @property
    def native(self) -> bool:
        """Whether texts are encoded by the native encoder, whose ids are the library's."""
        return self._fast is not None

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Encode two texts as one input, with what the model puts around and between them (cross-encoders).

        The library raises bare Exception where the tokenizer has no form for pairs. LibraryNeeded as ``encode``.
        """
        return self._vocabulary.library("two texts as one input").encode_pair(first, second)

    def token_id(self, text: str) -> int | None:
        """Id of the token that is exactly ``text`` (None: the vocabulary has none)."""
        return self._joiner if text == JOINER else self._vocabulary.token_id(text)

    @property
    def decoder(self) -> Decoder:
        """Id to bytes, as the table that native rows read. Without a mapped file the first use takes up to a second.

        Raises:
            TokenizerError: the model's decoder cannot be applied token by token (BPE with a suffix, CTC).
        """
        return self._vocabulary.decoder()

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode a whole sequence; equal to what a stream of the same ids yields.

        Raises:
            TokenizerError: as ``decoder``.
        """
        table = self.decoder
        shown = [token for token in ids if not (skip_special_tokens and table.is_special(token))]
        pieces = [table.first_bytes(token) for token in shown[:1]] + [table.token_bytes(token) for token in shown[1:]]
        return b"".join(pieces).decode("utf-8", "replace")
