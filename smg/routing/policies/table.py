"""The policies by name, as ``--policy`` takes them."""

from collections.abc import Callable

from smg.routing.policies.base import Parts, Policy
from smg.routing.policies.bucket import Bucket
from smg.routing.policies.cache_aware import CacheAware
from smg.routing.policies.consistent_hashing import ConsistentHashing
from smg.routing.policies.least_load import LeastLoad
from smg.routing.policies.manual import Manual
from smg.routing.policies.passthrough import Passthrough
from smg.routing.policies.power_of_two import PowerOfTwo
from smg.routing.policies.prefix_hash import PrefixHash
from smg.routing.policies.random import Random
from smg.routing.policies.round_robin import RoundRobin

POLICIES: dict[str, Callable[[Parts], Policy]] = {
    Bucket.name: lambda parts: Bucket(parts.settings, parts.region),
    CacheAware.name: lambda parts: CacheAware(parts.settings, parts.index, parts.region),
    ConsistentHashing.name: lambda parts: ConsistentHashing(),
    LeastLoad.name: lambda parts: LeastLoad(parts.settings, parts.region),
    Manual.name: lambda parts: Manual(parts.settings, parts.index),
    Passthrough.name: lambda parts: Passthrough(),
    PowerOfTwo.name: lambda parts: PowerOfTwo(parts.region),
    PrefixHash.name: lambda parts: PrefixHash(parts.settings, parts.region),
    Random.name: lambda parts: Random(),
    RoundRobin.name: lambda parts: RoundRobin(parts.region),
}
