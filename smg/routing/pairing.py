"""The workers of a model by what they do, and which prefill and decode workers may share a request (spec routing 5).

A pair is one unit of work: it is only looked for when a worker of each kind is ready and both fit (field case PD-01).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from msgspec.structs import replace

from smg._native.region import Region
from smg.core.errors import GatewayError
from smg.core.request import Hints
from smg.fleet import roles
from smg.fleet.records import Role, WorkerRecord
from smg.routing import needs, targets
from smg.routing.candidates import Candidates, Place, places
from smg.routing.router import Query

DISAGGREGATION = "disaggregation"
_ENCODES = frozenset({"encode"})


class PartnerFailed(GatewayError):
    """An attempt failed because of ``worker``, which prepared the answer (``leg``), and not because of who gives it.

    ``cause`` is its own error; towards the client this one says the same.
    """

    def __init__(self, cause: GatewayError, worker: str, leg: Role = "prefill") -> None:
        super().__init__(
            cause.code,
            cause.message,
            param=cause.param,
            status=cause.status,
            retry_after=cause.retry_after,
            detail=f"{leg} engine: {cause.detail or cause.message}",
            worker_fault=cause.worker_fault,
        )
        self.cause = cause
        self.worker = worker
        self.leg = leg


class Pools:
    """All workers of one model, by role. Made once per snapshot of the fleet."""

    def __init__(self, workers: Sequence[WorkerRecord], region: Region, policy: str = "") -> None:
        by_role: dict[Role, list[WorkerRecord]] = {}
        for worker in workers:
            by_role.setdefault(worker.role, []).append(worker)

        def of(role: Role) -> Candidates:
            # Of a pair each leg has a policy of its own.
            return Candidates(by_role.get(role, ()), region, policy if role == "regular" else "")

        self.everyone = tuple(workers)
        self.regular, self.prefill, self.decode, self.encode = of("regular"), of("prefill"), of("decode"), of("encode")
        self._groups: dict[tuple[str, ...], list[str]] = {}
        for worker in self.prefill.workers:
            self._groups.setdefault(roles.facts(worker), []).append(worker.id)
        self._encoding = {worker.runtime for worker in self.encode.workers if not needs.missing(worker, _ENCODES)}
        self._unfit: dict[tuple[str, ...], tuple[str, ...]] = {
            facts: tuple(worker.id for worker in self.decode.workers if not roles.fits(facts, roles.facts(worker)))
            for facts in self._groups
        }

    @property
    def legs(self) -> tuple[Candidates, ...]:
        """Those of each role."""
        return self.regular, self.prefill, self.decode, self.encode

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The places of everyone."""
        return tuple(places(self.everyone))

    def look_regular(self, query: Query) -> bool:
        """See who could take ``query`` alone."""
        return bool(self.regular.everyone) and look(self.regular, query)

    def look_prefill(self, query: Query) -> bool:
        """See which prefill workers are ready and have ready partners."""
        if not self._groups:
            return False
        query = for_leg(query, "prefill")
        alone: list[str] = []
        for facts, ids in self._groups.items():
            if not self.look_decode(query, facts) or not self._encodable(query, facts):
                alone += ids
        return len(alone) < len(self.prefill.workers) and look(self.prefill, query, alone)

    def look_decode(self, query: Query, prefill: tuple[str, ...]) -> bool:
        """See which decode workers are ready and fit a prefill worker with these facts."""
        return bool(self.decode.everyone) and look(self.decode, for_leg(query, "decode"), self._unfit[prefill])

    def partners(self) -> Iterator[tuple[list[WorkerRecord], list[WorkerRecord]]]:
        """Prefill workers that are alike, and the decode workers that fit them; ready or not."""
        for facts, ids in self._groups.items():
            fitting = [worker for worker in self.decode.workers if worker.id not in self._unfit[facts]]
            yield [worker for worker in self.prefill.workers if worker.id in ids], fitting

    def encodes(self, query: Query, prefill: tuple[str, ...]) -> bool:
        """Whether the media of ``query`` are encoded apart for a prefill worker with these facts: some engine is there
        for it, ready or not. Prefill engines of such a fleet need not be able to encode by themselves."""
        return bool(query.media) and prefill[0] in self._encoding

    def look_encode(self, query: Query, prefill: tuple[str, ...]) -> bool:
        """See which encode workers are ready that work for a prefill worker with these facts."""
        others = [worker.id for worker in self.encode.workers if worker.runtime != prefill[0]]
        return look(self.encode, for_item(query, ""), others)

    def _encodable(self, query: Query, prefill: tuple[str, ...]) -> bool:
        return not self.encodes(query, prefill) or self.look_encode(query, prefill)

    def shares(self) -> tuple[float, float]:
        """How much of the work the workers seen last should get: the regular ones, and the pairs.

        By number, and the less the busier they are.
        """
        return _share(self.regular), _share(self.prefill, self.decode)


