"""Protobuf messages that several contracts share in shape: parsing, health, loads, embeddings, tokenizer chunks.

The contracts' messages are generated separately, but the fields of these have the same names (spec engine-contract 3).
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from smg_grpc_proto.generated import common_pb2

from smg._native.wire_ids import with_ids
from smg.core.errors import bad_request
from smg.engines.base import EmbedResult, EngineLoad
from smg.engines.numbers import UINT32_MAX


def parse(kind: Any, message: bytes) -> Any:
    """Parse ``message`` as the generated class ``kind``. Raises ValueError when it is not one."""
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise ValueError(f"not a {kind.DESCRIPTOR.full_name}: {error}") from None


def encode(message: Any) -> bytes:
    """Serialize a generated message."""
    return bytes(message.SerializeToString())


def encode_with_ids(message: Any, ids: Sequence[int], field: str = "input_ids") -> bytes:
    """Serialize ``message``, whose ``tokenized`` is not set, with the prompt's ``ids`` in ``tokenized.field``.

    Raises:
        GatewayError: 400 when an id is no uint32.
    """
    outer = message.DESCRIPTOR.fields_by_name["tokenized"]
    inner = outer.message_type.fields_by_name[field]
    try:
        # A field that follows a message's bytes is part of that message.
        return with_ids(encode(message), ids, outer.number, inner.number)
    except (ValueError, TypeError):
        raise bad_request(f"token ids must be between 0 and {UINT32_MAX}", "prompt") from None


def healthy(kind: Any, message: bytes) -> bool:
    """Read a HealthCheckResponse with the field ``healthy``; what is none is not healthy."""
    try:
        return bool(parse(kind, message).healthy)
    except ValueError:
        return False


def loads(kind: Any, message: bytes) -> list[EngineLoad]:
    """Read a GetLoadsResponse, one record per data-parallel rank (spec engine-contract 2.9). Raises ValueError."""
    return [
        EngineLoad(
            dp_rank=load.dp_rank,
            running=load.num_running_reqs,
            waiting=load.num_waiting_reqs,
            used_tokens=load.num_used_tokens,
            max_tokens=load.max_total_num_tokens,
            usage=_usage(load),
            queued_tokens=load.num_waiting_uncached_tokens,
            throughput=load.gen_throughput,
            cache_hit_rate=load.cache_hit_rate,
            utilization=load.utilization,
            max_running=load.max_running_requests,
        )
        for load in parse(kind, message).loads
    ]


def _usage(load: Any) -> float:
    """The share in use. The active one, where there is one, leaves out what the prefix cache would give back."""
    if "active_token_usage" in load.DESCRIPTOR.fields_by_name and load.HasField("active_token_usage"):
        return float(load.active_token_usage)
    return float(load.token_usage)


def embedding(kind: Any, message: bytes) -> EmbedResult:
    """Read an EmbedResponse. Raises ValueError."""
    answer = parse(kind, message)
    return EmbedResult(vector=list(answer.embedding), prompt_tokens=answer.prompt_tokens)


def tokenizer_chunk(message: bytes) -> tuple[bytes, str]:
    """Read one GetTokenizerChunk, which all contracts have in common. Raises ValueError."""
    chunk = parse(common_pb2.GetTokenizerChunk, message)
    return bytes(chunk.data), str(chunk.sha256)


def abort_each(kind: Any, ids: Sequence[str], **fields: str) -> list[bytes]:
    """One AbortRequest per id, for contracts whose message has room for one."""
    return [encode(kind(request_id=each, **fields)) for each in ids]
