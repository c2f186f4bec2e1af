"""The socket under a streamed answer, for native code that writes HTTP chunks itself (DESIGN 6, client side).

Only where that is what the transport would do too: no TLS, chunked framing, and nothing in the transport's buffer that
would have to go first.
"""

import asyncio
import contextlib
import os
from typing import cast

from sanic import Request


def chunked(request: Request) -> bool:
    """Whether the body of ``request``'s answer, whose head has been sent, goes out in chunks."""
    stream = request.stream
    if stream is None:
        return False
    return bool(getattr(stream, "response_func", None) == getattr(stream, "http1_response_chunked", request))


class DirectSocket:
    """A descriptor of the socket of ``request``'s connection.

    It is a duplicate: when the transport closes its own at any moment, the number must not come to mean another client.
    """

    def __init__(self, request: Request) -> None:
        self._transport = cast("asyncio.Transport", request.transport)
        self._descriptor = -1
        sock = self._transport.get_extra_info("socket")
        if chunked(request) and sock is not None and self._transport.get_extra_info("sslcontext") is None:
            # Without a descriptor everything goes through the transport, as under TLS.
            with contextlib.suppress(OSError):
                self._descriptor = os.dup(sock.fileno())

    def descriptor(self) -> int:
        """The descriptor, or -1 while only the transport may write."""
        if self._descriptor < 0 or self._transport.is_closing() or self._transport.get_write_buffer_size():
            return -1
        return self._descriptor

    def write(self, data: bytes) -> None:
        """Send bytes that are framed already through the transport."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Close the descriptor; the transport keeps its own. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
