"""SentencePiece models, BPE and Unigram, as tokenizers of the tokenizers library (spec text-pipeline 1.1).

SentencePiece normalises the whole text, puts a space mark in front, and then merges over all of it: words are no
border. BPE models get the same ids as in the original library. Unigram models do too, except where two ways to spell a
word have exactly the same score, and where a text spells a byte piece (``<0x41>``); so do models that normalise
characters (NFKC), except for combining marks behind what they do not belong to. There the ids are those of the
tokenizers library.

Control pieces are matched in the text by whoever uses it; here they are added tokens. The parts of a text
between two of them each get a space mark in front (what model configurations call ``legacy``, and the models' own code
does), or only the first part does.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from smg.text.formats.loaded import FormatError, Loaded
from smg.text.formats.sentencepiece_file import Model, PieceType, parse

_MARK = "▁"
_UNIGRAM, _BPE = 1, 2


def read(path: Path, config: Mapping[str, Any]) -> Loaded:
    """Read the model file ``path``; ``config`` is tokenizer_config.json beside it.

    Raises:
        FormatError: not a SentencePiece model, or one that cannot be rebuilt exactly.
    """
    try:
        model = parse(path.read_bytes())
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error}") from None
    if model.kind not in (_UNIGRAM, _BPE) or model.suffix or not model.escape:
        raise FormatError(f"{path} is a SentencePiece model of a kind that is not supported")
    out = Tokenizer(_bpe(model) if model.kind == _BPE else _unigram(model))
    legacy = bool(config.get("legacy", True))
    prefix = model.dummy_prefix and config.get("add_prefix_space") is not False
    _set_steps(out, model, prefix, legacy)
    out.decoder = _decoder(model, prefix)
    out.add_special_tokens(
        [
            AddedToken(piece.text, special=True, normalized=False)
            for piece in model.pieces
            if piece.type in (PieceType.CONTROL, PieceType.UNKNOWN)
        ]
    )
    return Loaded(out, _defaults(model))


def _bpe(model: Model) -> models.BPE:
    vocab = {piece.text: number for number, piece in enumerate(model.pieces)}
    normal = {piece.text: piece.score for piece in model.pieces if piece.type == PieceType.NORMAL}
    merges = []
    for text, score in normal.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in normal and right in normal:
                merges.append((-score, vocab[text], left, right))
    return models.BPE(
        vocab=vocab,
        merges=[(left, right) for _, _, left, right in sorted(merges)],
        unk_token=model.pieces[model.unk].text,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
        ignore_merges=any(piece.type == PieceType.USER_DEFINED for piece in model.pieces),
    )


def _unigram(model: Model) -> models.Unigram:
    scores = [(piece.text, piece.score) for piece in model.pieces]
    return models.Unigram(scores, model.unk, model.byte_fallback)


def _set_steps(out: Tokenizer, model: Model, prefix: bool, legacy: bool) -> None:
    steps: list[Any] = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if model.squeeze:
        steps += [normalizers.Replace(Regex(r"\A +"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    if prefix and legacy:
        steps.append(normalizers.Prepend(_MARK))
    steps.append(normalizers.Replace(" ", _MARK))
    if model.squeeze:
        # The original removes marks at the end, wherever they come from.
        steps.append(normalizers.Replace(Regex(f"{_MARK}+\\z"), ""))
    out.normalizer = normalizers.Sequence(steps)
    cuts: list[Any] = []
    if prefix and not legacy:
        cuts.append(pre_tokenizers.Metaspace(_MARK, prepend_scheme="first", split=False))
    whole = [piece.text for piece in model.pieces if piece.type == PieceType.USER_DEFINED]
    if whole:
        # They are never merged with their neighbours.
        longest = sorted(whole, key=len, reverse=True)
        cuts.append(pre_tokenizers.Split(Regex("|".join(map(re.escape, longest))), "isolated"))
    if cuts:
        out.pre_tokenizer = pre_tokenizers.Sequence(cuts)


def _decoder(model: Model, prefix: bool) -> decoders.Decoder:
    steps: list[Any] = [decoders.Replace(_MARK, " ")]
    if model.byte_fallback:
        steps.append(decoders.ByteFallback())
    steps.append(decoders.Fuse())
    if prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)


def _defaults(model: Model) -> dict[str, Any]:
    named = {"bos": model.bos, "eos": model.eos, "unk": model.unk, "pad": model.pad}
    texts = {
        f"{name}_token": model.pieces[number].text for name, number in named.items() if 0 <= number < len(model.pieces)
    }
    return {**texts, "add_bos_token": "bos_token" in texts}
