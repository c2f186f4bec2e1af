"""Admin socket of the control process: what request workers and tools ask about the fleet (DESIGN 2)."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from smg._native import region as table
from smg._version import __version__
from smg.config.settings import RoutingSettings
from smg.control import frames
from smg.control.slices import Parts, as_json, chained, sliced
from smg.core.errors import GatewayError
from smg.fleet.loads import LoadReport
from smg.fleet.records import WorkerRecord
from smg.fleet.registry import Registry
from smg.routing.policies import parameters

log = logging.getLogger("smg.control")

LOOK_SECS = 5.0

Handler: TypeAlias = Callable[[dict[str, Any]], Awaitable[Any]]


class AdminServer:
    """Answers ``operations`` (name to handler of the request map) on a Unix socket at ``path``, owner only."""

    def __init__(self, path: Path, operations: Mapping[str, Handler]) -> None:
        self._path = path
        self._operations = operations
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, and again whenever the socket's file is removed. Raises OSError when that fails now."""
        self._watch = asyncio.get_running_loop().create_task(self._keep())
        await self._listen()

    async def _listen(self) -> None:
        # One that a dead control process has left is replaced.
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        with frames.address(self._path) as address:
            self._server = await asyncio.start_unix_server(self._accept, address)
        os.chmod(self._path, 0o600)

    async def close(self) -> None:
        """Stop listening, end the connections, remove the socket and its directory."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()

    async def _keep(self) -> None:
        """What cleans temporary directories takes the socket with it, and nobody can reach this process any more."""
        told = False
        while True:
            await asyncio.sleep(LOOK_SECS)
            if await asyncio.to_thread(self._path.exists):
                told = False
                continue
            if self._server is not None:
                self._server.close()
            try:
                await self._listen()
                log.error("the control socket had gone and was made again", extra={"path": str(self._path)})
            except OSError as error:
                if not told:
                    log.error("the control socket cannot be made", extra={"error": str(error)})
                told = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await frames.read(reader)) is not None:
                async with contextlib.aclosing(self._answers(request)) as answers:
                    async for answer in answers:
                        await frames.write(writer, answer)
        except frames.FrameError as error:
            log.warning("bad frame on the control socket", extra={"error": str(error)})
        except (ConnectionError, asyncio.CancelledError):
            # Cancelled by ``close`` only.
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answers(self, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        operation = request.get("op")
        handler = self._operations.get(operation) if isinstance(operation, str) else None
        if handler is None:
            yield _error("not_found", f"control has no operation {operation!r}")
            return
        try:
            result = await handler(request)
            if isinstance(result, AsyncIterator):
                async for part in result:
                    yield {"ok": True, "part": part}
                result = None
        except GatewayError as error:
            yield _error(error.code, error.message, error.param)
        except Exception:
            log.exception("control operation broke", extra={"op": operation})
            yield _error("internal_error", "the operation failed")
        else:
            yield {"ok": True, "result": result}


class Fleet(Protocol):
    """The part of FleetControl that is asked here."""

    registry: Registry

    def describe(self, worker: WorkerRecord) -> dict[str, Any]: ...


def operations(fleet: Fleet, region: table.Region) -> dict[str, Handler]:
    """The operations: ``ping``, ``set_policy`` (of a model), and, each in parts: ``list`` (``workers``, ``models``),
    ``workers`` (``json`` of those that serve ``model``, if given, and their ``kinds``), ``loads`` (``json``)."""
    registry = fleet.registry

    async def ping(_: dict[str, Any]) -> dict[str, Any]:
        return {"pid": os.getpid(), "version": __version__, "boot_id": region.boot_id}

    def still(workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
        """Those that have not left since the first part was made."""
        return [worker for worker in workers if registry.worker(worker.id) is worker]

    def listed(workers: Sequence[WorkerRecord]) -> dict[str, list[Any]]:
        return {"workers": [fleet.describe(worker) for worker in still(workers)]}

    def shown(workers: Sequence[WorkerRecord]) -> dict[str, list[Any]]:
        found = still(workers)
        return {
            "json": as_json([fleet.describe(worker) for worker in found]),
            "kinds": [worker.role for worker in found],
        }

    def loaded(workers: Sequence[WorkerRecord]) -> dict[str, list[Any]]:
        return {"json": as_json([_worker_load(region, worker, registry.load(worker.id)) for worker in still(workers)])}

    async def list_fleet(_: dict[str, Any]) -> Parts:
        models = sliced(registry.models, lambda some: {"models": [msgspec.to_builtins(model) for model in some]})
        return chained(sliced(registry.workers, listed), models)

    async def workers(request: dict[str, Any]) -> Parts:
        model = request.get("model")
        return sliced([worker for worker in registry.workers if not model or model in worker.models], shown)

    async def loads(_: dict[str, Any]) -> Parts:
        return sliced(registry.workers, loaded)

    async def set_policy(request: dict[str, Any]) -> None:
        model, policy = request.get("model"), request.get("policy")
        if not isinstance(model, str) or not isinstance(policy, str):
            raise GatewayError("invalid_value", "a model and its policy are strings", param="policy")
        if policy:
            try:
                parameters.read(policy, RoutingSettings())
            except ValueError as error:
                raise GatewayError("invalid_value", str(error), param="policy") from None
        registry.set_policy(model, policy)

    return {"ping": ping, "list": list_fleet, "workers": workers, "loads": loads, "set_policy": set_policy}


def _worker_load(region: table.Region, worker: WorkerRecord, report: LoadReport | None) -> dict[str, Any]:
    return {
        "worker": worker.url,
        "id": worker.id,
        "worker_type": worker.role,
        "in_flight": region.inflight(worker.slot)[0],
        **_load(report),
    }


def _load(report: LoadReport | None) -> dict[str, Any]:
    """One engine's load in the names of spec api-and-ops 1.10; -1 while it has told none."""
    if report is None:
        return {"load": -1}
    return {
        "load": sum(rank.used_tokens for rank in report.ranks),
        "details": {
            "timestamp": report.timestamp,
            "dp_rank_count": len(report.ranks),
            "loads": [
                {
                    "dp_rank": rank.dp_rank,
                    "num_running_reqs": rank.running,
                    "num_waiting_reqs": rank.waiting,
                    "num_waiting_uncached_tokens": rank.queued_tokens,
                    "num_total_reqs": rank.running + rank.waiting,
                    "num_used_tokens": rank.used_tokens,
                    "max_total_num_tokens": rank.max_tokens,
                    "token_usage": rank.usage,
                    "gen_throughput": rank.throughput,
                    "cache_hit_rate": rank.cache_hit_rate,
                    "utilization": rank.utilization,
                    "max_running_requests": rank.max_running,
                }
                for rank in report.ranks
            ],
        },
    }


def _error(code: str, message: str, param: str | None = None) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message, "param": param}}
