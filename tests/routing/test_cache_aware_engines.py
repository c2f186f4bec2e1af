"""Policy cache_aware and what engines say: adapters, KV usage, blocks of another size."""

import pytest

from smg._native.event_blocks import EventBlocks
from smg._native.region import USAGE
from smg.routing.index.facade import adapter_of, salt_of
from smg.routing.router import Query
from tests.routing.fleets import FakeFleet
from tests.routing.routers import prompt, router_of, serve

WORKERS = ["w0", "w1", "w2", "w3"]


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({"qwen": WORKERS})


def adapted(name: str, *ids: int) -> Query:
    plain = prompt(*ids)
    return Query("qwen", plain.ids, tokens=plain.tokens, adapter=name)


def test_lora_prefix_isolation_of_what_was_sent(fleet):
    router = router_of(fleet, "cache_aware")
    holder = serve(router, adapted("sql", 1, 2, 3, 4)).worker.id
    assert serve(router, prompt(1, 2, 3, 4)).matched == 0
    assert serve(router, adapted("law", 1, 2, 3, 4)).matched == 0
    again = serve(router, adapted("sql", 1, 2, 3, 4, 5))
    assert (again.worker.id, again.matched) == (holder, 64)


def test_lora_prefix_isolation_of_what_engines_tell(fleet):
    told = EventBlocks(fleet.index, 2, 16, salt_of("qwen", "tokens"))
    told.store([1, 2], prompt(1, 2).ids, None, adapter_of("sql"))
    fleet.index.set_live(2, 16)
    router = router_of(fleet, "cache_aware")
    assert serve(router, adapted("sql", 1, 2)).worker.id == "w2"
    fleet.set_only("w2")
    assert serve(router, prompt(1, 2)).matched == 0


def test_lora_prefix_isolation_of_text(fleet):
    router = router_of(fleet, "cache_aware")
    text = "Answer in the words of the statute. " * 20
    serve(router, Query("qwen", text=text, tokens=100, adapter="law"))
    assert serve(router, Query("qwen", text=text, tokens=100)).matched == 0
    assert serve(router, Query("qwen", text=text, tokens=100, adapter="law")).matched > 0


@pytest.mark.parametrize(
    ("setting", "usage"),
    [({"overload_token_usage_threshold": 0.9}, 0.95), ({"balance_token_usage_threshold": 0.3}, 0.8)],
)
def test_kv_threshold_a_full_cache_is_passed_over(fleet, setting, usage):
    router = router_of(fleet, "cache_aware", **setting)
    holder = serve(router, prompt(1, 2, 3, 4)).worker
    for worker in fleet.workers.values():
        fleet.region.worker_set(worker.slot, USAGE, 400_000)
    assert serve(router, prompt(1, 2, 3, 4)).worker.id == holder.id
    fleet.region.worker_set(holder.slot, USAGE, round(usage * 1e6))
    lease = serve(router, prompt(1, 2, 3, 4))
    assert (lease.worker.id != holder.id, lease.reason) == (True, "spread")
