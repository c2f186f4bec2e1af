"""Byte-level BPE from ranks, as tiktoken and tekken files hold it (spec text-pipeline 1.4).

There a pair of neighbours may be merged whenever the joined bytes have a rank, the lowest rank first. The tokenizers
library wants to be told each pair instead, so every way to put a token together becomes a merge, in the order of the
ranks. A word that has a rank as a whole is one token, whatever its merges say.
"""

from collections.abc import Mapping

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from smg.text.formats.loaded import FormatError
from smg.text.token_bytes import byte_letters


def from_ranks(
    ranks: Mapping[bytes, int], specials: Mapping[str, int], pattern: str, first_id: int = 0, nfc: bool = False
) -> Tokenizer:
    """Build the tokenizer; the id of a rank is ``first_id`` plus the rank, ``specials`` have ids of their own.

    ``pattern`` cuts a text into words, in the syntax of the tokenizers library; ``nfc``: which is first brought into
    Unicode normal form C.

    Raises:
        FormatError: the ranks lack a byte, or two tokens share an id.
    """
    if any(bytes((byte,)) not in ranks for byte in range(256)):
        raise FormatError("the vocabulary does not have every byte")
    letters = str.maketrans({chr(byte): letter for byte, letter in enumerate(byte_letters())})
    spelled = {rank: token.decode("latin-1").translate(letters) for token, rank in ranks.items()}
    # A token that spells a special token is never made from text, which is searched for special tokens first.
    vocab = {text: first_id + rank for rank, text in spelled.items()} | dict(specials)
    if len(spelled) != len(ranks) or len(set(vocab.values())) != len(vocab):
        raise FormatError("two tokens of the vocabulary have the same id")
    merges = [
        (spelled[left], spelled[right])
        for _, token in sorted((rank, token) for token, rank in ranks.items())
        for left, right in _ways(token, ranks)
    ]
    out = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    if nfc:
        out.normalizer = normalizers.NFC()
    out.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials])
    return out


def _ways(token: bytes, ranks: Mapping[bytes, int]) -> list[tuple[int, int]]:
    """The pairs that make ``token``, those of low ranks first."""
    found = []
    for cut in range(1, len(token)):
        left = ranks.get(token[:cut])
        if left is not None and (right := ranks.get(token[cut:])) is not None:
            found.append((left, right))
    return sorted(found)