def look(candidates: Candidates, query: Query, without: Iterable[str] = ()) -> bool:
    """See who is ready and has what ``query`` needs; those who have all it wishes, its rank included, come first."""
    skip, rank = [*query.tried, *without], query.hints.dp_rank
    if query.wishes or rank is not None:
        wanting = [*skip, *candidates.lacking(query.needs | query.wishes)]
        if _look_in_tiers(candidates, wanting, rank):
            return True
    return _look_in_tiers(candidates, [*skip, *candidates.lacking(query.needs)])


def _look_in_tiers(candidates: Candidates, without: Sequence[str], rank: int | None = None) -> bool:
    """See who is ready in the best tier that has room; when all are full, in the best that has anybody."""
    tiers = candidates.tiers
    if len(tiers.others) <= 1:
        return candidates.look(without, rank)
    full: list[Sequence[str]] = []
    for others in tiers.others:
        skipped = [*without, *others]
        if candidates.look(skipped, rank):
            if not tiers.full(candidates, candidates.loads()):
                return True
            full.append(skipped)
    return bool(full) and candidates.look(full[0], rank)


def for_leg(query: Query, leg: Role) -> Query:
    """The query for one worker of a pair. A decode worker is sent the prompt's cache, so no tokens wait there."""
    if query.leg == leg:
        return query
    tokens = query.tokens if leg == "prefill" else 0
    return replace(query, leg=leg, tokens=tokens, needs=query.needs | {DISAGGREGATION})


def for_item(query: Query, digest: str) -> Query:
    """The query for the encode worker of one media item, which its content leads to the same worker every time."""
    hints = Hints(routing_key=digest)
    return replace(query, ids=(), text="", leg="encode", tokens=0, hints=hints, needs=_ENCODES, wishes=frozenset())


def aimed(query: Query, candidates: Candidates, pools: Pools) -> Query:
    """``query`` for one worker of a pair: a worker that the client has named counts where it is one of these.

    A number is one in the model's whole fleet. What names nobody at all is left, for the policy to refuse.
    """
    target = query.hints.target_worker
    if target is None:
        return query
    meant = targets.numbers(target, pools.places)
    if not meant or (targets.numbers(target, candidates.everyone) and not target.isdecimal()):
        return query
    place = pools.places[meant[0]]
    here = target.isdecimal() and place.name in {other.name for other in candidates.everyone}
    return replace(query, hints=replace(query.hints, target_worker=place.name if here else None))


def refusal(query: Query, pools: Pools, expected: Sequence[WorkerRecord], model: str) -> GatewayError:
    """Why no worker of ``model`` takes ``query``; ``expected`` are those that are ready or may soon be.

    400 when none of them ever could, else 503 with what is missing.
    """
    regular = [worker for worker in expected if worker.role == "regular"]
    pair = [[worker for worker in expected if worker.role == role] for role in ("prefill", "decode")]
    alone = any(not needs.missing(worker, query.needs) for worker in regular)
    wants = query.needs | {DISAGGREGATION}
    together = all(any(not needs.missing(worker, wants) for worker in leg) for leg in pair)
    if not alone and not together:
        try:
            needs.check(query, regular or [worker for leg in pair for worker in leg])
            if not regular and all(pair):
                for leg in pair:
                    needs.check(replace(query, needs=frozenset({DISAGGREGATION})), leg)
        except GatewayError as error:
            if error.param == DISAGGREGATION:
                return _unsupported(pair)
            return error
    if query.media and pools.look_prefill(replace(query, media=())):
        return GatewayError("no_available_workers", f"no encode engine is available for the model '{model}'")
    return GatewayError("no_available_workers", _missing(pools, query.tried, model))


def _unsupported(pair: Sequence[Sequence[WorkerRecord]]) -> GatewayError:
    names = sorted({w.runtime for leg in pair for w in leg if needs.missing(w, frozenset({DISAGGREGATION}))})
    return GatewayError(
        "runtime_pd_not_supported",
        f"engines of the {' and '.join(names)} contract cannot be split in prefill and decode",
        param="model",
    )


def _missing(pools: Pools, tried: frozenset[str], model: str) -> str:
    """What is not there now. Of engines that are down or passed over nobody can say whether they would fit."""
    if pools.regular.everyone or not (pools.prefill.everyone or pools.decode.everyone):
        return f"no worker is available for the model '{model}'"
    for name, pool in (("prefill", pools.prefill), ("decode", pools.decode)):
        if not pool.everyone:
            return f"there is no {name} engine for the model '{model}'"
    legs = (("prefill", pools.prefill), ("decode", pools.decode))
    if away := [f"no {name} engine" for name, pool in legs if not pool.look(tried)]:
        return f"{' and '.join(away)} is available for the model '{model}'"
    return f"no prefill engine and decode engine that fit each other are available for the model '{model}'"


def _share(*pools: Candidates) -> float:
    ready = sum(len(pool) for pool in pools)
    busy = sum(sum(pool.loads()) for pool in pools)
    return ready * ready / (ready + busy) if ready else 0.0
