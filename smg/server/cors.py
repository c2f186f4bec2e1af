"""What browsers ask before they let a page of another origin talk to this server (Fetch standard, CORS protocol).

Answers of inference routes may be read by the pages of the origins that are allowed; all, when none is named, as with
other inference servers: keys guard them, not origins. Admin routes are never opened: on the loopback address they need
no key, and any page in an operator's browser could use them.
"""

from sanic import Request
from sanic.exceptions import SanicException
from sanic.response import HTTPResponse

ADMIN = "admin"
METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
# How long a browser need not ask again, in seconds.
MAX_AGE = "3600"
# What pages may read besides the headers that any page may.
EXPOSED = "x-request-id, request-id, retry-after, x-smg-error-code, x-smg-warning, x-smg-worker, x-smg-resumed"


def preflight(request: Request) -> HTTPResponse | None:
    """The answer to a browser's question about another request, None when ``request`` is no such question."""
    wanted = request.headers.get("access-control-request-method")
    if request.method != "OPTIONS" or wanted is None or _allowed(request) is None:
        return None
    try:
        route, _, _ = request.app.router.get(request.path, wanted, request.headers.get("host"))
    except SanicException:
        # There is no such route: the browser learns it from the usual error.
        return None
    if route.ctx.access == ADMIN:
        return None
    headers = {
        "access-control-allow-methods": METHODS,
        "access-control-allow-headers": request.headers.get("access-control-request-headers", "*"),
        "access-control-max-age": MAX_AGE,
    }
    return HTTPResponse(b"", 204, {**headers, **_origin(request)})


def headers_of(request: Request) -> dict[str, str]:
    """Headers with which a page of the request's origin may read its answer; none for other clients."""
    if "origin" not in request.headers or (request.route is not None and request.route.ctx.access == ADMIN):
        return {}
    return {**_origin(request), "access-control-expose-headers": EXPOSED}


def _origin(request: Request) -> dict[str, str]:
    named = bool(request.app.ctx.settings.server.cors_allowed_origins)
    allowed = _allowed(request)
    out = {} if allowed is None else {"access-control-allow-origin": allowed}
    if named:
        # Caches must not give one origin's answer to another.
        out["vary"] = "origin"
    return out


def _allowed(request: Request) -> str | None:
    """What ``access-control-allow-origin`` says to the request's origin."""
    origin = request.headers.get("origin")
    named = request.app.ctx.settings.server.cors_allowed_origins
    if origin is None or not named or "*" in named:
        return None if origin is None else "*"
    return origin if origin in named else None
