"""The Sanic application of a request worker: routes and layers, nothing else."""

import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias, cast
from urllib.parse import unquote

from sanic import Request, Sanic
from sanic.application.state import ApplicationServerInfo
from sanic.config import Config
from sanic.exceptions import SanicException
from sanic.http import Http, Stage
from sanic.http.constants import HTTP
from sanic.response import HTTPResponse

from smg.config import Settings
from smg.core.errors import GatewayError
from smg.security.access import Access, Gate
from smg.server.active import ActiveRequests
from smg.server.crowd import Crowd, no_room
from smg.server.errors import DialectErrors
from smg.server.middleware import DISPATCH, ENDPOINT, Next, compose
from smg.server.protocol import GatewayRequest, abort
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.server")

# Sanic wants its applications to have different names.
_numbers = itertools.count()


# ``handler(request, **parameters)``, the path's parameters unquoted: an answer, or None when it has sent one itself.
Handler: TypeAlias = Callable[..., Awaitable[HTTPResponse | None]]


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
    app.ctx.dispatch = compose(DISPATCH, _route)
    app.ctx.dispatch_guest = compose(DISPATCH, _route_guest)
    for number, route in enumerate(api.routes):
        # Load balancers probe with HEAD.
        methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        app.add_route(
            _endpoint(compose(ENDPOINT, _innermost(route.handler))),
            route.path,
            methods=methods,
            name=f"route-{number}",
            # The layers read the body, after they have let its sender in.
            stream=True,
            # Sanic would look for it in the handler's source, a millisecond each; DialectErrors knows it anyway.
            error_format="json",
            ctx_access=route.access,
            ctx_dialect=route.dialect,
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


async def _route(request: Request) -> None:
    # Looked up each time: Sanic replaces the method by a faster one when it starts.
    await request.app.handle_request(request)


async def _route_guest(request: Request) -> None:
    """Route what operators ask for on a connection that is one too many, and close it."""
    cast("Http", request.stream).keep_alive = False
    host = request.headers.getone("host", None)
    try:
        route, *_ = request.app.router.get(request.path, request.method, host)
    except SanicException:
        route = None
    if route is None or route.ctx.access != "data":
        await request.app.handle_request(request)
        return
    request.route = route
    request.app.ctx.crowd.count_refused()
    await request.app.handle_exception(request, no_room())


def _innermost(handler: Handler) -> Next:
    async def call(request: Request) -> HTTPResponse | None:
        # Unquoted after the routing, so that a name may have a slash in it.
        return await handler(request, **{name: unquote(value) for name, value in request.match_info.items()})

    return call


def _endpoint(layered: Next) -> Callable[..., Coroutine[Any, Any, HTTPResponse | None]]:
    """What Sanic calls; the path's parameters reach the handler through ``request.match_info``."""

    async def endpoint(request: Request, **_parameters: str) -> HTTPResponse | None:
        try:
            return await layered(request)
        except Exception:
            stream = request.stream
            if stream is None or stream.stage is Stage.HANDLER:
                raise
            # A cut-off answer must not look complete: no last chunk, the connection just ends.
            log.exception("a handler failed after its answer had begun")
            abort(request)
            return None

    return endpoint
