"""A table from texts to ids in one piece of memory, which workers can share and files can hold."""

class WordTable:
    """Ids by text.

    ``buffer`` is kept and read in place. Raises ValueError when it does not hold such a table.
    """

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None: ...
    @staticmethod
    def pack(ids: dict[bytes, int]) -> bytes:
        """Lay out a table of ``ids``, which are 0 to 2**31 - 1. Raises ValueError for 2 GiB of texts or more."""

    def get(self, text: bytes) -> int:
        """Return the id of ``text``, -1 when it has none."""
