"""Mistral's tekken.json: byte-level BPE ranks behind a block of special tokens (spec text-pipeline 1.1)."""

import base64
import binascii
from pathlib import Path

import msgspec

from smg.text.formats.byte_ranks import from_ranks
from smg.text.formats.loaded import FormatError, Loaded

# Files before version 7 leave the special tokens out.
_UNLISTED = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)


class _Config(msgspec.Struct):
    pattern: str
    default_vocab_size: int
    default_num_special_tokens: int


class _Token(msgspec.Struct):
    rank: int
    token_bytes: str


class _Special(msgspec.Struct):
    rank: int
    token_str: str


class _File(msgspec.Struct):
    config: _Config
    vocab: list[_Token]
    special_tokens: list[_Special] | None = None


def read(path: Path) -> Loaded:
    """Read ``path``. The vocabulary may be longer than what models use; the configuration says how much counts.

    Raises:
        FormatError: the file is broken.
    """
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        count = file.config.default_num_special_tokens
        used = file.config.default_vocab_size - count
        ranks = {base64.b64decode(token.token_bytes): token.rank for token in file.vocab if token.rank < used}
    except (OSError, msgspec.DecodeError, binascii.Error) as error:
        raise FormatError(f"{path} is no tekken file: {error}") from None
    listed = [_Special(rank, text) for rank, text in enumerate(_UNLISTED)]
    named = {token.rank: token.token_str for token in (listed if file.special_tokens is None else file.special_tokens)}
    specials = {named.get(rank, f"<SPECIAL_{rank}>"): rank for rank in range(count)}
    tokenizer = from_ranks(ranks, specials, file.config.pattern, count)
    texts = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    defaults = {name: text for name, text in texts.items() if text in specials}
    return Loaded(tokenizer, defaults | {"add_bos_token": "<s>" in specials})
