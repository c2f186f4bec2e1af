"""A routing decision in fleets of 50, 500 and 4,000 engines: chosen, counted, released (field case PF-02)."""

from functools import cache

import pytest

from tests.routing.fleets import FakeFleet
from tests.routing.routers import prompt, router_of, serve


@cache
def fleet(count: int) -> FakeFleet:
    return FakeFleet({"qwen": [f"w{number}" for number in range(count)]}, slots=4096)


@pytest.mark.parametrize("count", [50, 500, 4000])
@pytest.mark.parametrize(
    "policy", ["random", "round_robin", "power_of_two", "least_load", "cache_aware", "prefix_hash"]
)
def test_select(benchmark, policy, count):
    router = router_of(fleet(count), policy)
    query = prompt(*range(128))
    serve(router, query)
    benchmark(lambda: router.release(router.select(query), "ok"))
