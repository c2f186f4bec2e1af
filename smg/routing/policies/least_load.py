"""Policy ``least_load``: the worker with the shortest expected wait (spec routing 1.3).

    seconds = (tokens queued in the engine + tokens sent and not begun to be answered) / throughput + λ · k / (1 - k)

k is the engine's KV usage. Requests are counted in all processes and until they end, so nothing has to be guessed about
the time since the last report; where nothing is reported or queued, the fewest requests in flight decide, then turns.
What an engine reports as its throughput is what it happens to generate, not what it could: the configured one counts.
"""

from smg.config.settings import RoutingSettings
from smg.routing.candidates import Candidates
from smg.routing.policies.base import Choice, Sequences
from smg.routing.policies.rotation import Rotation
from smg.routing.router import Query


class LeastLoad:
    """The lowest score; among equals the fewest requests, then the next in turn."""

    name = "least_load"

    def __init__(self, settings: RoutingSettings, sequences: Sequences) -> None:
        self._pressure = settings.least_load_kv_pressure_weight
        self._throughput = settings.least_load_default_throughput
        self._rotation = Rotation(sequences)

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        start = self._rotation.next(query)
        return Choice(candidates.placement.quickest(self._throughput, self._pressure, start), self.name)
