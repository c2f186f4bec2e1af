"""``/health``, ``/liveness``, ``/readiness`` and ``/metrics`` (spec api-and-ops 1.10, 6.1)."""

from typing import Any

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.errors import JSON
from smg.core import clock
from smg.core.turns import turn
from smg.fleet import roles
from smg.fleet.records import WorkerRecord
from smg.pipeline.services import Services
from smg.telemetry.page import CONTENT_TYPE, IndexSample, WorkerSample, pieces

# Values of the metric, as spec api-and-ops 6.1 numbers them.
_BREAKER = {"closed": 0, "open": 1, "half_open": 2}
# Others have their turn when the page has taken so long since they had it.
_STEP_SECS = 0.001


async def alive(request: Request) -> HTTPResponse:
    """200 as long as the process answers at all, also while it drains."""
    return HTTPResponse(b"OK", content_type="text/plain; charset=utf-8")


async def readiness(request: Request) -> HTTPResponse:
    """200 when this process can answer a generation, else 503 with the reason."""
    services: Services = request.app.ctx.services
    reason = not_ready(services)
    if reason is not None:
        body: dict[str, Any] = {"status": "not ready", "reason": reason}
        return HTTPResponse(msgspec.json.encode(body), status=503, headers={"retry-after": "1"}, content_type=JSON)
    workers = services.view.snapshot().workers
    healthy = sum(services.view.status(worker) == "ready" for worker in workers)
    body = {"status": "ready", "healthy_workers": healthy, "total_workers": len(workers)}
    return HTTPResponse(msgspec.json.encode(body), content_type=JSON)


def not_ready(services: Services) -> str | None:
    """Why this process should get no requests, or None when it should."""
    if services.draining:
        return "draining"
    snapshot = services.view.snapshot()
    if any(worker.kind != "tokens" and services.view.status(worker) == "ready" for worker in snapshot.workers):
        # Engines that take text need no tokenizer here.
        return None
    served = roles.served(worker for worker in snapshot.workers if services.view.status(worker) == "ready")
    if not served:
        return "insufficient healthy workers"
    reason = "tokenizer not yet registered"
    for model in snapshot.models:
        if served.isdisjoint([model.id, *model.aliases]):
            continue
        if not services.texts.ready(model):
            services.texts.ensure(model)
            settings = services.settings.of_model(model.id, *model.aliases)
            if settings.disable_tokenizer_autoload and not model.tokenizer_dir:
                # Whoever adds tokenizers by hand does it through this process, which must be reachable for that.
                return None
        elif services.texts.get(model).decodes:
            return None
        else:
            reason = "tokenizer cannot decode generated text"
    return reason


async def metrics(request: Request) -> HTTPResponse:
    """The metrics of all processes, whichever of them is asked."""
    services: Services = request.app.ctx.services
    region = services.region
    samples = (_sample(services, worker) for worker in services.view.snapshot().workers)
    inflight, waiting = region.requests_total(), region.waiting_total()
    page, began = [], clock.monotonic()
    for piece in pieces(services.metrics, samples, inflight, waiting, _index(services)):
        page.append(piece)
        if clock.monotonic() - began > _STEP_SECS:
            await turn()
            began = clock.monotonic()
    return HTTPResponse(b"".join(page), content_type=CONTENT_TYPE)


def _sample(services: Services, worker: WorkerRecord) -> WorkerSample:
    breakers = services.router.breakers
    return WorkerSample(
        worker.id,
        services.region.inflight(worker.slot)[0],
        services.view.status(worker) == "ready",
        _BREAKER[breakers.state(worker)],
        breakers.failures(worker),
        worker.url,
        worker.models,
        worker.runtime,
        worker.role,
    )


def _index(services: Services) -> IndexSample | None:
    index = services.region.index
    if index is None:
        return None
    counts = index.counts()
    return IndexSample(
        *(counts["entries"], counts["places"], counts["bytes"]),
        learnt=index.tick,
        evicted=int(index.floor),
        resets=counts["resets"],
    )
