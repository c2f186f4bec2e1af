"""The workers a request may go to: all that serve its model, and of these the ones that can take it now.

Made once per model and snapshot of the fleet. A look at thousands of workers costs no Python per worker; a policy that
goes through them in Python pays for that itself.
"""

from collections.abc import Iterable, Sequence
from typing import overload

from smg._native.placement import Placement
from smg._native.region import Region
from smg.fleet.records import WorkerRecord
from smg.routing import needs
from smg.routing.tiers import Tiers


class Candidates(Sequence[WorkerRecord]):
    """The workers that were ready at the last ``look``, in the order of the fleet's snapshot.

    ``everyone`` are all workers of the model, ready or not; ``placement`` is the native side of the same, ``tiers`` who
    comes before whom.
    """

    def __init__(self, everyone: Sequence[WorkerRecord], region: Region) -> None:
        self.everyone = tuple(everyone)
        self.placement = Placement(region, [worker.slot for worker in everyone])
        self.tiers = Tiers(self.everyone)
        self._lacking: dict[frozenset[str], tuple[str, ...]] = {}
        self._numbers = {worker.id: number for number, worker in enumerate(everyone)}

    def look(self, tried: Iterable[str] = ()) -> bool:
        """See who is ready now, without the workers called ``tried``; False when there is none."""
        return self.placement.survey([self._numbers[id] for id in tried if id in self._numbers]) > 0

    def lacking(self, features: frozenset[str]) -> tuple[str, ...]:
        """Ids of all workers that are known to lack any of ``features``."""
        found = self._lacking.get(features)
        if found is None:
            found = tuple(worker.id for worker in self.everyone if needs.missing(worker, features))
            self._lacking[features] = found
        return found

    def __len__(self) -> int:
        return self.placement.ready

    @overload
    def __getitem__(self, position: int) -> WorkerRecord: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[WorkerRecord]: ...
    def __getitem__(self, position: int | slice) -> WorkerRecord | Sequence[WorkerRecord]:
        if isinstance(position, slice):
            return [self.everyone[number] for number in self.placement.numbers()[position]]
        return self.everyone[self.placement.number(position)]

    def loads(self) -> list[int]:
        """Requests in flight on each, over all processes."""
        return self.placement.requests()

    def waiting_tokens(self) -> list[int]:
        """Tokens each has been sent and has not begun to answer, over all processes."""
        return self.placement.tokens()

    def positions(self) -> dict[str, int]:
        """Position of each by URL."""
        return {self.everyone[number].url: position for position, number in enumerate(self.placement.numbers())}
