"""One row of the route table."""

from typing import Any, Literal, TypeAlias

import msgspec

from smg.api.dialect import Dialect, Handler

Access: TypeAlias = Literal["public", "data", "admin"]


class Route(msgspec.Struct, frozen=True):
    """One route in Sanic's path syntax.

    ``access`` is who may call it: everybody, holders of an API key, or admins. ``dialect`` is whose headers and error
    shape apply, None for OpenAI's. The rest is for the OpenAPI document: one line of ``summary``, the types of body,
    answer and error (None: not JSON, or of no fixed shape; of errors: OpenAI's), names of ``query`` parameters, and
    whether the answer may be a stream of server-sent events, and the ``status`` of success.
    """

    method: str
    path: str
    handler: Handler
    access: Access
    dialect: Dialect | None = None
    summary: str = ""
    body: Any = None
    reply: Any = None
    failure: Any = None
    query: tuple[str, ...] = ()
    streams: bool = False
    status: int = 200
