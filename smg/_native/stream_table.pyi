"""The native StreamTable: ids to text, special tokens, stops, and the way out (``core.stream.StreamTable``)."""

from collections.abc import Callable, Sequence
from typing import Any

from smg._native.counter import Counter

class StreamTable:
    """Rows of running choices. Not thread-safe: it belongs to one event loop.

    ``output`` makes the taps' argument: ``core.stream.RowOutput`` or what takes the same six arguments in order. All
    methods raise KeyError for a handle that is not open. Specs, decoders, taps, sinks, templates and logprobs are those
    of ``core.stream`` and ``core.batch``, which lie above this package and can only be Any here.
    """

    def __init__(self, output: Callable[..., Any]) -> None: ...
    def open(self, spec: Any, decoder: Any, tap: Any) -> int:
        """Open a tapped row and return its handle.

        Give a ``VocabTable`` as ``decoder``: of another decoder one is built at its first row (``VocabTable.of``).
        Raises ValueError for an empty stop string, or more of them than ``StopAutomaton`` takes.
        """

    def direct(self, row: int, sink: Any, template: Any, counter: Counter, wait: Any = None) -> None:
        """Send the row's further text straight to ``sink``; the tap then only hears of the stop and the end.

        One event for each token that yields text, one write per feed. With ``wait`` only up to what a parser waits for:
        then the tap gets the rest, and the row is tapped again. Raises ValueError for a template whose pieces and holes
        do not fit, or with a hole of an unknown name.
        """

    def feed(self, row: int, ids: Sequence[int], logprobs: Any = None) -> bool:
        """Feed new ids; False when the row has stopped (now or before) and the engine should be told.

        Ids after a stop are discarded and not counted. Raises ValueError, before anything is taken, for an id that no
        vocabulary can have (beyond 31 bits).
        """

    def feed_many(self, batch: Sequence[tuple[int, Sequence[int]]]) -> list[int]:
        """Feed ``(row, ids)`` pairs, as one read of an upstream brought them; return the rows that have stopped.

        A row that a tap closes on the way is passed over. Raises as ``feed``; KeyError before anything is fed.
        """

    def finish(self, row: int) -> None:
        """End of the engine's stream: flush held text and undecoded bytes (as U+FFFD) to the sink or the tap."""

    def ids(self, row: int) -> list[int]:
        """All ids the row has taken (resume, budgets, storage)."""

    def text(self, row: int) -> str:
        """All text the row has emitted, without seals."""

    def close(self, row: int) -> None:
        """Forget the row."""

    def __len__(self) -> int:
        """Number of open rows."""
