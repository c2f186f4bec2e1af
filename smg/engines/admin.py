"""Admin calls, whose messages all contracts that have them share (spec engine-contract 2.11 and 3.1)."""

from collections.abc import Mapping

import msgspec
from smg_grpc_proto.generated import common_pb2

from smg.core.errors import bad_request
from smg.engines import numbers, protobuf

# RPC to the feature of the contracts that offer it.
FEATURES: Mapping[str, str] = {"FlushCache": "flush_cache", "StartProfile": "profile", "StopProfile": "profile"}
_LONGEST_FLUSH_SECS = 3600.0


class AdminResult(msgspec.Struct, frozen=True):
    """What the engine says of an admin call: done or not, and its own words."""

    success: bool
    message: str = ""


class ProfileOptions(msgspec.Struct, frozen=True):
    """What to profile; None and empty leave it to the engine. Some engines refuse all options (INVALID_ARGUMENT)."""

    output_dir: str | None = None
    start_step: int | None = None
    num_steps: int | None = None
    activities: tuple[str, ...] = ()
    with_stack: bool | None = None
    record_shapes: bool | None = None
    profile_by_stage: bool = False


def flush(timeout_secs: float) -> bytes:
    """Encode a FlushCacheRequest; 0 fails at once while requests run. Raises GatewayError (400)."""
    seconds = numbers.number("timeout", timeout_secs, 0.0, least=0.0)
    if seconds > _LONGEST_FLUSH_SECS:
        raise bad_request(f"must be at most {_LONGEST_FLUSH_SECS:g}", "timeout")
    return protobuf.encode(common_pb2.FlushCacheRequest(timeout_s=seconds))


def start_profile(options: ProfileOptions) -> bytes:
    """Encode a StartProfileRequest. Raises GatewayError (400)."""
    try:
        return protobuf.encode(common_pb2.StartProfileRequest(**msgspec.structs.asdict(options)))
    except (ValueError, TypeError):
        raise bad_request("steps must be 32-bit numbers and activities words", "start_step") from None


def result(message: bytes) -> AdminResult:
    """Decode the answer of any of the calls (they have the same fields). Raises ValueError."""
    answer = protobuf.parse(common_pb2.ProfileResponse, message)
    return AdminResult(bool(answer.success), str(answer.message))
