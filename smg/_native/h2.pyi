"""The client's side of one HTTP/2 connection that carries server-streaming gRPC calls (RFC 9113)."""

from smg._native.grpc_stream import Stream
from smg._native.h2_streams import Streams

class Connection(Streams):
    """One connection. ``window`` and ``connection_window`` are in bytes; ``first_id`` is the first stream's id (odd).

    Raises ValueError for impossible windows. Not thread-safe: it belongs to one event loop.
    """

    def __init__(self, window: int = 256 << 10, connection_window: int = 16 << 20, first_id: int = 1) -> None: ...
    @property
    def pongs(self) -> int:
        """How many pings the peer has answered."""

    @property
    def steady(self) -> bool:
        """Neither failed, nor told to go, nor out of stream ids: all that may be new belongs to streams."""

    @property
    def goaway(self) -> tuple[int, int, str] | None:
        """(last stream id, HTTP/2 error code, debug text) once the peer has said GOAWAY, else None."""

    @property
    def unread(self) -> bytes:
        """The beginning of what has come and is no whole frame, or none that may come."""

    def receive(self, fd: int) -> int:
        """Read once from a non-blocking socket and work through it.

        Returns the number of bytes, 0 at the peer's end of file, -1 when nothing was there. Raises OSError.
        """

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Work through bytes that somebody else has read."""

    def take_headers(self) -> list[tuple[Stream | None, bytes, bool]]:
        """Return the header blocks that have arrived, in order: (stream or None, block, end of stream).

        None: the stream is over, but the block must be decompressed all the same.
        """
