"""The transports of token streams: one row each (``--engine-transport``)."""

from collections.abc import Mapping

from smg.engines.transport.base import Connect
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.h2 import H2Transport

TRANSPORTS: Mapping[str, Connect] = {
    "grpcio": GrpcioTransport,
    "native": H2Transport,
}
