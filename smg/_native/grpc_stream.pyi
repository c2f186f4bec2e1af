"""One server-streaming gRPC call on an HTTP/2 connection (spec engine-contract 4.4)."""

from smg._native.inlet import Inlet
from smg._native.wire import Layout

class Stream(Inlet):
    """One call, to be opened with ``Connection.open``.

    ``owner`` is for the caller. ``headers`` is the HPACK block, ``body`` the request message. ``layout`` is as for
    ``Inlet``, ``largest`` the size limit of a message in bytes. Raises ValueError for a request of 4 GiB or more.
    """

    def __init__(
        self, owner: object, headers: bytes, body: bytes, layout: Layout | None, largest: int = 256 << 20
    ) -> None: ...
    @property
    def owner(self) -> object: ...
    @property
    def headers(self) -> bytes: ...
    @property
    def id(self) -> int:
        """The HTTP/2 stream id; 0 before it is opened."""

    @property
    def messages(self) -> int:
        """Whole messages that have arrived so far."""

    @property
    def closed(self) -> bool:
        """The peer will send nothing more on this stream."""

    @property
    def cut(self) -> bool:
        """A message has begun and not ended."""

    @property
    def error(self) -> tuple[int, str] | None:
        """(HTTP/2 error code, why) once the stream was reset, else None."""
