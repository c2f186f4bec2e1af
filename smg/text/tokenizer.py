"""Tokenizer: a directory's vocabulary and what the files beside it say about special tokens and end ids."""

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from smg.core.stream import Decoder
from smg.fleet.tokenizer_files import UnknownFormat, loadable
from smg.text.bpe import FastEncoder, NotByteBpe
from smg.text.cuts import frame
from smg.text.formats.loaded import FormatError, Loaded
from smg.text.formats.read import read
from smg.text.shield import JOINER, Shield
from smg.text.tables import vocabulary
from smg.text.token_bytes import TokenTable, UnsupportedDecoder

# Names tried when tokenizer_config.json does not mention a special token at all (spec text-pipeline 1.3).
_GUESSES = {
    "bos_token": ("<s>", "<|startoftext|>", "<BOS>", "[CLS]"),
    "eos_token": ("</s>", "<|endoftext|>", "<EOS>", "[SEP]"),
    "unk_token": ("<unk>", "<UNK>", "[UNK]"),
    "pad_token": ("<pad>", "<PAD>", "[PAD]"),
}

# Added tokens that structure a conversation, although some models do not declare them special.
_CONTROL = re.compile(r"<[|｜].+[|｜]>")

_HARMONY_ENDS = ("<|return|>", "<|call|>")

# A batch of the library is one text here: a pool of threads per process would only wait for it.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

logger = logging.getLogger(__name__)


class TokenizerError(Exception):
    """Tokenizer files are missing, broken or of a kind that is not supported. The message is for the operator."""


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


