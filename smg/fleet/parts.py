"""WorkerParts: control's workers in the parts they are published in, each packed again only when it has changed."""

from collections.abc import Iterator
from itertools import pairwise

from smg.fleet.published import PART, Part, encode
from smg.fleet.records import WorkerRecord

# Neighbours that have no more workers together than this become one part.
_FEW = PART // 2


class _Slice:
    """Workers that are packed together; ``packed`` is None while that is behind."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.workers: dict[str, WorkerRecord] = {}
        self.packed: bytes | None = None


class WorkerParts:
    """Workers by id, in the order they joined. Whoever changes a record says so by ``touch``."""

    def __init__(self) -> None:
        self._slices: list[_Slice] = []
        self._of: dict[str, _Slice] = {}
        self._behind: set[_Slice] = set()
        self._numbers = 0

    def __iter__(self) -> Iterator[WorkerRecord]:
        return (worker for part in self._slices for worker in part.workers.values())

    @property
    def behind(self) -> int:
        """How many parts are to be packed."""
        return len(self._behind)

    def put(self, worker: WorkerRecord) -> None:
        """Have one worker more, behind all others."""
        if not self._slices or len(self._slices[-1].workers) >= PART:
            self._slices.append(_Slice(self._numbers))
            self._numbers += 1
        part = self._of[worker.id] = self._slices[-1]
        part.workers[worker.id] = worker
        self._mark(part)

    def touch(self, id: str) -> None:
        """The record of this worker is no longer what it was."""
        self._mark(self._of[id])

    def drop(self, id: str) -> None:
        """Have one worker less."""
        part = self._of.pop(id)
        del part.workers[id]
        self._mark(part)
        place = self._slices.index(part)
        for left, right in pairwise(self._slices[max(place - 1, 0) : place + 2]):
            if len(left.workers) + len(right.workers) <= _FEW:
                self._join(left, right)
                return
        if not part.workers:
            self._forget(part)

    def pack_one(self) -> None:
        """Pack one part that is behind."""
        part = next(iter(self._behind))
        part.packed = encode(list(part.workers.values()))
        self._behind.discard(part)

    def packed(self) -> list[Part]:
        """All parts, those that were behind packed first."""
        while self._behind:
            self.pack_one()
        return [Part(part.number, part.packed) for part in self._slices if part.packed is not None]

    def _join(self, part: _Slice, after: _Slice) -> None:
        for worker in after.workers.values():
            part.workers[worker.id] = worker
            self._of[worker.id] = part
        self._mark(part)
        self._forget(after)

    def _forget(self, part: _Slice) -> None:
        self._slices.remove(part)
        self._behind.discard(part)

    def _mark(self, part: _Slice) -> None:
        part.packed = None
        self._behind.add(part)
