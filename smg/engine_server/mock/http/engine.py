"""MockHttpEngine: a scriptable HTTP engine on a real port, inside the calling process."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from smg.engine_server.mock.http.answers import ANSWERS, FORMS
from smg.engine_server.mock.http.facts import documents, served
from smg.engine_server.mock.http.forms import fields
from smg.engine_server.mock.http.pair import meetings, prompt_of
from smg.engine_server.mock.http.script import Answer, HttpFault, HttpScript, Server
from smg.engine_server.mock.transfer import Meeting, Role, TransferError, Transfers, fetch

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


class Seen(msgspec.Struct):
    """One generating request as the engine saw it; names of headers in lower case.

    ``state`` is ``running``, ``done``, ``failed`` (by a fault) or ``cancelled`` (the client has closed the connection).
    """

    path: str
    headers: list[tuple[str, str]]
    body: bytes
    state: Literal["running", "done", "failed", "cancelled"] = "running"

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def header(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for found, value in self.headers if found == name]


class _Reset(Exception):
    """Cut the connection now."""


class MockHttpEngine:
    """A mock HTTP engine, used like ``MockEngine``. ``server`` is the kind of server it plays.

    ``role`` makes it one of an SGLang pair, which hands prompts over as the mock gRPC engines do.
    """

    def __init__(
        self,
        script: HttpScript = HttpScript(),  # noqa: B008 - frozen
        port: int = 0,
        *,
        server: Server = "openai",
        host: str = "127.0.0.1",
        ssl: Any = None,
        role: Role = "regular",
        bootstrap_port: int = 0,
    ) -> None:
        self._role = role
        self._bootstrap_port = bootstrap_port
        self._transfers = Transfers("")
        self._script = script
        self._host = host
        self._port = port
        self._kind = server
        self._ssl = ssl
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._count = 0
        self.requests: list[Seen] = []
        self.asked: list[str] = []
        self.accepted = 0

    @property
    def address(self) -> str:
        """``host:port``, valid after ``start``."""
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        return f"{'https' if self._ssl else 'http'}://{self.address}"

    @property
    def bootstrap_port(self) -> int:
        """Where a prefill engine hands over, valid after ``start``."""
        return self._transfers.port

    @property
    def held(self) -> int:
        """Prompts that decode engines have not fetched."""
        return self._transfers.held

    @property
    def running(self) -> int:
        """Generating requests in progress."""
        return sum(seen.state == "running" for seen in self.requests)

    @property
    def connections(self) -> int:
        """Open connections of clients; ``accepted`` counts all there ever were."""
        return len(self._connections)

    @property
    def script(self) -> HttpScript:
        return self._script

    @script.setter
    def script(self, script: HttpScript) -> None:
        self._script = script
        self._count = 0

    async def start(self) -> str:
        """Listen and return the address. Raises RuntimeError when the port is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, ssl=self._ssl, limit=1 << 20)
        except OSError as error:
            raise RuntimeError(f"cannot listen on {self.address}: {error}") from error
        self._port = self._server.sockets[0].getsockname()[1]
        if self._role == "prefill":
            await self._transfers.start(self._host, self._bootstrap_port)
            self._bootstrap_port = self._transfers.port
        return self.address

    async def stop(self, grace: float | None = None) -> None:
        """Stop listening; running requests get ``grace`` seconds. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
            await self._transfers.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace or 0):
                while self.running:  # noqa: ASYNC110 - requests have no event of their own
                    await asyncio.sleep(0.01)
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def kill(self) -> None:
        """Cut every connection, as a crashed process does, and stop."""
        await self.stop()

    async def __aenter__(self) -> "MockHttpEngine":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    # -- connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.accepted += 1
        self._connections.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, _Reset):
            pass
        except ValueError:
            pass  # somebody tries whether this is another kind of server
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; False when the connection ends with it."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:-2])]
        length = int(dict(headers).get("content-length", "0"))
        body = await reader.readexactly(length) if length else b""
        path = target.partition("?")[0]
        self.asked.append(f"{method} {path}")
        if self._script.key and dict(headers).get("authorization") != f"Bearer {self._script.key}":
            await self._json(writer, {"error": {"message": "who are you?"}}, 401)
            return True
        if method == "GET":
            await self._document(writer, path)
            return True
        if path not in served(self._script, self._kind):
            await self._json(writer, {"detail": "Not Found"}, 404)
            return True
        return await self._generate(Seen(path, headers, body), reader, writer)

    async def _document(self, writer: asyncio.StreamWriter, path: str) -> None:
        if path == "/health" and path not in self._script.hidden:
            await self._answer(writer, b"", 200 if self._script.healthy else 503, "text/plain")
            return
        document = documents(self._script, self._kind, self._role, self.bootstrap_port).get(path)
        if isinstance(document, str):
            await self._answer(writer, document.encode(), 200, "text/plain")
        elif document is None:
            await self._json(writer, {"detail": "Not Found"}, 404)
        else:
            await self._json(writer, document, 200)

    # -- generations

    async def _generate(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer while watching for the client's leaving, which cancels what runs."""
        script = self._script
        self._count += 1
        faults = [fault for fault in script.faults if fault.first is None or self._count <= fault.first]
        self.requests.append(seen)
        work = asyncio.ensure_future(self._work(script, faults, seen, writer))
        gone = asyncio.ensure_future(_end_of(reader))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                seen.state = "cancelled"
                raise _Reset
            more = work.result()
            seen.state = "failed" if seen.state == "failed" else "done"
            return more
        except ConnectionError:
            seen.state = "cancelled"
            raise
        finally:
            if seen.state == "running":
                seen.state = "failed"
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _work(
        self, script: HttpScript, faults: list[HttpFault], seen: Seen, writer: asyncio.StreamWriter
    ) -> bool:
        if await self._strike(faults, None, seen, writer):
            return True
        try:
            body = (
                fields(seen.header("content-type"), seen.body)
                if seen.path in FORMS
                else msgspec.json.decode(seen.body, type=dict[str, Any])
            )
        except (msgspec.MsgspecError, ValueError) as error:
            await self._json(writer, {"object": "error", "message": str(error), "code": 400}, 400)
            return True
        rooms = meetings(body) if self._role != "regular" else []
        try:
            if self._role == "decode":
                for meeting in rooms:
                    await fetch(meeting, prompt_of(body), asyncio.Event())
        except TransferError as error:
            seen.state = "failed"
            await self._json(writer, {"error": {"message": f"KV transfer failed: {error}"}}, 500)
            return True
        answer = ANSWERS[seen.path](script, body)
        if rooms and self._role == "prefill":
            return await self._hand_over(script, rooms, answer, body, writer)
        if body.get("stream") and (answer.events or script.raw is not None):
            return await self._stream(script, faults, seen, answer, writer)
        await asyncio.sleep(script.delay)
        await self._strike(faults, 0, seen, writer)
        if isinstance(answer.whole, str):
            await self._answer(writer, answer.whole.encode(), 200, "text/plain; charset=utf-8")
        else:
            await self._json(writer, answer.whole, 200)
        return True

    async def _hand_over(
        self, script: HttpScript, rooms: list[Meeting], answer: Answer, body: Mapping[str, Any], writer: Any
    ) -> bool:
        """As a prefill engine: compute, and answer with one token once the other engine has what it needs."""
        await asyncio.sleep(script.delay)
        try:
            offered = [self._transfers.offer(meeting.key, prompt_of(body)) for meeting in rooms]
            for event in offered:
                await event.wait()
        finally:
            for meeting in rooms:
                self._transfers.withdraw(meeting.key)
        if body.get("stream"):
            return await self._stream(script, [], None, Answer(answer.events[:1], answer.whole), writer)
        await self._json(writer, answer.whole, 200)
        return True

    async def _stream(
        self,
        script: HttpScript,
        faults: list[HttpFault],
        seen: Seen | None,
        answer: Answer,
        writer: asyncio.StreamWriter,
    ) -> bool:
        chunked = script.framing == "chunked"
        framing = {"transfer-encoding": "chunked"} if chunked else {"connection": "close"}
        writer.write(_head(200, "text/event-stream; charset=utf-8", framing, script.headers))
        await self._strike(faults, 0, seen, writer)
        for count, event in enumerate(_events(script, answer), 1):
            await asyncio.sleep(script.delay)
            size = script.piece or len(event)
            for start in range(0, len(event), size):
                part = event[start : start + size]
                writer.write(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
                await writer.drain()
                if script.piece:
                    await asyncio.sleep(0)
            if await self._strike(faults, count, seen, writer):
                break
        if chunked:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        writer.write_eof()
        return False

    async def _strike(
        self, faults: list[HttpFault], events: int | None, seen: Seen | None, writer: asyncio.StreamWriter
    ) -> bool:
        """Apply the fault that is due; True when it has ended the answer. Faults are those of ``seen``."""
        for fault in faults:
            if fault.after != events or seen is None:
                continue
            seen.state = "failed"
            if fault.kind == "reset":
                raise _Reset
            if fault.kind == "stall":
                seen.state = "running"
                await asyncio.Event().wait()
            error = {"error": {"message": fault.message, "type": "server_error", "code": fault.status}}
            if fault.kind == "error":
                data = b"data: " + msgspec.json.encode(error) + b"\n\n"
                writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            else:
                more = {"retry-after": fault.retry_after} if fault.retry_after else {}
                await self._json(writer, error, fault.status, more)
            return True
        return False

    # -- bytes

    async def _json(
        self, writer: asyncio.StreamWriter, value: Any, status: int, more: Mapping[str, str] | None = None
    ) -> None:
        await self._answer(writer, msgspec.json.encode(value), status, "application/json", more)

    async def _answer(
        self, writer: asyncio.StreamWriter, body: bytes, status: int, kind: str, more: Mapping[str, str] | None = None
    ) -> None:
        framing = {"content-length": str(len(body)), **(more or {})}
        writer.write(_head(status, kind, framing, self._script.headers) + body)
        await writer.drain()


async def _end_of(reader: asyncio.StreamReader) -> None:
    """Return when the client has closed its side; it sends nothing while it waits for an answer."""
    await reader.read(1)


def _events(script: HttpScript, answer: Answer) -> list[bytes]:
    if script.raw is not None:
        return [script.raw]
    ends = script.ends.encode()
    events = [_name(event, ends) + b"data: " + msgspec.json.encode(event) + ends + ends for event in answer.events]
    marked = "meta_info" not in answer.whole and not any(map(_is_named, answer.events))
    return [*events, b"data: [DONE]" + ends + ends] if marked else events


def _is_named(event: Any) -> bool:
    """Whether an event has its type for a name, as those of Responses and Messages do."""
    kind = str(event.get("type")) if isinstance(event, dict) else ""
    return kind.startswith(("response.", "message_", "content_block_"))


def _name(event: Any, ends: bytes) -> bytes:
    return b"event: " + event["type"].encode() + ends if _is_named(event) else b""


def _head(status: int, kind: str, framing: Mapping[str, str], more: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", f"content-type: {kind}", "server: mock"]
    lines += [f"{name}: {value}" for name, value in (*framing.items(), *more)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
