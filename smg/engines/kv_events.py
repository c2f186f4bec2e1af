"""KV events as engines send them, decoded and reduced to what a prefix index may believe (spec engine-contract 2.12).

The messages are the same in all contracts. Only blocks in device memory count that any prompt with these tokens can
use: what is on other tiers, remote, or of other attention groups is left out, and of a chain the blocks from the first
one on that has a cache salt or foreign keys (multimodal content) in its hash.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from smg_grpc_proto.generated import common_pb2 as pb

from smg.engines import protobuf
from smg.engines.base import EngineLoad

_DEVICE = (pb.KV_CACHE_TIER_UNSPECIFIED, pb.KV_CACHE_TIER_DEVICE)
_LOCAL = (pb.KV_CACHE_LOCALITY_UNSPECIFIED, pb.KV_CACHE_LOCALITY_LOCAL)
# How engines call the groups whose blocks hold all tokens before; others forget what slides out of their window.
_MAIN_SPECS = ("", "full_attention", "mla_attention")


class Stored(msgspec.Struct, frozen=True):
    """A chain of new blocks below ``parent`` (None: from the start of a prompt), ``block_size`` tokens each.

    ``hashes`` are the engine's own names. ``adapter`` is the LoRA adapter's name, empty for the base model. ``skipped``
    are names at the end of the chain that must not be indexed, nor anything below them.
    """

    hashes: Sequence[int]
    tokens: Sequence[int]
    block_size: int
    parent: int | None = None
    adapter: str = ""
    skipped: Sequence[int] = ()


class Removed(msgspec.Struct, frozen=True):
    """One copy of each of these blocks is gone."""

    hashes: Sequence[int]


class Cleared(msgspec.Struct, frozen=True):
    """Nothing is held any more."""


KvEvent: TypeAlias = Stored | Removed | Cleared


class Chunk(msgspec.Struct, frozen=True):
    """The batch is part ``index`` of ``count`` of a snapshot; ``complete``: it tells all the engine holds."""

    index: int
    count: int
    complete: bool


class KvBatch(msgspec.Struct, frozen=True):
    """What one rank did. ``timestamp`` is the engine's, in Unix seconds. ``load_only``: no news of the cache. ``load``
    is the rank's own, None where it is not told."""

    sequence: int
    timestamp: float
    events: tuple[KvEvent, ...] = ()
    rank: int = 0
    chunk: Chunk | None = None
    load_only: bool = False
    load: EngineLoad | None = None


def subscription(start: int) -> bytes:
    """Encode the request for everything from number ``start`` on; 0: a snapshot, or all that is remembered.

    An idle engine tells its load at once, and not only with its first batch.
    """
    asked = pb.SubscribeKvEventsRequest(start_sequence_number=start, load_records_before_first_batch=True)
    return protobuf.encode(asked)


def decode(message: bytes) -> KvBatch:
    """Decode one batch. Raises ValueError when it is none."""
    batch = protobuf.parse(pb.KvEventBatch, message)
    chunk = None
    if batch.HasField("snapshot"):
        told = batch.snapshot
        chunk = Chunk(told.index, told.count, told.unknown_before == 0)
    return KvBatch(
        sequence=batch.sequence_number,
        timestamp=batch.timestamp,
        events=tuple(event for item in batch.events if (event := _event(item)) is not None),
        rank=batch.dp_rank if batch.HasField("dp_rank") else 0,
        chunk=chunk,
        load_only=batch.HasField("load") and batch.load.load_only,
        load=_load(batch.load, batch.dp_rank) if batch.HasField("load") else None,
    )


def _load(told: Any, rank: int) -> EngineLoad:
    """What an engine tells of its load by itself (spec engine-contract 2.9); parts of it are missing now and then."""
    return EngineLoad(
        dp_rank=rank,
        running=told.running_requests,
        waiting=told.waiting_requests,
        used_tokens=max(told.num_used_tokens, 0),
        max_tokens=max(told.max_total_num_tokens, 0),
        usage=told.active_token_usage if told.HasField("active_token_usage") else told.token_usage,
        queued_tokens=told.waiting_uncached_tokens,
        throughput=told.gen_throughput,
        cache_hit_rate=told.cache_hit_rate,
        max_running=told.max_running_requests,
    )


def _event(item: Any) -> KvEvent | None:
    match item.WhichOneof("data"):
        case "stored":
            return _stored(item.stored) if _counts(item.stored) else None
        case "removed":
            return Removed(list(item.removed.block_hashes)) if _counts(item.removed) else None
        case "cleared":
            return Cleared()
        case _:
            return None


def _counts(told: Any) -> bool:
    """Whether the blocks are in this engine's device memory, in the group of full attention."""
    spec = getattr(told, "kv_cache_spec_kind", "")
    return told.tier in _DEVICE and told.locality in _LOCAL and told.group_idx == 0 and spec in _MAIN_SPECS


def _stored(told: Any) -> Stored | None:
    blocks = list(told.blocks)
    if not blocks:
        return None
    size = blocks[0].block_size or len(blocks[0].token_ids)
    adapter = told.lora_name or (f"id {blocks[0].lora_id}" if blocks[0].lora_id else "")
    plain = 0
    if not told.cache_salt:
        plain = next((at for at, block in enumerate(blocks) if not _plain(block, size, told.lora_name)), len(blocks))
    return Stored(
        hashes=[block.block_hash for block in blocks[:plain]],
        tokens=[token for block in blocks[:plain] for token in block.token_ids],
        block_size=size,
        parent=told.parent_block_hash if told.HasField("parent_block_hash") else None,
        adapter=adapter,
        skipped=[block.block_hash for block in blocks[plain:]],
    )


def _plain(block: Any, size: int, adapter: str) -> bool:
    """Whether tokens and adapter are all that the block's hash stands for."""
    if size < 1 or len(block.token_ids) != size:
        return False
    return all(key.WhichOneof("key") == "text" and key.text == adapter for key in block.extra_keys)
