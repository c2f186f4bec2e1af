"""Error answers in the shape of the dialect that owns a path (spec agentic-apis 2)."""

import msgspec
from sanic.response import HTTPResponse

from smg.api.dialect import Dialect
from smg.api.table import DIALECTS
from smg.core.context import RequestContext
from smg.core.errors import GatewayError, openai_shape

JSON = "application/json"


def owner(path: str) -> Dialect | None:
    """The dialect ``path`` belongs to (its own path or one below it), or None."""
    fitting = [dialect for dialect in DIALECTS if path == dialect.path or path.startswith(dialect.path + "/")]
    return max(fitting, key=lambda dialect: len(dialect.path), default=None)


def error_body(path: str, ctx: RequestContext, error: GatewayError) -> tuple[bytes, str]:
    """Body and content type of ``error`` as a client of ``path`` expects it."""
    dialect = owner(path)
    shape = openai_shape(error) if dialect is None else dialect.error(ctx, error)
    return msgspec.json.encode(shape), JSON


def error_response(path: str, ctx: RequestContext, error: GatewayError) -> HTTPResponse:
    """The whole error answer; the error's code goes into the context's notes for the access log."""
    ctx.notes["error"] = error.code
    body, content_type = error_body(path, ctx, error)
    return HTTPResponse(body, status=error.status, headers=error.headers(), content_type=content_type)
