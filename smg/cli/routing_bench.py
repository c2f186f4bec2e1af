"""``smg-bench routing``: policies against each other on simulated replicas (spec routing 12).

Eight replicas with KV caches that forget the least recently used blocks, in virtual time: the outcome depends on the
policies alone, and is the same on every machine. A replica computes prompts one after the other and generates for all
that are running at once, which slows both down. The router is the gateway's own, with its counts and its index; beside
its policies stands the rule by which the reference gateway's ``cache_aware`` chooses (spec routing 1.4).
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import count
from statistics import median

import msgspec

from smg._native.prefix_keys import PrefixKeys
from smg._native.region import STATUS, Region
from smg.cli.routing_traces import REQUESTS, TRACES, Arrival, Trace
from smg.config.settings import RoutingSettings
from smg.core.request import Hints
from smg.fleet import loads
from smg.fleet.breaker import CircuitBreakers
from smg.fleet.records import STATUS_CODES, STATUS_NAMES, FleetSnapshot, ModelRecord, Status, WorkerRecord
from smg.routing.candidates import Candidates
from smg.routing.fleet_router import FleetRouter
from smg.routing.policies.base import Choice, Parts, Policy
from smg.routing.policies.per_model import PerModel
from smg.routing.router import Lease, Query

MODEL = "m"
REPLICAS = 8
BLOCK = 16
# Of one replica: about what an 8B model does on one large GPU.
CACHE_TOKENS = 160_000
PREFILL_TOKENS_PER_S = 9_000.0
PREFILL_BASE_S = 0.012
TOKEN_S = 0.014
# Running requests at which prefill and generation take twice as long.
CROWD = 48
POLICIES = ("cache_aware", "reference", "round_robin", "least_load", "power_of_two", "prefix_hash")
# Those the parameters of ``cache_aware`` were chosen by are 0 to 4.
SEEDS = (101, 102, 103, 104, 105)
# Ratios by name: to which policy, of which figure, and which of several is the worst.
COMPARED: dict[str, tuple[str, str, Callable[[Sequence[float]], float]]] = {
    "hit_tokens_by_reference": ("reference", "hit_token_ratio", min),
    "ttft_mean_by_reference": ("reference", "ttft_mean_ms", max),
    "ttft_p99_by_reference": ("reference", "ttft_p99_ms", max),
    "ttft_mean_by_round_robin": ("round_robin", "ttft_mean_ms", max),
    "ttft_p99_by_round_robin": ("round_robin", "ttft_p99_ms", max),
}

Figures = dict[str, dict[str, dict[str, float]]]


class ReferenceRule:
    """The reference's choice: the one tenant of the deepest known block if more than 0.3 of the prompt match, else the
    fewest requests; the shortest queue when counts are 64 and 1.5 times apart. Learns when it chooses.
    """

    name = "reference"
    THRESHOLD, ABSOLUTE, RELATIVE = 0.3, 64, 1.5

    def __init__(self) -> None:
        self._tenants: dict[int, str] = {}
        self._processed: dict[str, int] = {}

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        loads = candidates.placement.requests()
        names = [place.id for place in candidates]
        least = min(range(len(names)), key=lambda at: (loads[at], self._processed.get(names[at], 0), at))
        keys = PrefixKeys.of_tokens(query.ids, BLOCK).tolist()
        position = least
        if max(loads) - min(loads) <= self.ABSOLUTE or max(loads) <= self.RELATIVE * min(loads):
            matched = next((at for at, key in enumerate(keys) if key not in self._tenants), len(keys))
            if matched * BLOCK > self.THRESHOLD * len(query.ids):
                tenant = self._tenants[keys[matched - 1]]
                if tenant not in names:
                    return Choice(0, "tenant_down")
                position = names.index(tenant)
        for key in keys:
            # A node keeps answering with the tenant it had first.
            self._tenants.setdefault(key, names[position])
        self._processed[names[position]] = self._processed.get(names[position], 0) + 1
        return Choice(position, self.name)


class Fleet:
    """Eight workers in a region of their own; what the router reads of a FleetView."""

    def __init__(self) -> None:
        self.region = Region.create(processes=3, workers=REPLICAS, index_bytes=64 << 20)
        self.workers = [
            WorkerRecord(f"w{slot}", slot, f"grpc://w{slot}", models=[MODEL], status="ready")
            for slot in range(REPLICAS)
        ]
        self._snapshot = FleetSnapshot(1, self.workers, [ModelRecord(MODEL)])
        assert self.region.index is not None
        for slot in range(REPLICAS):
            self.region.index.admit(slot)
            self.set(slot, "ready")

    def set(self, slot: int, status: Status) -> None:
        self.region.worker_set(slot, STATUS, STATUS_CODES[status])

    def snapshot(self) -> FleetSnapshot:
        return self._snapshot

    def status(self, worker: WorkerRecord) -> Status | None:
        return STATUS_NAMES.get(self.region.worker_get(worker.slot, STATUS))


class Request:
    """One request on its way; ``epoch`` is that of the replica when it was sent there."""

    __slots__ = ("arrival", "epoch", "keys", "lease", "ttft")

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.keys = PrefixKeys.of_tokens(arrival.ids, BLOCK).tolist()
        self.lease: Lease | None = None
        self.epoch = 0
        self.ttft = 0.0


class Replica:
    """An engine: one prompt at a time, all running answers at once, and a bounded cache of blocks."""

    def __init__(self) -> None:
        self.cache: OrderedDict[int, None] = OrderedDict()
        self.waiting: deque[Request] = deque()
        self.busy = False
        self.running = 0
        self.computed = 0
        self.epoch = 0

    def begin(self, request: Request) -> tuple[float, int]:
        """Seconds the prompt takes, and tokens of it that were cached."""
        held = next((at for at, key in enumerate(request.keys) if key not in self.cache), len(request.keys))
        # The last token is always computed: it gives the first one of the answer.
        cached = min(held * BLOCK, len(request.arrival.ids) - 1)
        fresh = len(request.arrival.ids) - cached
        self.computed += fresh
        return (PREFILL_BASE_S + fresh / PREFILL_TOKENS_PER_S) * self.crowding(), cached

    def keep(self, request: Request) -> None:
        """Have the prompt's blocks in the cache, leaves to be forgotten before their ancestors."""
        for key in reversed(request.keys):
            self.cache[key] = None
            self.cache.move_to_end(key)
        while len(self.cache) * BLOCK > CACHE_TOKENS:
            self.cache.popitem(last=False)

    def crowding(self) -> float:
        return 1 + self.running / CROWD

    def lose(self) -> list[Request]:
        """Forget everything; returns what had not been answered."""
        lost, self.waiting = list(self.waiting), deque()
        self.cache.clear()
        self.busy = False
        self.running = 0
        self.epoch += 1
        return lost


