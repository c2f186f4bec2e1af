"""FastEncoder: the native encoder behind a tokenizer, the library for what it is not sure of."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from smg._native.bpe import ByteBpe
from smg._native.stop_scan import StopAutomaton
from smg.text.bpe.description import NotByteBpe
from smg.text.bpe.normal import Tangled, nfc

# (text, why the native encoder leaves it to the library) -> ids
HandOver: TypeAlias = Callable[[str, str], list[int]]

# Flags of characters (word_split.pxd).
_NFC_CHECK, _FOLDS, _RECENT = 0x10, 0x20, 0x40


class FastEncoder:
    """Encodes as the tokenizers library does without special tokens around the text (``prove`` makes sure of it).

    ``added`` are texts and ids of the added tokens; one with
    the id -1 leaves no id behind. ``normalised``: texts are brought into normal form C first. May be used from several
    threads at once.
    """

    def __init__(
        self,
        native: ByteBpe,
        added: Sequence[tuple[str, int]],
        normalised: bool,
        hand_over: HandOver,
    ) -> None:
        """Raises NotByteBpe for more added tokens than can be looked for."""
        self.native = native
        self.added = added
        self.normalised = normalised
        self._hand_over = hand_over
        texts = [text.encode() for text, _ in added]
        self._lengths = [len(text) for text in texts]
        self._ids = [token for _, token in added]
        try:
            self._matcher = StopAutomaton(texts)
        except ValueError:
            raise NotByteBpe("more added tokens than can be looked for") from None

    def encode(self, text: str) -> Sequence[int]:
        """Encode ``text``; added tokens spelled in it are recognised. Many ids are an array (``id_list``).

        Raises what handing over raises, and UnicodeEncodeError for unpaired surrogates, which no tokenizer takes.
        """
        data = text.encode()
        found = self._matcher.leftmost(data)
        marks = [(end - self._lengths[number], end, self._ids[number]) for end, number in found]
        if not text.isascii():
            flags = self.native.flags(data)
            if flags & _FOLDS and "'\u017f" in text:
                return self._hand_over(text, "a long s behind an apostrophe")
            if self.normalised and flags & _RECENT:
                return self._hand_over(
                    text, "characters of which the library and Python may know different normal forms"
                )
            if self.normalised and flags & _NFC_CHECK:
                try:
                    data, marks = self._normal(data, marks)
                except Tangled:
                    return self._hand_over(text, "a long run of combining characters")
        return self.native.encode(data, marks)

    def _normal(self, data: bytes, marks: list[tuple[int, int, int]]) -> tuple[bytes, list[tuple[int, int, int]]]:
        """Normalise what lies between added tokens, which the library cuts out before it normalises."""
        out = bytearray()
        moved: list[tuple[int, int, int]] = []
        at = 0
        for start, end, token in marks:
            out += self._nfc(data[at:start])
            moved.append((len(out), len(out) + end - start, token))
            out += data[start:end]
            at = end
        out += self._nfc(data[at:])
        return bytes(out), moved

    def _nfc(self, data: bytes) -> bytes:
        if not self.native.flags(data) & _NFC_CHECK:
            return data
        return nfc(data.decode(), self._settled).encode()

    def _settled(self, char: str) -> bool:
        return not self.native.flags(char.encode()) & _NFC_CHECK
