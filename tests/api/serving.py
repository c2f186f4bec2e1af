"""A Sanic server on loopback around the routes, as thin as can be, and a look at what arrives byte by byte."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sanic import Request, Sanic

from smg.api.routes import routes
from smg.core.context import RequestContext

SMALL = 32 << 10


@asynccontextmanager
async def serving(services) -> AsyncIterator[str]:
    """Serve ``services``; yields the base URL. ``services.seen`` keeps the contexts of all requests."""
    Sanic.test_mode = True
    app = Sanic(f"test-{id(services)}", configure_logging=False)
    app.config.update(ACCESS_LOG=False, FALLBACK_ERROR_FORMAT="json", RESPONSE_TIMEOUT=600, REQUEST_TIMEOUT=600)
    app.ctx.services = services
    services.seen = []

    @app.on_request
    async def context(request: Request) -> None:
        request.ctx.smg = RequestContext(request.headers.get("x-request-id", "r"))
        services.seen.append(request.ctx.smg)

    for route in routes():
        app.add_route(route.handler, route.path, methods=[route.method], name=f"{route.method}:{route.path}")
    # A socket of our own: Sanic takes port 0 for its default port.
    own = socket.create_server(("127.0.0.1", 0))
    server = await app.create_server(sock=own, return_asyncio_server=True)
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
    """The server-sent events of a body: objects, the end marker and comments as they are."""
    parts = body.decode().split("\n\n")
    assert parts.pop() == ""
    return [json.loads(part[6:]) if part.startswith("data: {") else part for part in parts]


async def send(url: str, body: dict) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Post ``body`` to the chat route over a bare connection."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=connection, limit=SMALL)
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()
    return reader, writer
