"""What ``--engine-transport grpcio`` uses: grpc.aio, except for requests that are too large for it.

grpc.aio copies a request on the event loop and holds the GIL meanwhile: 14 to 24 ms for the pixels of a 12-megapixel
image, 2 ms for the ids of a prompt of 128,000 tokens (case PF-01). Our own connection sends a request from where it
lies.
"""

from collections.abc import Mapping

from smg._native.inlet import Tokens
from smg._native.wire import Layout
from smg.engines.transport.base import MESSAGE_LIMIT, TokenCall
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.grpcio_call import GrpcioCall
from smg.engines.transport.h2 import LARGE, H2Transport
from smg.engines.transport.proxy import proxied


class GrpcioTokenTransport(GrpcioTransport):
    """A ``TokenTransport`` over grpc.aio, whose calls can feed rows of the native table.

    Large requests go over a connection of ours once one stands; the first of them makes it be opened. So an engine that
    only grpcio can reach is sent everything by grpcio, and so is one behind an HTTP proxy or TLS, which our connection
    would encrypt on the event loop. Arguments are those of ``GrpcioTransport``.
    """

    def __init__(self, url: str, root_certificates: bytes | None = None, message_limit: int = MESSAGE_LIMIT) -> None:
        super().__init__(url, root_certificates, message_limit)
        direct = not (self._address.tls or proxied(self._address))
        self._own = H2Transport(url, message_limit=message_limit) if direct else None

    async def unary(
        self, path: str, message: bytes, timeout: float | None, metadata: Mapping[str, str] | None = None
    ) -> bytes:
        if (own := self._for(message)) is not None:
            return await own.sole(path, message, timeout, metadata)
        return await super().unary(path, message, timeout, metadata)

    def generate(
        self,
        path: str,
        message: bytes,
        timeout: float | None,
        metadata: Mapping[str, str] | None = None,
        *,
        layout: Layout,
    ) -> TokenCall:
        if (own := self._for(message)) is not None:
            return own.generate(path, message, timeout, metadata, layout=layout)
        call: GrpcioCall[bytes | Tokens] = GrpcioCall(*self._open(path, message, timeout, metadata), layout)
        return call

    async def close(self) -> None:
        """Close all connections; running calls end with UNAVAILABLE. Idempotent."""
        await super().close()
        if self._own is not None:
            await self._own.close()

    def _for(self, message: bytes) -> H2Transport | None:
        """Our own transport for a large message; None: grpcio is to carry it."""
        if self._own is None or len(message) < LARGE or self._closed:
            return None
        if self._own.connected:
            return self._own
        self._own.connect()
        return None
