"""What ``--engine-transport auto`` uses: for each engine the transport that costs least and can reach it."""

import logging

from smg.engines.transport.address import parse
from smg.engines.transport.base import MESSAGE_LIMIT, TokenTransport
from smg.engines.transport.grpcio_tokens import GrpcioTokenTransport
from smg.engines.transport.h2 import H2Transport
from smg.engines.transport.proxy import proxied, proxy_set

log = logging.getLogger(__name__)


def automatic(url: str, *, message_limit: int = MESSAGE_LIMIT) -> TokenTransport:
    """Return the native transport to an engine without TLS, else grpcio's.

    Our own connection would encrypt a large request on the event loop (case PF-01), and knows no HTTP proxies.

    Raises:
        ValueError: ``url`` is no engine address.
    """
    reason = obstacle(url)
    if reason is None:
        return H2Transport(url, message_limit=message_limit)
    log.info("grpcio carries the engine's streams", extra={"worker": url, "reason": reason})
    return GrpcioTokenTransport(url, message_limit=message_limit)


def obstacle(url: str) -> str | None:
    """What keeps the native transport from ``url``, in words for the log, if ``url`` is an engine's address."""
    if url.lower().startswith("grpcs://"):
        return "TLS"
    return "HTTP proxy" if proxy_set() and proxied(parse(url)) else None
