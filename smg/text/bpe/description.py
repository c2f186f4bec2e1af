"""What a tokenizer says of itself, checked to be something the native encoder does exactly."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from smg.engine_server import splits

GPT2, CL100K, CL100K_MARKS, O200K, TEKKEN, DEEPSEEK3, GPT2_DIGITS, KIMI = range(8)

_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_BLANKS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_MARKS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _BLANKS
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    + _BLANKS,
)


def _cased(short: str, digits: str) -> str:
    words = f"{_BEFORE}{_UPPER}*{_LOWER}+{short}|{_BEFORE}{_UPPER}+{_LOWER}*{short}"
    return words + "|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _BLANKS


GPT2_SPLIT = _GPT2
# As of GPT-4o, but runs of Han characters are words of their own.
_NO_HAN = r"&&[^\p{Han}]]"
KIMI_SPLIT = "|".join(
    (
        r"[\p{Han}]+",
        f"{_BEFORE}{_UPPER[:-1]}{_NO_HAN}*{_LOWER[:-1]}{_NO_HAN}+{_SHORT}",
        f"{_BEFORE}{_UPPER[:-1]}{_NO_HAN}+{_LOWER[:-1]}{_NO_HAN}*{_SHORT}",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)
O200K_SPLIT = _cased(_SHORT, r"\p{N}{1,3}")

# Expressions of published tokenizers -> which matcher, and the longest run of numbers.
SPLITS: dict[tuple[str, ...], tuple[int, int]] = {
    (_GPT2,): (GPT2, 0),
    (splits.QWEN2,): (CL100K, 1),
    (splits.LLAMA3,): (CL100K, 3),
    (_MARKS,): (CL100K_MARKS, 1),
    (O200K_SPLIT,): (O200K, 3),
    (_cased("", r"\p{N}"),): (TEKKEN, 1),
    _DEEPSEEK3: (DEEPSEEK3, 3),
    (r"\p{N}", _GPT2): (GPT2_DIGITS, 1),
    (KIMI_SPLIT,): (KIMI, 3),
}


class NotByteBpe(Exception):
    """The tokenizer does something that the native encoder does not; the text says what."""


class AddedToken(msgspec.Struct, frozen=True):
    """One of ``added_tokens``."""

    id: int
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


class Model(msgspec.Struct, frozen=True):
    """The ``model`` of a tokenizer."""

    type: str
    vocab: dict[str, int]
    merges: list[str | tuple[str, str]] = []
    dropout: float | None = None
    unk_token: str | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    fuse_unk: bool = False
    byte_fallback: bool = False
    ignore_merges: bool = False


class Described(msgspec.Struct, frozen=True):
    """A tokenizer.json, as far as encoding goes."""

    model: Model
    added_tokens: list[AddedToken] = []
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None


class Description(msgspec.Struct, frozen=True):
    """What the native encoder is made from; see ``ByteBpe``."""

    bytes_to_ids: list[int]
    merges: list[tuple[int, int, int]]
    words: dict[bytes, int] | None
    kind: int
    digits: int
    nfc: bool
    added: list[AddedToken]


def describe(serialised: str | bytes) -> Description:
    """Read a tokenizer.json.

    Raises:
        NotByteBpe: another kind of model, a step that is not known, or parts that do not fit each other.
    """
    try:
        told = msgspec.json.decode(serialised, type=Described)
    except msgspec.DecodeError as error:
        raise NotByteBpe(f"not a byte-pair model: {error}") from None
    _check_model(told.model)
    kind, digits = _split(told.pre_tokenizer)
    nfc = _is_nfc(told.normalizer)
    letters = _byte_letters()
    vocab = told.model.vocab
    try:
        return Description(
            bytes_to_ids=[vocab[letters[byte]] for byte in range(256)],
            merges=[_merge(vocab, merge) for merge in told.model.merges],
            words=_spelled(vocab, letters) if told.model.ignore_merges else None,
            kind=kind,
            digits=digits,
            nfc=nfc,
            added=_plain(told.added_tokens, nfc),
        )
    except KeyError as error:
        raise NotByteBpe(f"the vocabulary lacks {error}") from None


def _check_model(model: Model) -> None:
    if model.type != "BPE":
        raise NotByteBpe(f"a model of type {model.type}")
    if model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix or model.byte_fallback:
        raise NotByteBpe("drop-out, affixes or byte fallback")


def _split(told: Mapping[str, Any] | None) -> tuple[int, int]:
    """Which matcher the pre-tokenizer's steps are, and the longest run of numbers."""
    if told is None:
        raise NotByteBpe("no pre-tokenizer")
    steps = told["pretokenizers"] if told.get("type") == "Sequence" else [told]
    *cuts, last = steps or [{}]
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        raise NotByteBpe("not byte-level, or with a blank put in front")
    expressions = tuple(_expression(cut) for cut in cuts)
    if last.get("use_regex", True):
        expressions += (_GPT2,)
    found = SPLITS.get(expressions)
    if found is None:
        raise NotByteBpe("words are split by an unknown expression")
    return found


