"""Policy ``bucket``: prompts of like length share workers, so that short ones do not wait behind long ones (spec
routing 1.8).

The places in order of their names take ranges of prompt length. Until enough is known the ranges divide ``_FIRST``
tokens evenly; then they follow what came in the last period with requests, so that each place gets the same number of
tokens.
Every process learns from its own share of the requests, which is a fair sample; loads are those of all processes.
"""

from bisect import bisect_right
from collections import deque

from smg.config.settings import RoutingSettings
from smg.core import clock
from smg.routing.candidates import Candidates, Place
from smg.routing.index.cost import BYTES_PER_TOKEN
from smg.routing.policies.base import Choice, Sequences
from smg.routing.policies.rotation import Rotation
from smg.routing.router import Query

# Tokens; 4,096 characters.
_FIRST = 4096 // BYTES_PER_TOKEN
# Cuts stay as long as the share of a place has not changed by this factor.
_STEADY = 2.0
# Prompts that are remembered at most in a period.
_MOST = 1 << 16


class Bucket:
    """One model's ranges. A place that is down hands its range to the next one that is ready."""

    name = "bucket"

    def __init__(self, settings: RoutingSettings, sequences: Sequences) -> None:
        self._absolute = settings.balance_abs_threshold
        self._relative = settings.balance_rel_threshold
        self._period = settings.bucket_adjust_interval_secs
        self._rotation = Rotation(sequences)
        self._everyone: tuple[Place, ...] = ()
        self._names: list[str] = []
        self.cuts: list[float] = []  # tokens; place i takes lengths from cuts[i - 1] on, below cuts[i]
        self._share = 0.0  # tokens per place the cuts were made for
        self._recent: deque[tuple[float, int]] = deque(maxlen=_MOST)
        self._adjust_at = 0.0

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        now = clock.monotonic()
        if candidates.everyone is not self._everyone:
            self._follow(candidates)
        length = query.tokens or len(query.ids) or len(query.text) // BYTES_PER_TOKEN
        if now >= self._adjust_at:
            self._adjust(now)
        self._recent.append((now, length))
        placement = candidates.placement
        idlest = placement.idlest(self._rotation.next(query))
        position = self._of(length, candidates)
        least, load = placement.load(idlest), placement.load(position)
        if load - least > self._absolute and load > self._relative * least:
            return Choice(idlest, "spread")
        return Choice(position, "bucket")

    def _of(self, length: int, candidates: Candidates) -> int:
        start = bisect_right(self.cuts, length)
        names = self._names[start:] + self._names[:start]
        return next(position for name in names if (position := candidates.position(name)) >= 0)

    def _follow(self, candidates: Candidates) -> None:
        """Keep the ranges when the same places come again with a new snapshot; else divide what is known anew."""
        self._everyone = candidates.everyone
        names = sorted(place.name for place in candidates.everyone)
        if names == self._names:
            return
        self._names = names
        self._share = 0.0
        self._adjust_at = 0.0
        self.cuts = [_FIRST * number / len(names) for number in range(1, len(names))]

    def _adjust(self, now: float) -> None:
        self._adjust_at = now + self._period
        # Measured from the last request, however long ago it was: bursts are learned from as well.
        while self._recent and self._recent[0][0] < self._recent[-1][0] - self._period:
            self._recent.popleft()
        lengths = sorted(length for _, length in self._recent)
        share = sum(lengths) / len(self._names)
        if len(lengths) < 2 * len(self._names) or self._share / _STEADY <= share <= self._share * _STEADY:
            return
        self._share = share
        self.cuts = []
        running = 0
        for length in lengths:
            if running >= share * (len(self.cuts) + 1) and len(self.cuts) < len(self._names) - 1:
                self.cuts.append(length)
            running += length
        self.cuts += [float("inf")] * (len(self._names) - 1 - len(self.cuts))
