"""A bare server that answers each request with exactly the bytes a test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Peer:
    """``answers`` are used up in turn, one per request; each is pieces of bytes, seconds to wait, or CLOSE.

    ``requests`` are the heads and bodies that came, ``accepted`` counts connections, ``left`` those that clients ended.
    """

    CLOSE = object()

    def __init__(self, answers: list[list[object]]) -> None:
        self.answers = answers
        self.requests: list[tuple[str, bytes]] = []
        self.accepted = 0
        self.left = 0
        self.sent = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(line.split(":")[1]) for line in head.split("\r\n") if "content-length" in line), 0)
                self.requests.append((head, await reader.readexactly(length)))
                for piece in self.answers.pop(0):
                    if piece is self.CLOSE:
                        return
                    if isinstance(piece, bytes):
                        writer.write(piece)
                        await writer.drain()
                        self.sent += len(piece)
                    else:
                        await asyncio.sleep(piece)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left += 1
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.close()


@asynccontextmanager
async def peer(*answers: list[object], ssl=None) -> AsyncIterator[Peer]:
    made = Peer(list(answers))
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=ssl)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