def _expression(cut: Mapping[str, Any]) -> str:
    if cut.get("type") == "Digits" and cut.get("individual_digits"):
        return r"\p{N}"
    pattern = cut.get("pattern")
    if cut.get("type") != "Split" or cut.get("behavior") != "Isolated" or cut.get("invert"):
        raise NotByteBpe(f"a step {cut.get('type')} of the pre-tokenizer")
    if not isinstance(pattern, dict) or not isinstance(pattern.get("Regex"), str):
        raise NotByteBpe("words are split at a fixed text")
    # Some files have the characters, others their escapes.
    return str(pattern["Regex"]).replace("\r", r"\r").replace("\n", r"\n")


def _is_nfc(told: Mapping[str, Any] | None) -> bool:
    if told is None or (told.get("type") == "Sequence" and not told.get("normalizers")):
        return False
    if told.get("type") != "NFC":
        raise NotByteBpe(f"a normalizer {told.get('type')}")
    return True


def _plain(added: Sequence[AddedToken], normalizes: bool) -> list[AddedToken]:
    for token in added:
        beside = token.single_word or token.lstrip or token.rstrip
        if beside or (token.normalized and normalizes) or not token.content:
            raise NotByteBpe(f"the added token {token.content!r} looks at what stands beside it")
    later = [token.content for token in added if token.normalized]
    first = [token.content for token in added if not token.normalized]
    # Those are looked for in what these leave, which is the same as looking for all at once unless they can overlap.
    if _touch(first, later) or _touch(later, first):
        raise NotByteBpe("added tokens of two kinds can overlap")
    return list(added)


def _touch(texts: Sequence[str], others: Sequence[str]) -> bool:
    """Whether one of ``texts`` contains one of ``others`` or ends as one begins."""
    whole = set(others)
    begun = {text[:end] for text in others for end in range(1, len(text) + 1)}
    return any(
        text[start:] in begun or any(text[start:end] in whole for end in range(start + 1, len(text)))
        for text in texts
        for start in range(len(text))
    )


def _merge(vocab: Mapping[str, int], merge: str | tuple[str, str]) -> tuple[int, int, int]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return vocab[left], vocab[right], vocab[left + right]


def _byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level vocabularies: itself where printable in Latin-1."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = (chr(0x100 + number) for number in range(256))
    return [chr(byte) if byte in shown else next(hidden) for byte in range(256)]


def _spelled(vocab: Mapping[str, int], letters: Sequence[str]) -> dict[bytes, int]:
    """The vocabulary by its bytes, without entries that are not spelled in byte letters."""
    table = str.maketrans({letter: chr(byte) for byte, letter in enumerate(letters)})
    known = set(letters)
    return {text.translate(table).encode("latin-1"): token for text, token in vocab.items() if known.issuperset(text)}
