"""Routers over a fleet in memory, and requests for them."""

from smg.config.settings import RoutingSettings
from smg.routing.fleet_router import FleetRouter
from smg.routing.policies.base import Parts
from smg.routing.policies.per_model import PerModel
from smg.routing.router import Lease, Query
from tests.routing.fleets import PROCESS, FakeFleet


def router_of(fleet: FakeFleet, policy: str, process: int = PROCESS, **settings: object) -> FleetRouter:
    """A router as a request process has it; ``settings`` are those of routing."""
    parts = Parts(RoutingSettings(policy=policy, **settings), fleet.region)  # type: ignore[arg-type]
    return FleetRouter(fleet, fleet.region, process, PerModel(parts))


def prompt(*ids: int, model: str = "qwen") -> Query:
    """A prompt of 16 tokens for each of ``ids``."""
    tokens = [token for token in ids for _ in range(16)]
    return Query(model, tokens, tokens=len(tokens))


def serve(router: FleetRouter, query: Query) -> Lease:
    """Let a request be answered, and end it."""
    lease = router.select(query)
    router.commit(lease)
    router.release(lease, "ok")
    return lease
