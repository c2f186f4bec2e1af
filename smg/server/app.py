"""The Sanic application of a request worker: routes and layers, nothing else."""

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Protocol

from sanic import Request, Sanic
from sanic.application.state import ApplicationServerInfo
from sanic.config import Config
from sanic.http.constants import HTTP
from sanic.response import HTTPResponse

from smg.config import Settings
from smg.core.errors import GatewayError
from smg.security.access import Access, Gate
from smg.server.active import ActiveRequests
from smg.server.crowd import Crowd
from smg.server.dispatch import Handler, dispatch, dispatch_guest
from smg.server.errors import DialectErrors
from smg.server.protocol import GatewayRequest
from smg.telemetry.metrics import Metrics

# Sanic wants its applications to have different names.
_numbers = itertools.count()


class AppServices(Protocol):
    """What the application itself needs of the services that handlers use."""

    metrics: Metrics
    draining: bool


class AppRoute(Protocol):
    """A row of the route table."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def handler(self) -> Handler: ...
    @property
    def access(self) -> Access: ...
    @property
    def dialect(self) -> object: ...


class AppApi(Protocol):
    """What the application serves; ``api.routes.Api`` tells what its parts mean."""

    @property
    def routes(self) -> Sequence[AppRoute]: ...

    def naming(self, path: str) -> tuple[str, str]: ...

    def error_response(self, request: Request, error: GatewayError) -> HTTPResponse: ...


def build_app(services: AppServices, settings: Settings, api: AppApi) -> Sanic[Config, SimpleNamespace]:
    """Build the application that serves ``api`` over ``services``.

    Handlers find the RequestContext in ``request.ctx.smg`` and the services in ``request.app.ctx.services``.
    ``app.ctx.active`` holds the requests that are being handled.
    """
    app: Sanic[Config, SimpleNamespace] = Sanic(
        f"smg-{next(_numbers)}",
        config=_config(settings),
        error_handler=DialectErrors(api.error_response),
        request_class=GatewayRequest,
        configure_logging=False,
    )
    # Sanic leaves an empty alt-svc header in every answer unless it knows the versions of HTTP that are served.
    app.state.server_info.append(ApplicationServerInfo(settings={"version": HTTP.VERSION_1}))
    app.ctx.services = services
    app.ctx.settings = settings
    app.ctx.api = api
    app.ctx.gate = Gate(settings.security)
    app.ctx.active = ActiveRequests()
    app.ctx.crowd = Crowd(settings.server, services.metrics)
    app.ctx.dispatch = dispatch
    app.ctx.dispatch_guest = dispatch_guest
    for number, route in enumerate(api.routes):
        # Load balancers probe with HEAD.
        methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        app.add_route(
            _unrouted,
            route.path,
            methods=methods,
            name=f"route-{number}",
            # Sanic would look for it in the handler's source, a millisecond each; DialectErrors knows it anyway.
            error_format="json",
            ctx_access=route.access,
            ctx_dialect=route.dialect,
            ctx_handler=route.handler,
            ctx_template=route.path,
        )
    return app


def _config(settings: Settings) -> Config:
    return Config(
        {
            "ACCESS_LOG": False,
            "AUTO_EXTEND": False,
            "KEEP_ALIVE_TIMEOUT": settings.server.keep_alive_timeout_secs,
            "MOTD": False,
            "REQUEST_MAX_SIZE": settings.server.max_payload_size,
            "REQUEST_TIMEOUT": settings.server.header_timeout_secs,
            # Streams and buffered answers take as long as they take: deadlines are in the request's context.
            "RESPONSE_TIMEOUT": float("inf"),
            "WEBSOCKET_MAX_SIZE": 16 << 20,
        },
        env_prefix=None,
    )


async def _unrouted(request: Request, **_parameters: str) -> None:
    """Stands for every handler in Sanic's table: ``dispatch`` calls the route's own."""
    raise AssertionError("requests are dispatched by the connection")
