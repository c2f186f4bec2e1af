"""Admin routes that look at the fleet, answered by the control process (spec api-and-ops 1.10, 1.11).

Control describes thousands of workers a few at a time, and as JSON, so that no event loop has to work on all of them.
"""

from collections.abc import Sequence

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.control import ask
from smg.api.errors import JSON


async def workers(request: Request) -> HTTPResponse:
    """``GET /workers``: every worker and its state; ``?model=`` keeps those that serve it."""
    found = await ask(request.app.ctx.services, "workers", model=request.args.get("model"))
    kinds: Sequence[str] = found["kinds"]
    stats = {f"{kind}_count": kinds.count(kind) for kind in ("regular", "prefill", "decode", "encode")}
    return _listed(found["json"], b',"total":%d,"stats":%b' % (len(kinds), msgspec.json.encode(stats)))


async def loads(request: Request) -> HTTPResponse:
    """``GET /get_loads`` and ``GET /loads``: the engines' last load reports, at most some seconds old."""
    return _listed((await ask(request.app.ctx.services, "loads"))["json"], b"")


def _listed(workers: Sequence[bytes], rest: bytes) -> HTTPResponse:
    return HTTPResponse(b'{"workers":[%b]%b}' % (b",".join(workers), rest), content_type=JSON)
