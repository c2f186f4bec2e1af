"""Library: a model's tokenizer as the tokenizers library has it, with the shield's joiner among its tokens."""

import logging
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from smg.fleet.tokenizer_files import UnknownFormat, loadable
from smg.text.config_files import TokenizerError, read_json
from smg.text.formats.loaded import FormatError, Loaded
from smg.text.formats.read import read
from smg.text.shield import JOINER
from smg.text.specials import find_specials
from smg.text.token_bytes import TokenTable

# A batch of the library is one text here: a pool of threads per process would only wait for it.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

logger = logging.getLogger(__name__)


class Library:
    """What the library answers. Loading a large vocabulary takes seconds, and holds the GIL for most of them.

    ``config`` is tokenizer_config.json over what the format implies, ``added`` maps the ids of added tokens to
    (text, special), ``size`` is the highest id plus one, ``joiner`` the id of the shield's joiner, which is beyond the
    model's own; it is in neither of them. Instances may be used from several threads at once; encoding releases the
    GIL.
    """

    def __init__(self, path: Path) -> None:
        """Load from a directory, or from a tokenizer file with its siblings.

        Raises:
            TokenizerError: no tokenizer that can be loaded, or a file that cannot be read or understood.
        """
        self.directory = path if path.is_dir() else path.parent
        config = read_json(self.directory / "tokenizer_config.json")
        loaded = _load(path, config)
        self.config = loaded.defaults | config
        self.tokenizer = loaded.tokenizer
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        decoder = self.tokenizer.get_added_tokens_decoder()
        self.added = {token: (added.content, bool(added.special)) for token, added in decoder.items()}
        self.size = max([*self.vocabulary().values(), *self.added], default=-1) + 1
        self.specials = find_specials(self.config, {text for text, _ in self.added.values()})
        self._apply_bos_and_eos()
        self.joiner = self._add_joiner()

    def vocabulary(self) -> dict[str, int]:
        """Ids by the texts of all tokens."""
        found: dict[str, int] = self.tokenizer.get_vocab(with_added_tokens=True)
        return found

    def literals(self) -> dict[str, int]:
        """The added tokens that are looked for in a text before it is normalised (the joiner too), and their ids."""
        added = self.tokenizer.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if not token.normalized}

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Encode ``text``; joiners leave no id behind."""
        # Of the library's ways to encode, only those for batches release the GIL, and only this one skips the offsets.
        (encoding,) = self.tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return self._without_joiners(ids) if self.joiner is not None and self.joiner in ids else ids

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Encode two texts as one input. The library raises bare Exception where it has no form for pairs."""
        (encoding,) = self.tokenizer.encode_batch_fast([(first, second)], add_special_tokens=True)
        ids: list[int] = encoding.ids
        return ids

    def token_id(self, text: str) -> int | None:
        """Id of the token that is exactly ``text`` (None: the vocabulary has none)."""
        token: int | None = self.tokenizer.token_to_id(text)
        return token

    def table(self) -> TokenTable:
        """Id to bytes, worked out for each question.

        Raises:
            UnsupportedDecoder: the model's decoder cannot be applied token by token (BPE with a suffix, CTC).
        """
        decoder = self.tokenizer.decoder
        state = None if decoder is None else msgspec.json.decode(decoder.__getstate__())
        return TokenTable(self.size, self.tokenizer.id_to_token, self.added, state)

    def _apply_bos_and_eos(self) -> None:
        """Rebuild the post-processor as ``[bos] text [eos]`` when the configuration asks for either."""
        add_bos, add_eos = self.config.get("add_bos_token"), bool(self.config.get("add_eos_token"))
        if not (add_bos or add_eos):
            return
        if add_bos is None:
            add_bos = bool(self.tokenizer.encode("", add_special_tokens=True).ids)
        named = [text for text, wanted in ((self.specials.bos, add_bos), (self.specials.eos, add_eos)) if wanted]
        ids = [(text, self.token_id(text)) for text in named if text is not None]
        if len(ids) != len(named) or any(token is None for _, token in ids):
            raise TokenizerError("add_bos_token or add_eos_token is set, but the vocabulary lacks that token")
        single = [self.specials.bos] if add_bos else []
        single += ["$A"]
        single += [self.specials.eos] if add_eos else []
        self.tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=single, special_tokens=ids)

    def _add_joiner(self) -> int | None:
        """Make the shield's joiner a token and return its id.

        None when the library would give it an id in use: it counts the vocabulary, and this one has gaps.
        """
        next_id = max([self.tokenizer.get_vocab_size(with_added_tokens=False), *(token + 1 for token in self.added)])
        if next_id < self.size:
            logger.warning("%s has gaps: control tokens in user text cannot be told apart", self.directory)
            return None
        self.tokenizer.add_tokens([tokenizers.AddedToken(JOINER, normalized=False)])
        return self.token_id(JOINER)

    @cached_property
    def _prefixes(self) -> bool:
        """Whether the tokenizer prepends a space mark to a text that follows an added token."""
        tokens: list[str] = self.tokenizer.encode(f"a{JOINER}b", add_special_tokens=False).tokens
        return any(token.startswith("▁") for token in tokens[tokens.index(JOINER) + 1 :])

    def _without_joiners(self, ids: list[int]) -> list[int]:
        out: list[int] = []
        after = False
        for token in ids:
            if token == self.joiner:
                after = self._prefixes
                continue
            out += self._unprefixed(token) if after else [token]
            after = False
        return out

    def _unprefixed(self, token: int) -> list[int]:
        """Spell a token without the space mark it begins with: as one token, else by character, else by byte."""
        text = self.tokenizer.id_to_token(token) or ""
        rest = text.removeprefix("▁")
        if rest == text:
            return [token]
        whole = self.token_id(rest)
        if not rest or whole is not None:
            return [] if whole is None else [whole]
        out: list[int] = []
        for char in rest:
            found = self.token_id(char)
            spelled = [found] if found is not None else [self.token_id(f"<0x{byte:02X}>") for byte in char.encode()]
            out += [piece for piece in spelled if piece is not None]
        return out


def _load(path: Path, config: Mapping[str, Any]) -> Loaded:
    try:
        file = path if path.is_file() else loadable(path)
        model, added = (read_json(file.parent / name) for name in ("config.json", "added_tokens.json"))
        return read(file, config, model, added)
    except (UnknownFormat, FormatError) as error:
        raise TokenizerError(str(error)) from None
