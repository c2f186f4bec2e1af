"""Rows of the StreamTable fed by a gRPC stream, without Python per token (DESIGN 6, the pump)."""

from collections.abc import Sequence

from smg._native.inlet import Inlet, Tokens
from smg._native.stream_table import StreamTable

class StreamFeed:
    """Feeds the messages of ``inlet`` to ``rows`` of ``table``, row ``i`` being the choice ``i`` of the generation.

    It starts paused. All rows are tapped, or all are direct and have one sink. A sink that has ``lend`` and
    ``give_back`` (``core.stream.SocketSink``) has its socket written to; another one gets ``write`` in ``pause``. All
    rows with numbered events of one response belong to one feed, since several would send them out of order.
    Raises KeyError for a row that is not open, ValueError for rows that cannot be fed (see ``feeds``).
    """

    def __init__(self, inlet: Inlet, table: StreamTable, rows: Sequence[int]) -> None: ...
    @staticmethod
    def feeds(table: StreamTable, rows: Sequence[int]) -> bool:
        """Tell whether these rows can be fed natively: tapped or direct alike, one sink."""

    @property
    def last_sent(self) -> float:
        """When the sink's socket last took bytes, in seconds of the monotonic clock; 0.0: never."""

    def resume(self) -> bool:
        """Feed what comes from now on. False: the sink has a socket that is still busy, try ``arm`` later.

        Raises MemoryError as ``pause``.
        """

    def arm(self) -> None:
        """Borrow the sink's socket, if the feed runs and there is nothing to be sent before."""

    def disarm(self) -> None:
        """Give the socket back: somebody else wants to write to it. What comes next waits for ``pause``."""

    def pause(self) -> list[Tokens]:
        """Stop feeding: messages are collected again. Hand on what is left, and tell the taps what they have to know.

        Returns one Tokens without ids, with the engine's counts, for each choice that was fed since ``resume``. Raises
        MemoryError when a row could not be fed.
        """
