"""How a snapshot lies in the region: a head, and parts of some records each, every part packed for itself.

A fleet of thousands takes tens of milliseconds to pack or to unpack, which no event loop can spare (DESIGN: nothing
takes more than a few). So control packs only the parts it has changed, and whoever reads unpacks only the parts whose
bytes are others, some of them per turn of its loop. Records that are as they were stay the same objects, so that what
others have found out about a record stays found.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from smg.fleet.records import FleetSnapshot, ModelRecord, TokenizerRecord, WorkerRecord

# Records of one part at most: half a millisecond to unpack.
PART = 64
# Parts that an event loop can do in one step.
AT_ONCE = 2


class _Record(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_Record)


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Up to PART records, packed. ``number`` is the part's name from one snapshot to the next."""

    number: int
    records: bytes


class Published(msgspec.Struct, frozen=True, array_like=True):
    """What is published: the fields of ``FleetSnapshot``, its workers and models in parts, in their order."""

    version: int = 0
    workers: Sequence[Part] = ()
    models: Sequence[Part] = ()
    refused: Sequence[str] = ()
    tokenizers: Sequence[TokenizerRecord] = ()


encode = msgspec.msgpack.Encoder().encode
_head = msgspec.msgpack.Decoder(Published).decode
_workers = msgspec.msgpack.Decoder(list[WorkerRecord]).decode
_models = msgspec.msgpack.Decoder(list[ModelRecord]).decode


def parts_of(records: Sequence[R]) -> list[Part]:
    """Pack ``records``; a part's number is its place."""
    cut = range(0, len(records), PART)
    return [Part(number, encode(records[start : start + PART])) for number, start in enumerate(cut)]


def read(blob: bytes) -> FleetSnapshot:
    """The whole snapshot at once, for who need not hurry. Raises MsgspecError when ``blob`` is none."""
    reading = Reading(blob)
    while reading.left:
        reading.step()
    return reading.snapshot()


class Reading:
    """A published snapshot on its way to becoming records: ``step`` until nothing is ``left``, then ``snapshot``.

    ``before`` is the last one that was read to its end. Raises MsgspecError, here or in ``step``, when ``blob`` is not
    a snapshot.
    """

    def __init__(self, blob: bytes | None = None, before: "Reading | None" = None) -> None:
        head = Published() if blob is None else _head(blob)
        self.version = head.version
        self.shape: int = 0 if before is None else before.shape
        self._refused, self._tokenizers = list(head.refused), list(head.tokenizers)
        workers = None if before is None else before._workers
        models = None if before is None else before._models
        self._workers: _Column[WorkerRecord] = _Column(head.workers, workers, _workers, _alike)
        self._models: _Column[ModelRecord] = _Column(head.models, models, _models)

    @property
    def left(self) -> int:
        """How many parts are still to be unpacked."""
        return self._workers.left + self._models.left

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return self._workers.parts + self._models.parts

    def step(self) -> None:
        """Unpack one part."""
        (self._workers if self._workers.left else self._models).step()

    def snapshot(self) -> FleetSnapshot:
        """What has been read."""
        workers, models = self._workers.finish(), self._models.finish()
        if not (self.shape and self._workers.alike and self._models.alike):
            self.shape = self.version
        return FleetSnapshot(self.version, workers, models, self._refused, self._tokenizers, self.shape)

    def worker(self, id: str) -> WorkerRecord | None:
        """Find a worker, once the snapshot has been made."""
        return self._workers.known.get(id)


def _alike(old: WorkerRecord, new: WorkerRecord) -> bool:
    """Whether only the worker's status is another."""
    return replace(old, status=new.status, reason=new.reason) == new


class _Column(Generic[R]):
    """The records of one kind, by the parts they come in.

    Of a finished column ``known`` has the records by their ids, and ``alike`` tells whether they are those of
    ``before`` in its order, each equal or, if ``same`` is given, the same by that.
    """

    def __init__(
        self,
        parts: Iterable[Part],
        before: "_Column[R] | None",
        decode: Callable[[bytes], list[R]],
        same: Callable[[R, R], bool] = lambda old, new: False,
    ) -> None:
        self._decode = decode
        self._same = same
        self.alike = True
        self._before: Mapping[str, R] = {} if before is None else before.known
        earlier = {} if before is None else before._packed
        self._packed: dict[int, bytes] = {part.number: part.records for part in parts}
        self._todo = [number for number, packed in self._packed.items() if earlier.get(number) != packed]
        read = {} if before is None else before._records
        self._records: dict[int, list[R]] = {number: read[number] for number in self._packed.keys() - set(self._todo)}
        self.known: dict[str, R] = {}

    @property
    def left(self) -> int:
        return len(self._todo)

    @property
    def parts(self) -> int:
        return len(self._packed)

    def step(self) -> None:
        number = self._todo[-1]
        records = self._decode(self._packed[number])
        self._records[number] = [self._kept(record) for record in records]
        self._todo.pop()

    def _kept(self, record: R) -> R:
        old = self._before.get(record.id)
        if old is not None and old == record:
            return old
        self.alike = self.alike and old is not None and self._same(old, record)
        return record

    def finish(self) -> list[R]:
        records = [record for number in self._packed for record in self._records[number]]
        self.known = {record.id: record for record in records}
        self.alike = self.alike and list(self.known) == list(self._before)
        self._before = {}
        return records
