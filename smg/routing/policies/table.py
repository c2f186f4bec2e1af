"""The policies by name, as ``--policy`` takes them."""

from collections.abc import Callable

from smg.routing.policies.base import Policy, Sequences
from smg.routing.policies.random import Random
from smg.routing.policies.round_robin import RoundRobin

POLICIES: dict[str, Callable[[Sequences], Policy]] = {
    Random.name: Random,
    RoundRobin.name: RoundRobin,
}
