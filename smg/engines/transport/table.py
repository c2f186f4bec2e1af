"""The transports of token streams: one row each."""

from collections.abc import Mapping

from smg.engines.transport.automatic import automatic
from smg.engines.transport.base import Connect
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.transport.grpcio_tokens import GrpcioTokenTransport
from smg.engines.transport.h2 import H2Transport

TRANSPORTS: Mapping[str, Connect] = {
    "grpcio": GrpcioTokenTransport,
    "native": H2Transport,
    # The oracle of both: the generated contract and the table's Python twin.
    "python": GrpcioTransport,
}

AUTO = "auto"

# What ``--engine-transport`` may say.
CHOICES: Mapping[str, Connect] = {AUTO: automatic, **TRANSPORTS}
