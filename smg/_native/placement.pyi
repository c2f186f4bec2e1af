"""Where a prompt goes: loads, prefixes and the price of every worker, in one pass (spec routing 10.3, 10.4)."""

from collections.abc import Iterable, Sequence

from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg._native.region import Region

# Why a worker was chosen.
SPREAD: int  # loads are far apart: the shortest queue
PREFIX: int  # the cheapest, and it holds a beginning of the prompt
LOAD: int  # the cheapest; nothing held counts

class Placement:
    """The workers of one list, looked at for one prompt after the other. For one thread.

    A *number* is a place in the list of ``slots``; a *position* counts only the workers ``survey`` found ready.
    """

    ready: int

    def __init__(self, region: Region, slots: Sequence[int]) -> None:
        """Raises IndexError for a slot the region does not have."""

    def __len__(self) -> int: ...
    def survey(self, skip: Iterable[int] = ()) -> int:
        """Read status, breaker and load of all workers but those numbered in ``skip``; returns how many are ready."""

    def match(self, index: PrefixIndex, keys: PrefixKeys, primary: bool = True) -> int:
        """Note how far each ready worker holds the prompt, in units of ``keys``.

        Workers whose exact plane is live count by it, if it has the block size of ``keys``; the others by the
        approximate plane, if ``primary``. Returns the block size of a live worker that has not been looked at, else 0:
        call again with keys of that size and ``primary=False``.
        """

    def cheapest(
        self,
        length: float,
        request_price: float,
        threshold: float,
        absolute: int,
        relative: float,
        start: int = 0,
        scale: float = 1.0,
    ) -> tuple[int, int]:
        """Return (position, why) of the worker with the lowest price; among equals the first from ``start`` on.

        price = tokens waiting there + tokens it would have to compute + ``request_price`` per request in flight, in
        tokens. ``length`` is the prompt's, in units of ``scale`` tokens. A held beginning counts if it is more than
        ``threshold`` of the prompt. When the counts of requests are more than ``absolute`` apart and the highest is
        more than ``relative`` times the lowest, the shortest queue wins whatever it holds.

        Raises ValueError when no worker is ready.
        """

    def number(self, position: int) -> int: ...
    def matched(self, position: int) -> int:
        """Units of the prompt the worker holds, by the last ``match``."""

    def numbers(self) -> list[int]: ...
    def requests(self) -> list[int]: ...
    def tokens(self) -> list[int]: ...
