"""The transports of token streams: one row each (``--engine-transport``)."""

from collections.abc import Callable, Mapping

from smg.engines.transport.base import Transport
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.h2 import H2Transport

TRANSPORTS: Mapping[str, Callable[[str], Transport]] = {
    "grpcio": GrpcioTransport,
    "native": H2Transport,
}
