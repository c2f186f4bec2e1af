"""``GET /get_server_info``: the gateway itself, for operators."""

import msgspec
from sanic import Request

from smg._version import __version__
from smg.pipeline.services import Services


class ServerInfo(msgspec.Struct):
    """Counts of the whole gateway, whichever of its processes answers; never a key."""

    router_type: str
    version: str
    policy: str
    request_processes: int
    in_flight_requests: int
    total_workers: int
    healthy_workers: int
    external_workers: int
    total_models: int
    models: list[str]
    worker_urls: list[str]
    draining: bool


async def server_info(request: Request, services: Services) -> ServerInfo:
    """Everything at this moment."""
    snapshot = services.view.snapshot()
    return ServerInfo(
        router_type="smg-server",
        version=__version__,
        policy=services.router.policy,
        request_processes=services.settings.server.workers,
        in_flight_requests=services.region.requests_total(),
        total_workers=len(snapshot.workers),
        healthy_workers=sum(services.view.status(worker) == "ready" for worker in snapshot.workers),
        external_workers=sum(worker.kind == "events" for worker in snapshot.workers),
        total_models=len(snapshot.models),
        models=[model.id for model in snapshot.models],
        worker_urls=[worker.url for worker in snapshot.workers],
        draining=services.draining,
    )
