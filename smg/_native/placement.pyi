"""Where a prompt goes: loads, prefixes and the price of every worker, in one pass (spec routing 10.3, 10.4)."""

from collections.abc import Iterable, Sequence

from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg._native.region import Region

# Why a worker was chosen.
SPREAD: int  # a cheaper one is overloaded
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
        """See which workers are ready and admitted by their breakers, without those numbered in ``skip``.

        Returns how many there are. Loads are read later.
        """

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
        turnover: float = 0.0,
    ) -> tuple[int, int]:
        """Return (position, why) of the worker with the lowest price; among equals the first from ``start`` on.

        price = tokens waiting there + units it would have to compute × (``scale`` + ``turnover`` × what it has computed
        lately by the mean of all, 20,000 tokens added to both) + ``request_price`` per request in flight, in tokens.
        ``length`` is the prompt's, in units. A held beginning counts if it is more than ``threshold`` of the prompt. A
        worker that has more than ``absolute`` requests more than the least loaded one, and more than ``relative`` times
        as many, is passed over whatever it holds; so is what ``avoid_full`` has found.

        Raises ValueError when no worker is ready.
        """

    def avoid_full(self, spread: float, ceiling: float) -> int:
        """Keep ``cheapest`` away from full KV caches until the next ``survey``; returns how many workers that are.

        A cache is full whose reported usage is above ``ceiling``, or more than ``spread`` above the lowest (both are
        parts of 1; 1 is never exceeded). When all are, none is.
        """

    def quickest(self, throughput: float, pressure: float, start: int = 0) -> int:
        """Position of the shortest expected wait (spec routing 1.3), in seconds:

        (tokens queued in the engine + tokens waiting there) / ``throughput`` + ``pressure`` · k / (1 - k), k being the
        reported KV usage. Among equals the fewest requests, then the first from ``start`` on. Raises ValueError when no
        worker is ready; so does ``idlest``.
        """

    def idlest(self, start: int = 0) -> int:
        """Position of the fewest requests in flight; among equals the first from ``start`` on."""

    def number(self, position: int) -> int: ...
    def position(self, number: int) -> int:
        """Position of the worker with that number, -1 when it is not ready."""

    def holder(self) -> int:
        """First position that holds anything of the prompt, by the last ``match``; -1: nobody does."""

    def load(self, position: int) -> int:
        """Requests in flight of one worker."""

    def backlog(self) -> float:
        """Tokens that wait on a ready worker, on average."""

    def total(self) -> int:
        """Requests in flight of all ready workers."""
    def matched(self, position: int) -> int:
        """Units of the prompt the worker holds, by the last ``match``."""

    def numbers(self) -> list[int]: ...
    def requests(self) -> list[int]: ...
    def tokens(self) -> list[int]: ...
