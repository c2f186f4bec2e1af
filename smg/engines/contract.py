"""What the adapters share: messages that have the same fields in most contracts (spec engine-contract 3)."""

from collections.abc import Sequence
from typing import Any, ClassVar

from smg.core.errors import GatewayError
from smg.core.media import MediaItem
from smg.engines import protobuf
from smg.engines.base import EmbedResult, EngineLoad
from smg.engines.parcel import INLINE, Parcel

HEALTH_SECS = 5.0
# For engines that generate a token to tell whether they can: they take up to 20 s themselves (spec 2.7).
GENERATING_HEALTH_SECS = 25.0


class ContractAdapter:
    """Base of the adapters. ``pb`` is the module of generated messages; methods of a feature that ``capabilities``
    lacks raise ``not_implemented``. ``media_dtype`` is the element type of preprocessed media unless an engine tells
    another, empty for a contract without tensors; ``shared_memory``: its messages can name files with them."""

    pb: ClassVar[Any]
    name: str
    service: str
    encoder_service: str = ""
    capabilities: frozenset[str]
    health_secs: float = HEALTH_SECS
    media_dtype: ClassVar[str] = ""
    shared_memory: ClassVar[bool] = False

    def require(self, feature: str) -> None:
        """Raise GatewayError ``not_implemented`` (501) when the contract does not have ``feature``."""
        if feature not in self.capabilities:
            raise not_offered(self.name, feature)

    def healthy(self, message: bytes) -> bool:
        return protobuf.healthy(self.pb.HealthCheckResponse, message)

    def tokenizer_chunk(self, message: bytes) -> tuple[bytes, str]:
        return protobuf.tokenizer_chunk(message)

    def loads_request(self) -> bytes:
        self.require("loads")
        return protobuf.encode(self.pb.GetLoadsRequest(include=["core"]))

    def loads(self, message: bytes) -> list[EngineLoad]:
        self.require("loads")
        return protobuf.loads(self.pb.GetLoadsResponse, message)

    def embed(self, request_id: str, ids: Sequence[int]) -> bytes:
        self.require("embed")
        return protobuf.encode_with_ids(self.pb.EmbedRequest(request_id=request_id), ids)

    def embedding(self, message: bytes) -> EmbedResult:
        self.require("embed")
        return protobuf.embedding(self.pb.EmbedResponse, message)

    def encode(self, request_id: str, item: MediaItem, token_id: int, room: int, parcel: Parcel = INLINE) -> bytes:
        raise not_offered(self.name, "encode")

    def encoded(self, message: bytes) -> bool:
        raise not_offered(self.name, "encode")


def not_offered(contract: str, feature: str) -> GatewayError:
    """The error of a call that the contract has no RPC for."""
    return GatewayError("not_implemented", f"engines of the {contract} contract do not offer this ({feature})")


def unsupported(param: str, what: str) -> GatewayError:
    """The error of a request that asks for what the contract has no field for; routing normally keeps it away."""
    return GatewayError("unsupported_parameter", f"the engine does not offer {what}", param=param)
