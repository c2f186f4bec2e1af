"""A trace of conversations over engines with bounded KV caches: what each policy makes of it (spec routing 12).

Time is counted in requests, not in seconds, so the outcome is the same on every machine.
"""

import random
from collections import OrderedDict, deque

import pytest

from smg._native.prefix_keys import PrefixKeys
from smg.config.settings import RoutingSettings
from smg.routing.fleet_router import FleetRouter
from smg.routing.policies.base import Parts
from smg.routing.policies.table import POLICIES
from smg.routing.router import Query
from tests.routing.fleets import PROCESS, FakeFleet

ENGINES = 8
BLOCK = 16
CACHE_BLOCKS = 1500
RUNNING = 48  # requests at a time
SESSIONS = 200
TURNS = 6


class Engine:
    """An engine's KV cache: blocks by prefix hash, least recently used out first."""

    def __init__(self) -> None:
        self.cache: OrderedDict[int, None] = OrderedDict()
        self.prefilled = 0
        self.hits = 0

    def run(self, ids: list[int]) -> None:
        keys = PrefixKeys.of_tokens(ids, BLOCK).tolist()
        held = next((at for at, key in enumerate(keys) if key not in self.cache), len(keys))
        self.hits += held * BLOCK
        self.prefilled += len(ids) - held * BLOCK
        for key in reversed(keys):
            self.cache[key] = None
            self.cache.move_to_end(key)
        while len(self.cache) > CACHE_BLOCKS:
            self.cache.popitem(last=False)


def trace() -> list[list[int]]:
    """Prompts in order of arrival: sessions that share one of three system prompts and grow turn by turn."""
    draw = random.Random(5)
    systems = [[draw.randrange(50_000) for _ in range(320)] for _ in range(3)]
    sessions = [list(draw.choice(systems)) for _ in range(SESSIONS)]
    turns, out = [number for number in range(SESSIONS) for _ in range(TURNS)], []
    draw.shuffle(turns)
    for number in turns:
        sessions[number] += [draw.randrange(50_000) for _ in range(draw.randrange(40, 200))]
        out.append(list(sessions[number]))
    return out


def replay(policy: str) -> tuple[float, float, float]:
    """(part of all prompt tokens found in a cache, busiest engine's prefill by the mean, most running at once)."""
    fleet = FakeFleet({"m": [f"w{number}" for number in range(ENGINES)]})
    router = FleetRouter(fleet, fleet.region, PROCESS, POLICIES[policy](Parts(RoutingSettings(), fleet.region)))
    engines = {worker: Engine() for worker in fleet.workers}
    running: deque = deque()
    most = 0
    for ids in trace():
        if len(running) == RUNNING:
            router.release(running.popleft(), "ok")
        lease = router.select(Query("m", ids, tokens=len(ids)))
        engines[lease.worker.id].run(ids)
        router.commit(lease)
        running.append(lease)
        most = max(most, max(requests for requests, _ in fleet.inflight().values()))
    hits, prefilled = (sum(getattr(engine, name) for engine in engines.values()) for name in ("hits", "prefilled"))
    busiest = max(engine.prefilled for engine in engines.values())
    return hits / (hits + prefilled), busiest * ENGINES / prefilled, most


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[float, float, float]]:
    return {policy: replay(policy) for policy in ("cache_aware", "round_robin", "least_load", "prefix_hash")}


def test_cache_aware_finds_most_in_the_caches(outcomes):
    ours = outcomes["cache_aware"][0]
    assert ours > 0.6
    assert all(ours > other[0] + 0.1 for policy, other in outcomes.items() if policy != "cache_aware"), outcomes


def test_and_keeps_the_engines_evenly_busy(outcomes):
    _, prefill, most = outcomes["cache_aware"]
    assert prefill < 1.25
    assert most <= 2 * RUNNING / ENGINES
