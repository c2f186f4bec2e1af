"""Every reason a policy can give is given in some situation here, and told to operators (spec routing 12).

The reasons are read off the source, so that a new one without a situation fails.
"""

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smg._native.region import USAGE
from smg.core.request import Hints
from smg.routing.index import cost
from smg.routing.policies import table
from smg.routing.policies.table import POLICIES
from smg.routing.router import Lease, Query
from tests.routing.fleets import FakeFleet
from tests.routing.routers import prompt, router_of, serve

WORKERS = [f"w{number}" for number in range(4)]
KEYED = Query("qwen", hints=Hints(routing_key="user-7"))

Situation = Callable[[FakeFleet, str], Lease]


def sources() -> dict[str, ast.Module]:
    """The source of each policy's module by the policy's name."""
    classes = [value for value in vars(table).values() if inspect.isclass(value) and hasattr(value, "choose")]
    return {made.name: ast.parse(Path(inspect.getfile(made)).read_text()) for made in classes if made.name in POLICIES}


def reasons_in(policy: str, tree: ast.Module) -> Iterator[str]:
    """What the policy's choices give as their reason: a word, one of two, its own name, or one of the prices'."""
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Choice"):
            continue
        match call.args[1]:
            case ast.Constant(value=str(reason)):
                yield reason
            case ast.IfExp(body=ast.Constant(value=str(one)), orelse=ast.Constant(value=str(other))):
                yield from (one, other)
            case ast.Attribute(value=ast.Name(id="self"), attr="name"):
                yield policy
            case ast.Name(id="reason") if policy == "cache_aware":
                yield from cost.REASONS.values()
            case other:
                raise AssertionError(f"what reasons are these? {ast.unparse(other)}")


def once(query: Query) -> Situation:
    return lambda fleet, policy: serve(router_of(fleet, policy), query)


def twice(query: Query) -> Situation:
    """The second of two."""

    def run(fleet: FakeFleet, policy: str) -> Lease:
        router = router_of(fleet, policy)
        serve(router, query)
        return serve(router, query)

    return run


def owner_is_busy(query: Query) -> Situation:
    """The same again, when whoever had it first has far more requests than the others."""

    def run(fleet: FakeFleet, policy: str) -> Lease:
        router = router_of(fleet, policy, balance_abs_threshold=8)
        fleet.region.inflight_add(2, serve(router, query).worker.slot, 99, 0)
        return serve(router, query)

    return run


def alone(fleet: FakeFleet, policy: str) -> Lease:
    fleet.set_only("w2")
    return serve(router_of(fleet, policy), prompt(1))


def engines_report_usage(fleet: FakeFleet, policy: str) -> Lease:
    for worker in fleet.workers.values():
        fleet.region.worker_set(worker.slot, USAGE, 500_000)
    return serve(router_of(fleet, policy), prompt(1))


SITUATIONS: dict[tuple[str, str], Situation] = {
    ("bucket", "bucket"): once(prompt(1)),
    ("bucket", "spread"): owner_is_busy(prompt(1)),
    ("cache_aware", "load"): once(prompt(1, 2)),
    ("cache_aware", "prefix"): twice(prompt(1, 2)),
    ("cache_aware", "spread"): owner_is_busy(prompt(*range(2000))),
    ("consistent_hashing", "random_fallback"): once(prompt(1)),
    ("consistent_hashing", "routing_key_hit"): once(KEYED),
    ("consistent_hashing", "target_worker_hit"): once(Query("qwen", hints=Hints(target_worker="w1"))),
    ("least_load", "least_load"): once(prompt(1)),
    ("manual", "no_routing_id"): once(prompt(1)),
    ("manual", "occupied_hit"): twice(KEYED),
    ("manual", "vacant"): once(KEYED),
    ("passthrough", "passthrough"): once(prompt(1)),
    ("power_of_two", "only_one"): alone,
    ("power_of_two", "requests"): once(prompt(1)),
    ("power_of_two", "usage"): engines_report_usage,
    ("prefix_hash", "load_balance_walk"): owner_is_busy(prompt(1)),
    ("prefix_hash", "no_tokens"): once(Query("qwen")),
    ("prefix_hash", "ring_hit"): once(prompt(1)),
    ("random", "random"): once(prompt(1)),
    ("round_robin", "round_robin"): once(prompt(1)),
}


@pytest.mark.parametrize(("policy", "reason"), SITUATIONS)
def test_the_reason_is_given_in_its_situation(policy, reason):
    lease = SITUATIONS[policy, reason](FakeFleet({"qwen": WORKERS}), policy)
    assert (lease.policy, lease.reason) == (policy, reason)


def test_each_reason_in_the_code_has_a_situation():
    trees = sources()
    assert set(trees) == set(POLICIES)
    assert {(policy, reason) for policy, tree in trees.items() for reason in reasons_in(policy, tree)} == set(
        SITUATIONS
    )


def test_no_choice_is_made_outside_the_policies():
    files = (Path(inspect.getfile(table)).parents[1]).rglob("*.py")
    makers = {path.stem for path in files if "Choice(" in path.read_text()}
    assert makers - {"base"} == set(POLICIES)


def test_operators_are_told_of_each_reason():
    text = (Path(__file__).parents[2] / "docs" / "routing.md").read_text()
    rows = {
        (policy.strip(" `"), reason.strip(" `"))
        for policy, reason, _ in (line.strip("|").split("|", 2) for line in text.splitlines() if line.count("|") == 4)
    }
    assert set(SITUATIONS) <= rows
