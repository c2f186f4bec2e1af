"""Adding to metric cells whose places are known: what every request does a dozen times."""

from typing import Any

class Adding:
    """Cells of ``cells`` (the region, or what has its ``cell_add``), one for each set of label values.

    ``places`` has the numbers of the cells that are known; ``find(labels)``, which who inherits defines, makes another
    known and returns its number.
    """

    def __init__(self, cells: Any, process: int) -> None: ...
    cells: Any
    process: int
    @property
    def places(self) -> dict[tuple[str, ...], int]: ...
    def inc(self, *labels: str, amount: int = 1) -> None:
        """Add ``amount`` to the cell of these label values."""

class Observing:
    """Cells that count by size: for each set of label values one of each bucket that was hit, and one of the sum.

    ``limits`` are the upper limits of the buckets in millionths, ascending; one bucket more takes what is beyond.
    ``places`` has the cells of all buckets in order, then that of the sum, None where there is none yet; ``find(labels,
    bucket)``, which who inherits defines, makes the sum's and that bucket's known and returns the list.
    """

    def __init__(self, cells: Any, process: int, limits: tuple[int, ...]) -> None: ...
    cells: Any
    process: int
    @property
    def places(self) -> dict[tuple[str, ...], list[int | None]]: ...
    @property
    def limits(self) -> tuple[int, ...]: ...
    def observe(self, seconds: float, *labels: str) -> None:
        """Count ``seconds`` in its bucket, and add it to the sum in whole millionths; what is negative counts as 0."""
