"""The sending half of an HTTP/2 connection."""

class Output:
    """What a connection sends, and whether it has failed."""

    @property
    def failure(self) -> tuple[int, str] | None:
        """(HTTP/2 error code, why) once the connection is of no more use, else None."""

    @property
    def pending(self) -> bool:
        """There is something to send, and the peer's windows allow it."""

    def send(self, fd: int) -> bool:
        """Send on a non-blocking socket. Returns True when nothing is left to be sent now. Raises OSError."""

    def output(self) -> bytes:
        """Return what is to be sent now, in pieces of some 64 KiB; empty when there is nothing."""

    def ping(self) -> None:
        """Ask for a sign of life; ``pongs`` counts the answers."""

    def shutdown(self, code: int = 0) -> None:
        """Tell the peer that we go, and the HTTP/2 error code that says why; the connection is over then."""
