"""Loads of HTTP engines: SGLang's ``/v1/loads``, or the figures of a Prometheus page (spec api-and-ops 1.10)."""

import re
from collections.abc import Mapping
from typing import Any

from smg.engines.base import EngineLoad

LOADS = "/v1/loads?include=core,disagg,queues,memory"
METRICS = "/metrics"

_SAMPLE = re.compile(r"^(?:vllm:|sglang:|sglang_)([a-z_]+)(?:\{[^}]*\})? +([0-9.eE+-]+)", re.MULTILINE)
# Field of EngineLoad to its names on the pages, the newest first.
_GAUGES: Mapping[str, tuple[str, ...]] = {
    "running": ("num_requests_running", "num_running_reqs"),
    "waiting": ("num_requests_waiting", "num_queue_reqs"),
    "usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc", "token_usage"),
    "used_tokens": ("num_used_tokens",),
    "max_tokens": ("max_total_num_tokens",),
    "throughput": ("gen_throughput",),
    "cache_hit_rate": ("cache_hit_rate",),
}
_SHARES = frozenset({"usage", "throughput", "cache_hit_rate"})


def of_loads(document: Any) -> list[EngineLoad]:
    """The ranks of ``/v1/loads``' answer; empty when it is none."""
    ranks = document.get("loads") if isinstance(document, dict) else None
    return [_rank(rank) for rank in ranks if isinstance(rank, dict)] if isinstance(ranks, list) else []


def of_metrics(page: str) -> list[EngineLoad]:
    """One record for the whole engine, summed over what the page breaks down (shares: the highest).

    Empty without a figure of the KV cache: then the page is not an engine's.
    """
    samples: dict[str, list[float]] = {}
    for name, value in _SAMPLE.findall(page):
        try:
            samples.setdefault(name, []).append(float(value))
        except ValueError:
            continue
    found: dict[str, Any] = {}
    for field, names in _GAUGES.items():
        values = next((samples[name] for name in names if name in samples), None)
        if values is not None:
            found[field] = max(values) if field in _SHARES else round(sum(values))
    return [EngineLoad(**found)] if "usage" in found else []


def _rank(rank: dict[str, Any]) -> EngineLoad:
    return EngineLoad(
        dp_rank=_whole(rank, "dp_rank"),
        running=_whole(rank, "num_running_reqs"),
        waiting=_whole(rank, "num_waiting_reqs"),
        used_tokens=_whole(rank, "num_used_tokens"),
        max_tokens=_whole(rank, "max_total_num_tokens"),
        usage=_float(rank, "token_usage"),
        queued_tokens=_whole(rank, "num_waiting_uncached_tokens"),
        throughput=_float(rank, "gen_throughput"),
        cache_hit_rate=_float(rank, "cache_hit_rate"),
        utilization=_float(rank, "utilization"),
        max_running=_whole(rank, "max_running_requests"),
    )


def _whole(rank: dict[str, Any], name: str) -> int:
    return round(_float(rank, name))


def _float(rank: dict[str, Any], name: str) -> float:
    value = rank.get(name)
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**53 else 0.0
