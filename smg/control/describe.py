"""A worker as operators see it: what is wanted, what the engine told, and how it does (spec api-and-ops 1.11)."""

from typing import Any

from msgspec.structs import asdict

from smg._native import region as table
from smg.core import clock
from smg.engines.carrier import carrier
from smg.engines.transport.table import AUTO
from smg.fleet.breaker import CircuitBreakers
from smg.fleet.records import STATUS_NAMES, WorkerRecord
from smg.fleet.registry import Registry

_MILLION = 1_000_000


class Describer:
    """Makes the JSON of workers from the registry and the region; ``transport`` is what ``--engine-transport`` says."""

    def __init__(
        self, registry: Registry, region: table.Region, breakers: CircuitBreakers, transport: str = AUTO
    ) -> None:
        self._transport = transport
        self._registry = registry
        self._region = region
        self._breakers = breakers

    def worker(self, worker: WorkerRecord, probed: float | None = None) -> dict[str, Any]:
        """One worker; ``probed`` is the Unix time of its last probe. Never a key."""
        region, slot, wanted = self._region, worker.slot, worker.wanted
        status = STATUS_NAMES.get(region.worker_get(slot, table.STATUS), worker.status)
        requests, tokens = region.inflight(slot)
        info = self._registry.info(worker.id)
        report = self._registry.load(worker.id)
        return {
            "id": worker.id,
            "model_id": worker.models[0] if worker.models else None,
            "url": worker.url,
            "models": worker.models,
            "model_path": info.model_path if info is not None else "",
            "worker_type": worker.role,
            "connection_mode": worker.url.partition("://")[0] if "://" in worker.url else "grpc",
            "transport": carrier(worker.url, worker.kind, self._transport),
            "runtime_type": worker.runtime or "unspecified",
            "labels": worker.labels,
            "priority": worker.priority,
            "cost": worker.cost,
            "health": asdict(wanted.health),
            "resilience": wanted.resilience.given,
            "max_connection_attempts": wanted.max_connection_attempts,
            "load_monitor_interval_secs": wanted.load_monitor_interval_secs,
            "features": None if worker.features is None else sorted(worker.features),
            "origin": worker.origin,
            "status": status,
            "reason": worker.reason,
            "is_healthy": status == "ready",
            "breaker": self._breakers.state(worker),
            "failures": self._breakers.failures(worker),
            "load": requests,
            "in_flight": requests,
            "waiting_tokens": tokens,
            "processed": region.worker_get(slot, table.PROCESSED),
            "engine": None
            if report is None
            else {
                "running": region.worker_get(slot, table.RUNNING),
                "waiting": region.worker_get(slot, table.WAITING),
                "queued_tokens": region.worker_get(slot, table.QUEUED_TOKENS),
                "kv_usage": region.worker_get(slot, table.USAGE) / _MILLION,
                "reported": report.timestamp,
            },
            "last_probe": probed,
            "job_status": _job(worker, status),
        }


def _job(worker: WorkerRecord, status: str) -> dict[str, Any] | None:
    """What is being done about the worker, None when nothing is. It is derived, so it never expires before its end."""
    match status:
        case "draining":
            kind, state = "remove_worker", "processing"
        case "pending":
            # Until the first probe has said something, nothing has been tried.
            kind, state = "add_worker", "processing" if worker.reason else "pending"
        case "failed":
            kind, state = "add_worker", "failed"
        case _:
            return None
    return {
        "job_type": kind,
        "worker_url": worker.url,
        "status": state,
        "message": worker.reason,
        "timestamp": clock.created(),
    }
