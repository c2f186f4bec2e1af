"""Id to bytes: what a tokenizer's decoder does, token by token (spec text-pipeline 4).

The decoders of generating models (byte-level BPE; Metaspace; SentencePiece BPE with byte fallback) and of WordPiece
treat every token alike wherever it stands, except for the first one of a text, which may lose a leading space. So each
id has two byte strings, ``token_bytes`` and ``first_bytes``, and a stream is decoded without looking at its
neighbours. Bytes that never become a character turn into U+FFFD by the rules of UTF-8, as everywhere else; the
``tokenizers`` library differs only there: it replaces a whole run of byte-fallback tokens when one byte of it is
wrong.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

# (bytes of the token so far, whether it is the first of the text) -> bytes
Step: TypeAlias = Callable[[bytes, bool], bytes]

# What the library tidies up in a token, in this order.
_CLEANUP = (
    (b" .", b"."),
    (b" ?", b"?"),
    (b" !", b"!"),
    (b" ,", b","),
    (b" ' ", b"'"),
    (b" n't", b"n't"),
    (b" 'm", b"'m"),
    (b" do not", b" don't"),
    (b" 's", b"'s"),
    (b" 've", b"'ve"),
    (b" 're", b"'re"),
)

_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")


class UnsupportedDecoder(Exception):
    """The tokenizer's decoder needs more than one token at a time."""


def compile_steps(decoder: Mapping[str, Any] | None) -> list[Step]:
    """Turn a decoder's JSON description into steps.

    Raises:
        UnsupportedDecoder: a decoder that looks at neighbouring tokens.
    """
    if decoder is None:
        return [lambda value, first: value if first else b" " + value]
    steps: list[Step] = []
    fused = False
    for part in _flatten(decoder):
        kind = part["type"]
        if kind == "Fuse":
            fused = True
            continue
        steps.append(_step(kind, part, fused))
    return steps


def is_byte_level(decoder: Mapping[str, Any] | None) -> bool:
    """Tell whether token texts are written in the byte-level alphabet."""
    return decoder is not None and any(part["type"] == "ByteLevel" for part in _flatten(decoder))


def _flatten(decoder: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [inner for part in decoder["decoders"] for inner in _flatten(part)]


def _step(kind: str, part: Mapping[str, Any], fused: bool) -> Step:
    match kind:
        case "ByteLevel":
            return lambda value, _: from_byte_level(value.decode())
        case "ByteFallback":
            return lambda value, _: _byte(value)
        case "Metaspace":
            return _metaspace(part)
        case "Replace" if "String" in part["pattern"]:
            old, new = part["pattern"]["String"].encode(), part["content"].encode()
            if not fused or len(part["pattern"]["String"]) == 1:
                return lambda value, _: value.replace(old, new)
        case "Strip":
            return _strip(part, fused)
        case "WordPiece" if not fused:
            return _wordpiece(part)
    raise UnsupportedDecoder(f"decoder {kind} is not supported for generated text")


def _byte(value: bytes) -> bytes:
    found = _BYTE.fullmatch(value)
    return bytes([int(found[1], 16)]) if found else value


def _metaspace(part: Mapping[str, Any]) -> Step:
    mark = part["replacement"].encode()
    # Older files say add_prefix_space instead of prepend_scheme.
    scheme = part.get("prepend_scheme", "always" if part.get("add_prefix_space", True) else "never")
    at_start = b" " if scheme == "never" else b""
    return lambda value, first: value.replace(mark, at_start if first else b" ")


def _wordpiece(part: Mapping[str, Any]) -> Step:
    """A blank before every token that does not continue a word; punctuation is cleaned up within the token."""
    prefix = part["prefix"].encode()

    def join(value: bytes, first: bool) -> bytes:
        if not first:
            value = value.removeprefix(prefix) if value.startswith(prefix) else b" " + value
        if part["cleanup"]:
            for old, new in _CLEANUP:
                value = value.replace(old, new)
        return value

    return join


def _strip(part: Mapping[str, Any], fused: bool) -> Step:
    content, start, stop = part["content"].encode(), part["start"], part["stop"]
    if fused and stop:
        raise UnsupportedDecoder("decoder Strip at the end of the text is not supported for generated text")

    def strip(value: bytes, first: bool) -> bytes:
        if first or not fused:
            for _ in range(start):
                value = value.removeprefix(content)
            for _ in range(stop):
                value = value.removesuffix(content)
        return value

    return strip


@cache
def _alphabet() -> dict[str, int]:
    """The byte-level alphabet: printable Latin-1 stands for itself, the other bytes are written from U+0100 upwards."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def byte_letters() -> list[str]:
    """The letter that stands for each of the 256 bytes in the byte-level alphabet."""
    return sorted(_alphabet(), key=_alphabet().__getitem__)


def from_byte_level(text: str) -> bytes:
    """Translate a token's text from the byte-level alphabet; text that is not written in it stays as it is."""
    try:
        return bytes(map(_alphabet().__getitem__, text))
    except KeyError:
        return text.encode()


class TokenTable:
    """The ``core.stream.Decoder`` of one tokenizer, worked out anew for each question (``tables`` keeps the answers).

    ``texts`` looks an id's text up (None: no such id). ``added`` maps the ids of added tokens to (text, special).
    """

    def __init__(
        self,
        size: int,
        texts: Callable[[int], str | None],
        added: Mapping[int, tuple[str, bool]],
        decoder: Mapping[str, Any] | None,
    ) -> None:
        self.size = size
        self._texts = texts
        self._added = dict(added)
        self._steps = compile_steps(decoder)
        self._byte_level = is_byte_level(decoder)
        # Special tokens are words like any other where blanks are put between words.
        self._blanks = decoder is not None and any(part["type"] == "WordPiece" for part in _flatten(decoder))
        # Nothing else to do, as in most large vocabularies: their tables are built twice as fast without the steps.
        self._only_byte_level = self._byte_level and len(self._steps) == 1

    def is_special(self, token: int) -> bool:
        _, special = self._added.get(token, ("", False))
        return special

    def token_bytes(self, token: int) -> bytes:
        return self._decode(token, False)

    def first_bytes(self, token: int) -> bytes:
        return self._decode(token, True)

    def _decode(self, token: int, first: bool) -> bytes:
        text, special = self._added.get(token, (None, False))
        # Added tokens are matched as plain text, so a byte-level alphabet does not apply to them.
        literal = text is not None and (special or self._byte_level) and not self._blanks
        if text is None and 0 <= token < self.size:
            text = self._texts(token)
        if text is None:
            return b""
        if self._only_byte_level and not literal:
            return from_byte_level(text)
        value = text.encode()
        for step in () if literal else self._steps:
            value = step(value, first)
        return value
