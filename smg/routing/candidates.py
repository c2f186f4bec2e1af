"""The places a request may go to: all that serve its model, and of these the ones that can take it now.

Made once per model and snapshot of the fleet. A look at thousands of workers costs no Python per worker; a policy that
goes through them in Python pays for that itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import overload

import msgspec

from smg._native.placement import Placement
from smg._native.region import Region
from smg.engines.http.address import split_rank
from smg.fleet.records import WorkerRecord
from smg.routing import needs
from smg.routing.tiers import Tiers


class Place(msgspec.Struct, frozen=True):
    """A worker, or one data-parallel rank of it: what has a queue and a KV cache of its own (field case RO-05).

    ``slot`` is its own in the region; ``name`` is what hash rings know it by, and never an address. ``rank`` is the
    engine's global number, None for a worker that is routed to as a whole.
    """

    worker: WorkerRecord
    slot: int
    name: str
    rank: int | None = None

    @property
    def id(self) -> str:
        return self.worker.id

    @property
    def url(self) -> str:
        return self.worker.url


def places(workers: Iterable[WorkerRecord]) -> list[Place]:
    """The places of ``workers``: a worker with ranks is as many as it has ranks."""
    out = []
    for worker in workers:
        if worker.ranks:
            base = split_rank(worker.url)[0]
            out += [Place(worker, rank.slot, f"{base}@{rank.number}", rank.number) for rank in worker.ranks]
        else:
            out.append(Place(worker, worker.slot, worker.url))
    return out


class Candidates(Sequence[Place]):
    """The places that were ready at the last ``look``, in the order of the fleet's snapshot.

    ``everyone`` are all places of the model, ready or not; ``placement`` is the native side of the same, ``tiers`` who
    comes before whom. ``policy`` is the name of the policy the model asks for itself, or empty.
    """

    def __init__(self, workers: Sequence[WorkerRecord], region: Region, policy: str = "") -> None:
        self.everyone = tuple(places(workers))
        self.policy = policy
        self.placement = Placement(region, [place.slot for place in self.everyone])
        self.tiers = Tiers(workers)
        self._workers = workers
        self._lacking: dict[frozenset[str], tuple[str, ...]] = {}

    # Of thousands of workers these take a while, and most requests need neither.

    @cached_property
    def _names(self) -> dict[str, int]:
        return {place.name: number for number, place in enumerate(self.everyone)}

    @cached_property
    def _numbers(self) -> dict[str, list[int]]:
        numbers: dict[str, list[int]] = {}
        for number, place in enumerate(self.everyone):
            numbers.setdefault(place.id, []).append(number)
        return numbers

    def look(self, tried: Iterable[str] = (), rank: int | None = None) -> bool:
        """See who is ready now, without the workers called ``tried``; False when there is none.

        ``rank`` leaves out all other ranks, of workers that are routed to by rank.
        """
        skip = [number for id in tried for number in self._numbers.get(id, ())]
        if rank is not None:
            skip += [number for number, place in enumerate(self.everyone) if place.rank not in (None, rank)]
        return self.placement.survey(skip) > 0

    def lacking(self, features: frozenset[str]) -> tuple[str, ...]:
        """Ids of all workers that are known to lack any of ``features``."""
        found = self._lacking.get(features)
        if found is None:
            found = tuple(worker.id for worker in self._workers if needs.missing(worker, features))
            self._lacking[features] = found
        return found

    def prepare(self, before: "Candidates") -> Iterator[None]:
        """Work out in steps what has been asked of ``before``, which were the candidates until now."""
        for features in before._lacking:
            self.lacking(features)
            yield
        for name in ("_names", "_numbers"):
            if name in before.__dict__:
                getattr(self, name)
                yield

    @property
    def workers(self) -> Sequence[WorkerRecord]:
        """The workers of ``everyone``, each once."""
        return self._workers

    def __len__(self) -> int:
        return self.placement.ready

    @overload
    def __getitem__(self, position: int) -> Place: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Place]: ...
    def __getitem__(self, position: int | slice) -> Place | Sequence[Place]:
        if isinstance(position, slice):
            return [self.everyone[number] for number in self.placement.numbers()[position]]
        return self.everyone[self.placement.number(position)]

    def loads(self) -> list[int]:
        """Requests in flight on each, over all processes."""
        return self.placement.requests()

    def position(self, name: str) -> int:
        """Position of the place called ``name``, -1 when it is not ready."""
        number = self._names.get(name)
        return -1 if number is None else self.placement.position(number)

    def siblings(self, position: int) -> list[int]:
        """Positions of all ready ranks of the worker at ``position``, itself included."""
        found = [self.placement.position(number) for number in self._numbers[self[position].id]]
        return [at for at in found if at >= 0]
