"""How deep into a prompt each worker holds it (spec routing 10.3, option A)."""

from collections.abc import Sequence

from smg._native.prefix_keys import PrefixKeys
from smg._native.prefix_tickets import PrefixTickets

class PrefixDepths(PrefixTickets):
    """Asking. Depths count blocks from the root."""

    def text_keys(self, text: str | bytes, salt: int = 0) -> PrefixKeys:
        """As ``PrefixKeys.of_text``, and begins to fetch what a match will look at."""

    def token_keys(self, ids: Sequence[int], block: int = 16, salt: int = 0, adapter: int = 0) -> PrefixKeys:
        """As ``PrefixKeys.of_tokens``, and begins to fetch what a match will look at."""

    def depth(self, keys: PrefixKeys, slots: Sequence[int], plane: int = 0) -> list[int]:
        """Depth each slot holds in a plane (0: approximate, 1: exact), whatever is live.

        ``placement.Placement`` asks without lists, and the right plane for each worker. Raises IndexError, ValueError.
        """
