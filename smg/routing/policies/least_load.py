"""Policy ``least_load``: the worker with the shortest expected wait (spec routing 1.3).

    seconds = (tokens queued in the engine + tokens sent and not begun to be answered) / throughput + λ · k / (1 - k)

k is the engine's KV usage. Requests are counted in all processes and until they end, so nothing has to be guessed about
the time since the last report; where nothing is reported or queued, the fewest requests in flight decide, then turns.
"""

from smg._native.region import QUEUED_TOKENS, USAGE, Region
from smg.config.settings import RoutingSettings
from smg.routing.candidates import Candidates
from smg.routing.policies.base import Choice
from smg.routing.policies.rotation import Rotation
from smg.routing.router import Query

_FULL = 0.999
_MILLION = 1e6


class LeastLoad:
    """The lowest score; among equals the fewest requests, then the next in turn."""

    name = "least_load"

    def __init__(self, settings: RoutingSettings, region: Region) -> None:
        self._pressure = settings.least_load_kv_pressure_weight
        self._throughput = settings.least_load_default_throughput
        self._region = region
        self._rotation = Rotation(region)

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        count = len(candidates)
        start = self._rotation.next(query) % count
        loads, tokens = candidates.loads(), candidates.waiting_tokens()

        def rank(at: int) -> tuple[float, int, int]:
            return self._seconds(candidates[at].slot, tokens[at]), loads[at], (at - start) % count

        return Choice(min(range(count), key=rank), self.name)

    def _seconds(self, slot: int, tokens: int) -> float:
        usage = min(max(self._region.worker_get(slot, USAGE) / _MILLION, 0.0), _FULL)
        queued = self._region.worker_get(slot, QUEUED_TOKENS) + tokens
        return queued / self._throughput + self._pressure * usage / (1 - usage)
