"""An HTTP/2 peer for tests that says exactly what a test wants: frames to bytes and back, and a scripted server."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

import hpack

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 3, 4, 5

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ANSWER = ((":status", "200"), ("content-type", "application/grpc"))
OK = (("grpc-status", "0"),)


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def word(self) -> int:
        """The number in a WINDOW_UPDATE or RST_STREAM."""
        return int.from_bytes(self.payload, "big")


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def parse(data: bytes) -> list[Frame]:
    """Whole frames; a preface in front is dropped."""
    data, out = data.removeprefix(PREFACE), []
    while data:
        size = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + size, "a frame is cut"
        out.append(Frame(data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return out


def settings(values: dict[int, int] | None = None) -> bytes:
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", *pair) for pair in (values or {}).items()))


def block(fields: Iterable[tuple[str, str]], encoder: hpack.Encoder | None = None) -> bytes:
    """A header block; without Huffman coding, which is slow in Python, unless an encoder comes along."""
    return bytes((encoder or hpack.Encoder()).encode(list(fields), huffman=encoder is not None))


def headers(stream: int, fields: Iterable[tuple[str, str]] = ANSWER, end: bool = False) -> bytes:
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block(fields))


def trailers(stream: int, status: int = 0, *more: tuple[str, str]) -> bytes:
    return headers(stream, (("grpc-status", str(status)), *more), end=True)


def data(stream: int, payload: bytes, end: bool = False, size: int = 16384) -> bytes:
    """DATA frames of up to ``size`` bytes."""
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
    last = len(pieces) - 1
    return b"".join(
        frame(DATA, END_STREAM if end and at == last else 0, stream, piece) for at, piece in enumerate(pieces)
    )


def message(payload: bytes, flag: int = 0) -> bytes:
    """A gRPC message with its prefix."""
    return bytes((flag,)) + len(payload).to_bytes(4, "big") + payload


def window(stream: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, stream=stream, payload=increment.to_bytes(4, "big"))


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, stream=stream, payload=code.to_bytes(4, "big"))


def goaway(last: int, code: int = 0, text: bytes = b"") -> bytes:
    return frame(GOAWAY, payload=struct.pack(">II", last, code) + text)


class Request(NamedTuple):
    stream: int
    headers: dict[str, str]
    body: bytes


class Session:
    """One accepted connection. ``seen`` are all frames the client has sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.seen: list[Frame] = []
        self._decoder = hpack.Decoder()
        self._fields: dict[str, str] = {}
        self._partial: dict[int, tuple[dict[str, str], bytes]] = {}

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def greet(self, values: dict[int, int] | None = None) -> None:
        """Take the preface and send SETTINGS."""
        assert await self.reader.readexactly(len(PREFACE)) == PREFACE
        self.send(settings(values))

    async def read(self) -> Frame:
        head = await self.reader.readexactly(9)
        payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
        self.seen.append(found := Frame(head[3], head[4], int.from_bytes(head[5:], "big"), payload))
        if found.kind == HEADERS:
            # Each of them, whoever wants to know: they change the state of the decompression.
            assert found.flags & END_HEADERS
            self._fields = dict(self._decoder.decode(payload))
        return found

    async def until(self, kind: int, stream: int | None = None) -> Frame:
        """Read up to the next frame of that kind (on that stream)."""
        while True:
            found = await self.read()
            if found.kind == kind and stream in (None, found.stream):
                return found

    async def request(self) -> Request:
        """Read up to the end of the next request. One whose headers were read otherwise is passed over."""
        while True:
            found = await self.read()
            if found.kind == HEADERS:
                self._partial[found.stream] = (self._fields, b"")
            elif found.kind == DATA and found.stream in self._partial:
                fields, body = self._partial.pop(found.stream)
                if found.flags & END_STREAM:
                    return Request(found.stream, fields, body + found.payload)
                self._partial[found.stream] = (fields, body + found.payload)

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while True:
                await self.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


def answer(stream, *messages):
    """A whole answer."""
    return headers(stream) + b"".join(data(stream, message(each)) for each in messages) + trailers(stream)


async def answering(session: Session) -> None:
    """Script: answer every request with its own body."""
    await session.greet()
    await answering_more(session)


async def answering_more(session: Session) -> None:
    """As ``answering``, for a session that has been greeted."""
    while True:
        request = await session.request()
        session.send(answer(request.stream, request.body[5:]))


def answering_pings(count: int, pings: list[bytes]) -> Callable[[Session], Awaitable[None]]:
    """Script: say nothing to a request but the answers to its first ``count`` pings, which ``pings`` gets."""

    async def script(session: Session) -> None:
        await session.greet()
        await session.request()
        for _ in range(count):
            pings.append((await session.until(PING)).payload)
            session.send(frame(PING, ACK, payload=pings[-1]))
        await session.gone()

    return script


@asynccontextmanager
async def serve_raw(script: Callable[[Session], Awaitable[None]], **options) -> AsyncIterator[str]:
    """Run ``script`` for each connection; yields ``host:port``. A failed script fails the test."""
    tasks: list[asyncio.Task] = []

    async def run(session: Session) -> None:
        try:
            await script(session)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            session.writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(run(Session(reader, writer))))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, **{"limit": 64 << 20, **options})
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
