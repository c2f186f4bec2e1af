"""The streams of an HTTP/2 connection."""

from smg._native.grpc_stream import Stream
from smg._native.h2_output import Output
from smg._native.inlet import Tokens

class Streams(Output):
    """The streams of one connection. ``first_id`` is the first one's id (odd), ``window`` each one's, in bytes."""

    def __init__(self, window: int = 256 << 10, first_id: int = 1) -> None: ...
    @property
    def settled(self) -> bool:
        """The peer's SETTINGS are here."""

    @property
    def streams(self) -> list[Stream]:
        """The streams on the connection, oldest first."""

    @property
    def queued(self) -> list[Stream]:
        """The streams that wait for a place, in order."""

    @property
    def max_streams(self) -> int:
        """How many streams the peer allows at once."""

    @property
    def exhausted(self) -> bool:
        """No further stream can be opened: the ids are used up."""

    def open(self, stream: Stream) -> None:
        """Open ``stream`` as soon as the peer has a place for it, in the order of these calls.

        Raises ValueError for a stream that has been opened or dropped.
        """

    def take(self, stream: Stream) -> list[bytes | Tokens]:
        """Return what has arrived on ``stream``: bytes and Tokens, in order.

        What the call before returned counts as read from now on: its share of the stream's window goes back.
        """

    def drop(self, stream: Stream, code: int = 8) -> None:
        """Let go of ``stream`` and its owner; reset it with ``code`` unless both sides have finished it. Idempotent.

        What has been collected can still be taken.
        """

    def take_ready(self) -> list[Stream]:
        """Return the streams that have got messages, or an end other than by headers, since the last call."""