class Simulation:
    """One policy on one trace."""

    def __init__(self, trace: Trace, policy: str) -> None:
        self._trace = trace
        self._fleet = Fleet()
        chosen: Policy = (
            ReferenceRule()
            if policy == "reference"
            else PerModel(Parts(msgspec.structs.replace(RoutingSettings(), policy=policy), self._fleet.region))
        )
        # Breakers go by the real clock; here a lost replica is not ready until it is back.
        breakers = CircuitBreakers(self._fleet.region, RoutingSettings(disable_circuit_breaker=True))
        self._router = FleetRouter(self._fleet, self._fleet.region, 1, chosen, breakers)
        self._replicas = [Replica() for _ in range(REPLICAS)]
        self._prefilling: dict[int, Request] = {}
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()
        self._done: list[Request] = []
        self._cached = 0

    def run(self) -> dict[str, float]:
        """Play the trace to its end."""
        for arrival in self._trace.arrivals:
            self._at(arrival.at, lambda now, arrival=arrival: self._send(Request(arrival), now))  # type: ignore[misc]
        fades = int(self._trace.arrivals[-1].at / loads.COMPUTED_HALF_LIFE)
        for number in range(1, fades + 1):
            # As control does.
            self._at(number * loads.COMPUTED_HALF_LIFE, lambda _: loads.fade(self._fleet.region, self._fleet.workers))
        for loss in self._trace.losses:
            self._at(loss.since, lambda now, slot=loss.replica: self._lose(slot, now))  # type: ignore[misc]
            self._at(loss.until, lambda _, slot=loss.replica: self._fleet.set(slot, "ready"))  # type: ignore[misc]
        while self._events:
            now, _, happen = heapq.heappop(self._events)
            happen(now)
        self._fleet.region.close()
        return self._figures()

    def _at(self, when: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), happen))

    def _send(self, request: Request, now: float) -> None:
        arrival = request.arrival
        hints = Hints(routing_key=arrival.key or None)
        request.lease = self._router.select(Query(MODEL, arrival.ids, hints=hints, tokens=len(arrival.ids)))
        slot = request.lease.worker.slot
        request.epoch = self._replicas[slot].epoch
        self._replicas[slot].waiting.append(request)
        self._next(slot, now)

    def _next(self, slot: int, now: float) -> None:
        replica = self._replicas[slot]
        if replica.busy or not replica.waiting:
            return
        request = replica.waiting.popleft()
        replica.busy = True
        self._prefilling[slot] = request
        took, cached = replica.begin(request)
        self._at(now + took, lambda now: self._first(request, slot, cached, now))

    def _first(self, request: Request, slot: int, cached: int, now: float) -> None:
        """The prompt is computed and the first token out."""
        replica, lease = self._replicas[slot], request.lease
        if request.epoch != replica.epoch or lease is None:
            return
        replica.busy = False
        del self._prefilling[slot]
        replica.keep(request)
        self._router.commit(lease)
        request.ttft = now - request.arrival.at
        self._cached += cached
        self._done.append(request)
        replica.running += 1
        took = request.arrival.output * TOKEN_S * replica.crowding()
        self._at(now + took, lambda _: self._end(request, slot))
        self._next(slot, now)

    def _end(self, request: Request, slot: int) -> None:
        replica = self._replicas[slot]
        if request.epoch == replica.epoch:
            replica.running -= 1
        if request.lease is not None:
            self._router.release(request.lease, "ok")

    def _lose(self, slot: int, now: float) -> None:
        """The replica is gone: what it had not begun to answer is sent elsewhere, what it held is forgotten."""
        self._fleet.set(slot, "not_ready")
        replica = self._replicas[slot]
        lost = replica.lose()
        if slot in self._prefilling:
            lost.insert(0, self._prefilling.pop(slot))
        index = self._fleet.region.index
        if index is not None:
            # As control does when an engine's events tell of a restart.
            index.renew(slot, 0)
        for request in lost:
            if request.lease is not None:
                self._router.release(request.lease, "worker_failed")
            self._send(request, now)

    def _figures(self) -> dict[str, float]:
        ttfts = sorted(request.ttft for request in self._done)
        prompts = sum(len(request.arrival.ids) for request in self._done)
        computed = [replica.computed for replica in self._replicas]
        return {
            "hit_token_ratio": round(self._cached / prompts, 4),
            "ttft_mean_ms": round(sum(ttfts) / len(ttfts) * 1000, 1),
            "ttft_p99_ms": round(ttfts[min(len(ttfts) - 1, len(ttfts) * 99 // 100)] * 1000, 1),
            "max_over_mean_load": round(max(computed) * len(computed) / sum(computed), 3),
        }


def run(
    requests: int = REQUESTS,
    policies: Sequence[str] = POLICIES,
    traces: Sequence[str] = (),
    seeds: Sequence[int] = SEEDS,
) -> Figures:
    """Figures by trace and policy, medians over ``seeds``; ``requests`` is the length of a trace.

    Where the policies it is compared with are there too, a policy's figures also have the ratios to theirs, seed by
    seed: the median and, as ``NAME_worst``, the one that is worst for it.
    """
    out: Figures = {}
    for name in traces or TRACES:
        rounds = []
        for seed in seeds:
            trace = TRACES[name](requests, seed)
            rounds.append({policy: Simulation(trace, policy).run() for policy in policies})
        out[name] = {policy: _medians(rounds, policy) | _ratios(rounds, policy) for policy in policies}
    return out


def _medians(rounds: Sequence[dict[str, dict[str, float]]], policy: str) -> dict[str, float]:
    return {name: round(median(each[policy][name] for each in rounds), 4) for name in rounds[0][policy]}


def _ratios(rounds: Sequence[dict[str, dict[str, float]]], policy: str) -> dict[str, float]:
    """Of ``policy`` to those it is measured by; ``COMPARED`` says in what."""
    out: dict[str, float] = {}
    for name, (other, figure, worst) in COMPARED.items():
        if other in rounds[0]:
            values = [each[policy][figure] / max(each[other][figure], 1e-9) for each in rounds]
            out |= {name: round(median(values), 4), f"{name}_worst": round(worst(values), 4)}
    return out
