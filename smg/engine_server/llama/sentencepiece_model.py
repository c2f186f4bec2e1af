"""The SentencePiece tokenizer of a GGUF file, as the model file it was made from (its protocol buffer)."""

import struct
from collections.abc import Mapping
from typing import Any

_BPE = 2
_BYTE = 6


def model_file(metadata: Mapping[str, Any]) -> bytes:
    """Write the tokenizer.model of a GGUF whose ``tokenizer.ggml.model`` is ``llama``.

    Raises:
        KeyError: the metadata has no complete vocabulary.
        ValueError: its parts are not equally long.
    """
    tokens, scores, kinds = (metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type"))
    pieces = b"".join(
        _message(1, _message(1, token.encode()) + _key(2, 5) + struct.pack("<f", score) + _number(3, kind))
        for token, score, kind in zip(tokens, scores, kinds, strict=True)
    )
    ids = {"unknown": 40, "bos": 41, "eos": 42, "padding": 43}
    given = {field: metadata.get(f"tokenizer.ggml.{name}_token_id", -1) for name, field in ids.items()}
    trainer = _number(3, _BPE) + _number(35, _BYTE in kinds)
    trainer += b"".join(_number(field, number) for field, number in given.items())
    # Texts are taken as they are, with a blank in front unless the file says no.
    normalizer = _number(3, metadata.get("tokenizer.ggml.add_space_prefix", True)) + _number(4, False)
    return pieces + _message(2, trainer) + _message(3, normalizer)


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _message(field: int, body: bytes) -> bytes:
    return _key(field, 2) + _varint(len(body)) + body


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value & (1 << 64) - 1)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
