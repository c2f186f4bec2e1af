"""One row of the route table."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import msgspec

Access: TypeAlias = Literal["public", "data", "admin"]


class Route(msgspec.Struct, frozen=True):
    """One route in Sanic's path syntax.

    ``access`` is who may call it: everybody, holders of an API key, or admins. ``dialect`` names the dialect whose
    error shape applies, empty for OpenAI's. The rest is for the OpenAPI document: one line of ``summary``, the types of
    body and answer (None: not JSON, or of no fixed shape), names of ``query`` parameters, and whether the answer may be
    a stream of server-sent events.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    access: Access
    dialect: str = ""
    summary: str = ""
    body: Any = None
    reply: Any = None
    query: tuple[str, ...] = ()
    streams: bool = False
