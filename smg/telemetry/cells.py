"""Where metric values live: cells in the shared region, one row per process, or plain memory in tests and tools.

Values are integers: counters and histogram buckets count, sums and gauges of seconds are in microseconds.
"""

from itertools import islice
from typing import Protocol

COUNTER = 1
GAUGE = 2


class Cells(Protocol):
    def find_series(self, key: bytes, kind: int) -> int: ...

    def cell_add(self, process: int, index: int, amount: int) -> None: ...

    def cell_set(self, process: int, index: int, value: int) -> None: ...

    def series_end(self) -> int: ...

    def read_series(self, start: int = 0, count: int = -1) -> list[tuple[bytes, int, int]]: ...


class LocalCells:
    """Cells of a single process, behind the same interface as the region's."""

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}
        self._kinds: list[int] = []
        self._values: list[int] = []

    def find_series(self, key: bytes, kind: int) -> int:
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self._kinds)
            self._kinds.append(kind)
            self._values.append(0)
        return index

    def cell_add(self, process: int, index: int, amount: int) -> None:
        if index >= 0:
            self._values[index] += amount

    def cell_set(self, process: int, index: int, value: int) -> None:
        if index >= 0:
            self._values[index] = value

    def series_end(self) -> int:
        return len(self._kinds)

    def read_series(self, start: int = 0, count: int = -1) -> list[tuple[bytes, int, int]]:
        end = len(self._kinds) if count < 0 else start + count
        return [(key, self._kinds[i], self._values[i]) for key, i in islice(self._index.items(), start, end)]
