"""Where each token of a choice begins in its text (log probabilities are told with their place in the text)."""

import codecs
from collections.abc import Set as AbstractSet

from smg.core.stream import Decoder

_make_utf8 = codecs.getincrementaldecoder("utf-8")


class Positions:
    """Counts characters as a row of the StreamTable decodes them; ``continues`` as in ``core.stream.RowSpec``.

    ``shown`` are special tokens that are text although specials are skipped.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        skip_special_tokens: bool = True,
        shown: AbstractSet[int] = frozenset(),
        continues: bool = True,
    ) -> None:
        self._decoder = decoder
        self._skip = skip_special_tokens
        self._shown = shown
        self._at_start = not continues
        self._utf8 = _make_utf8("replace")
        self._count = 0

    def feed(self, token: int) -> int:
        """Take the next token; returns how many whole characters came before it.

        A token without text begins where the next one does, and so does one inside a character.
        """
        start = self._count
        if self._skip and self._decoder.is_special(token) and token not in self._shown:
            return start
        data = self._decoder.first_bytes(token) if self._at_start else self._decoder.token_bytes(token)
        self._at_start = False
        self._count += len(self._utf8.decode(data))
        return start
