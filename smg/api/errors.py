"""The one place where error answers are made, in the shape of the dialect that was asked (spec agentic-apis 2)."""

import logging

import msgspec
from sanic.response import HTTPResponse

from smg.api.dialect import Dialect, ErrorAnswer
from smg.core.context import RequestContext
from smg.core.errors import GatewayError, openai_shape

JSON = "application/json"

log = logging.getLogger("smg.api")


def openai_error(error: GatewayError) -> ErrorAnswer:
    """OpenAI's shape: that of its dialects, and of every route that belongs to no dialect."""
    return ErrorAnswer(error.status, openai_shape(error))


def error_response(dialect: Dialect | None, ctx: RequestContext, error: GatewayError) -> HTTPResponse:
    """The whole error answer; code and field of the error go into the context's notes for the access log."""
    ctx.notes["error"] = error.code
    if error.param:
        ctx.notes["param"] = error.param
    answer, headers = openai_error(error), error.headers()
    if dialect is not None:
        try:
            answer = dialect.error(ctx, error)
            headers = {**headers, **dialect.headers(ctx), **answer.headers}
        except Exception:
            log.exception("the dialect %s cannot show an error", dialect.name)
    return HTTPResponse(msgspec.json.encode(answer.body), answer.status, headers, JSON)
