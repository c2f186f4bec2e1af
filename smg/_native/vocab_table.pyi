"""One tokenizer's id to bytes table in one piece of memory, which workers can share and files can hold."""

from typing import Protocol

class _Decoder(Protocol):
    """``core.stream.Decoder``."""

    @property
    def size(self) -> int: ...
    def token_bytes(self, token: int) -> bytes: ...
    def first_bytes(self, token: int) -> bytes: ...
    def is_special(self, token: int) -> bool: ...

class VocabTable:
    """Id to bytes of one tokenizer; also a ``core.stream.Decoder``.

    ``buffer`` is kept and read in place. Raises ValueError when it does not hold such a table.
    """

    size: int

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None: ...
    @staticmethod
    def of(decoder: _Decoder) -> VocabTable:
        """Return the table of ``decoder``: itself, the one built before, or a new one.

        Building asks the decoder for every id, which takes a second for the largest vocabularies: do it where a
        tokenizer is loaded, not on an event loop.
        """

    def token_bytes(self, token: int) -> bytes:
        """Bytes of ``token`` inside a text; empty for ids outside the vocabulary."""

    def first_bytes(self, token: int) -> bytes:
        """Bytes of ``token`` at the very start of a text."""

    def is_special(self, token: int) -> bool:
        """Tell whether ``token`` is a special token; False for ids outside the vocabulary."""

    def tobytes(self) -> bytes:
        """Copy of the whole table in its layout, to be written to a file or shared memory."""
