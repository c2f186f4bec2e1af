"""The real application on loopback, and a look at what arrives byte by byte."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sanic import Request, Sanic

from smg.api.dialect import Dialect
from smg.api.routes import Api
from smg.api.table import DIALECTS
from smg.server.active import ActiveRequests
from smg.server.app import build_app
from smg.server.protocol import Connection

SMALL = 32 << 10


@asynccontextmanager
async def serving(services, dialects: Sequence[Dialect] = DIALECTS) -> AsyncIterator[str]:
    """Serve ``services`` to ``dialects``; yields the base URL. ``services.seen`` keeps the contexts of all requests."""
    Sanic.test_mode = True
    app = build_app(services, services.settings, Api(dialects))
    services.seen = []

    class Remembering(ActiveRequests):
        def add(self, request: Request) -> None:
            services.seen.append(request.ctx.smg)
            super().add(request)

    app.ctx.active = Remembering()

    # A socket of our own: Sanic takes port 0 for its default port.
    own = socket.create_server(("127.0.0.1", 0))
    server = await app.create_server(sock=own, protocol=Connection, return_asyncio_server=True)
    await server.startup()
    for listener in server.server.sockets:
        # Inherited by connections: a client that does not read is felt after some kilobytes, not megabytes.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    await server.start_serving()
    try:
        host, port = server.server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.close()
        for connection in list(server.connections):
            connection.abort()
        await server.wait_closed()


async def until(condition, seconds: float = 5.0) -> None:
    """Wait until ``condition()`` holds; fails when it takes longer."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


def frames(body: bytes) -> list:
    """The server-sent events of a body: objects; of named events (name, object); the end marker and comments as is."""
    parts = body.decode().split("\n\n")
    assert parts.pop() == ""
    return [_frame(part) for part in parts]


def _frame(part: str) -> object:
    name, line, data = part.rpartition("\n")
    if not data.startswith("data: {"):
        return part
    value = json.loads(data.removeprefix("data: "))
    if not line:
        return value
    assert name.startswith("event: ")
    return name.removeprefix("event: "), value


async def send(
    url: str, body: dict, path: str = "/v1/chat/completions"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Post ``body`` to ``path`` over a bare connection."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=connection, limit=SMALL)
    data = json.dumps(body).encode()
    writer.write(f"POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    return reader, writer