class Tokenizer:
    """Encoding, decoding and special tokens of one model.

    ``eos_ids`` are sorted; ``size`` is the highest id plus one. ``literals`` are the added tokens that are looked for
    in a text before it is normalised, and their ids. Instances may be used from several threads at once; encoding
    releases the GIL.
    """

    def __init__(self, path: str | Path) -> None:
        """Load from a directory, or from a tokenizer file with its siblings.

        Raises:
            TokenizerError: no tokenizer that can be loaded, or a file that cannot be read or understood.
        """
        path = Path(path)
        self.directory = path if path.is_dir() else path.parent
        self.config = read_json(self.directory / "tokenizer_config.json")
        loaded = _load(path, self.config)
        self.config = loaded.defaults | self.config
        self.model_config = read_json(self.directory / "config.json")
        self._hf = loaded.tokenizer
        self._hf.no_truncation()
        self._hf.no_padding()
        self._added = {
            token: (added.content, bool(added.special)) for token, added in self._hf.get_added_tokens_decoder().items()
        }
        self.size = max([*self._hf.get_vocab(with_added_tokens=True).values(), *self._added], default=-1) + 1
        self.specials = self._find_specials()
        self._apply_bos_and_eos()
        self.eos_ids = self._find_eos()
        self._joiner = self._add_joiner()
        self.literals: dict[str, int] = {
            token.content: number
            for number, token in self._hf.get_added_tokens_decoder().items()
            if not token.normalized
        }
        controls = [text for text, special in self._added.values() if special or _CONTROL.fullmatch(text)]
        self.shield = Shield(controls, "" if self._joiner is None else JOINER)
        self._fast: FastEncoder | None = None
        self._frame = frame(self)
        self._fast = self._find_fast()

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Encode ``text``. Special tokens spelled in it are recognised, unless the shield has been put over them."""
        if self._fast is None:
            return self._library(text, add_special_tokens)
        if not add_special_tokens:
            return self._fast.encode(text)
        if self._frame is None:
            return self._library(text, add_special_tokens)
        return [*self._frame[0], *self._fast.encode(text), *self._frame[1]]

    @property
    def native(self) -> bool:
        """Whether texts are encoded by the native encoder, whose ids are the library's."""
        return self._fast is not None

    def _library(self, text: str, add_special_tokens: bool = False) -> list[int]:
        # Of the library's ways to encode, only those for batches release the GIL, and only this one skips the offsets.
        (encoding,) = self._hf.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return self._without_joiners(ids) if self._joiner is not None and self._joiner in ids else ids

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Encode two texts as one input, with what the model puts around and between them (cross-encoders).

        The library raises bare Exception where the tokenizer has no form for pairs.
        """
        (encoding,) = self._hf.encode_batch_fast([(first, second)], add_special_tokens=True)
        ids: list[int] = encoding.ids
        return ids

    def token_id(self, text: str) -> int | None:
        """Id of the token that is exactly ``text`` (None: the vocabulary has none)."""
        token: int | None = self._hf.token_to_id(text)
        return token

    @cached_property
    def decoder(self) -> Decoder:
        """Id to bytes, as the table that native rows read. Made at the first use, which takes up to a second.

        Raises:
            TokenizerError: the model's decoder cannot be applied token by token (BPE with a suffix, CTC).
        """
        state = None if self._hf.decoder is None else msgspec.json.decode(self._hf.decoder.__getstate__())
        try:
            return vocabulary(TokenTable(self.size, self._hf.id_to_token, self._added, state))
        except UnsupportedDecoder as error:
            raise TokenizerError(str(error)) from None

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decode a whole sequence; equal to what a stream of the same ids yields.

        Raises:
            TokenizerError: as ``decoder``.
        """
        table = self.decoder
        shown = [token for token in ids if not (skip_special_tokens and table.is_special(token))]
        pieces = [table.first_bytes(token) for token in shown[:1]] + [table.token_bytes(token) for token in shown[1:]]
        return b"".join(pieces).decode("utf-8", "replace")

    def _find_specials(self) -> SpecialTokens:
        texts = {text for text, _ in self._added.values()}
        found: dict[str, str | None] = {}
        for name, guesses in _GUESSES.items():
            if name in self.config:
                found[name.removesuffix("_token")] = _token_text(self.config[name])
            else:
                found[name.removesuffix("_token")] = next((text for text in guesses if text in texts), None)
        return SpecialTokens(**found)

    def _apply_bos_and_eos(self) -> None:
        """Rebuild the post-processor as ``[bos] text [eos]`` when the configuration asks for either."""
        add_bos, add_eos = self.config.get("add_bos_token"), bool(self.config.get("add_eos_token"))
        if not (add_bos or add_eos):
            return
        if add_bos is None:
            add_bos = bool(self._hf.encode("", add_special_tokens=True).ids)
        named = [text for text, wanted in ((self.specials.bos, add_bos), (self.specials.eos, add_eos)) if wanted]
        ids = [(text, self.token_id(text)) for text in named if text is not None]
        if len(ids) != len(named) or any(token is None for _, token in ids):
            raise TokenizerError("add_bos_token or add_eos_token is set, but the vocabulary lacks that token")
        single = [self.specials.bos] if add_bos else []
        single += ["$A"]
        single += [self.specials.eos] if add_eos else []
        self._hf.post_processor = tokenizers.processors.TemplateProcessing(single=single, special_tokens=ids)

    def _find_eos(self) -> tuple[int, ...]:
        """Union over config.json and generation_config.json (spec text-pipeline 1.5), else the tokenizer's own."""
        found: set[int] = set()
        for name in ("config.json", "generation_config.json"):
            config = read_json(self.directory / name)
            nested = config.get("text_config")
            value = config.get("eos_token_id")
            if value is None and isinstance(nested, dict):
                value = nested.get("eos_token_id")
            found.update(item for item in (value if isinstance(value, list) else [value]) if type(item) is int)
        if self.token_id("<|constrain|>") is not None:
            # Harmony's messages to a tool or to the user end the turn, whether or not the configuration says so.
            found.update(token for text in _HARMONY_ENDS if (token := self.token_id(text)) is not None)
        if not found and self.specials.eos is not None:
            token = self.token_id(self.specials.eos)
            found.update(() if token is None else (token,))
        return tuple(sorted(found))

    def _piece(self, token: int) -> str:
        return self._hf.id_to_token(token) or ""

    def _add_joiner(self) -> int | None:
        """Make the shield's joiner a token and return its id, which is beyond the model's own.

        None when the library would give it an id in use: it counts the vocabulary, and this one has gaps.
        """
        next_id = max([self._hf.get_vocab_size(with_added_tokens=False), *(token + 1 for token in self._added)])
        if next_id < self.size:
            logger.warning("%s has gaps: control tokens in user text cannot be told apart", self.directory)
            return None
        self._hf.add_tokens([tokenizers.AddedToken(JOINER, normalized=False)])
        return self.token_id(JOINER)

    def _find_fast(self) -> FastEncoder | None:
        try:
            return FastEncoder(self._hf, self._library, self._joiner)
        except NotByteBpe as error:
            logger.info("%s is encoded by the tokenizers library: %s", self.directory, error)
            return None

    @cached_property
    def _prefixes(self) -> bool:
        """Whether the tokenizer prepends a space mark to a text that follows an added token."""
        tokens: list[str] = self._hf.encode(f"a{JOINER}b", add_special_tokens=False).tokens
        return any(token.startswith("▁") for token in tokens[tokens.index(JOINER) + 1 :])

    def _without_joiners(self, ids: list[int]) -> list[int]:
        out: list[int] = []
        after = False
        for token in ids:
            if token == self._joiner:
                after = self._prefixes
                continue
            out += self._unprefixed(token) if after else [token]
            after = False
        return out

    def _unprefixed(self, token: int) -> list[int]:
        """Spell a token without the space mark it begins with: as one token, else by character, else by byte."""
        text = self._piece(token)
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


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} when the file is missing.

    Raises:
        TokenizerError: unreadable, not JSON or not an object.
    """
    try:
        # The standard library's reader takes the Infinity and NaN that model configurations contain.
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} does not hold a JSON object")
    return value


def _token_text(value: Any) -> str | None:
    """A token in tokenizer_config.json: a string, ``{"content": …}`` or null."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
