"""A prompt as a chain of hashes, one per block: equal keys mean equal beginnings (spec routing 2.3, 10.3)."""

from collections.abc import Sequence

SEED: int  # of every hash here
LADDER: tuple[tuple[int, int], ...]  # (blocks, bytes each) of a text; the last row goes on for ever

class PrefixKeys:
    """Keys of one prompt's whole blocks, root first. What does not fill a block at the end has no key."""

    count: int  # blocks
    units: int  # length of the whole prompt: tokens, or bytes of UTF-8
    block: int  # tokens of a block; 0 for text, whose blocks follow LADDER

    @staticmethod
    def of_tokens(ids: Sequence[int], block: int = 16, salt: int = 0, adapter: int = 0) -> PrefixKeys:
        """Keys of token ids. ``adapter`` (0: none) enters the first block's hash. An array of unsigned ints is read as
        it is, without the GIL.

        Raises ValueError for something that is no token id (32 bits) and for an empty block.
        """

    @staticmethod
    def of_text(text: str | bytes, salt: int = 0) -> PrefixKeys:
        """Keys of a text; bytes are taken as UTF-8. Raises UnicodeEncodeError for unpaired surrogates, TypeError."""

    def covered(self, depth: int) -> int:
        """Units the first ``depth`` blocks cover. Raises IndexError."""

    def tolist(self) -> list[int]: ...
    def __len__(self) -> int:
        """Number of blocks."""

def block_hash(tokens: Sequence[int]) -> int:
    """Hash of a block by itself (spec routing 2.3, content hash)."""

def chain_hash(before: int, content: int) -> int:
    """Hash of a prefix from the prefix before it and the hash of its last block (2.3, prefix hash)."""
