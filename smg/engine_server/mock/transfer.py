"""How mock engines hand a computed prompt over: over TCP, as real ones do, so that a dead or wrong partner is noticed.

The prefill engine offers a digest of the prompt under the key both engines were given; the decode engine asks for it
and compares. Whoever asks first waits for the offer. One JSON object per line in each direction.
"""

import asyncio
import contextlib
import hashlib
import json
import struct
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

Role: TypeAlias = Literal["regular", "prefill", "decode", "encode"]


class Meeting(msgspec.Struct, frozen=True):
    """Where a request's cache is handed over: the prefill engine's address, and the key both engines know.

    ``engine`` is the id the prefill engine must have, empty where the contract names none. With ``waits`` the prefill
    engine ends its stream only when its cache has been fetched.
    """

    host: str
    port: int
    key: str
    engine: str = ""
    waits: bool = True


class TransferError(Exception):
    """The cache did not come, or is another prompt's."""


class _Offer:
    def __init__(self) -> None:
        self.digest = ""
        self.settled = asyncio.Event()
        self.fetched = asyncio.Event()


class Transfers:
    """The prefill engine's side: what it has to give, by key."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.port = 0
        self._offers: dict[str, _Offer] = {}
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def held(self) -> int:
        """Keys that were offered or asked for and are not settled between the two yet."""
        return len(self._offers)

    async def start(self, host: str, port: int) -> None:
        """Listen; ``port`` 0 picks one. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut everybody off. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.close()

    def offer(self, key: str, prompt: Sequence[int]) -> asyncio.Event:
        """Have the cache of ``prompt`` ready under ``key``; the event tells when it has been fetched.

        Raises:
            TransferError: the key is in use.
        """
        found = self._offers.setdefault(key, _Offer())
        if found.settled.is_set():
            raise TransferError(f"{key} is in use")
        found.digest = digest(prompt)
        found.settled.set()
        return found.fetched

    def withdraw(self, key: str) -> None:
        """Give nothing (more) under ``key``: who waits for it fails."""
        found = self._offers.pop(key, None)
        if found is not None:
            found.digest = ""
            found.settled.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            asked = json.loads(await reader.readline())
            if asked["engine"] in ("", self.engine):
                await self._give(asked["key"], reader, writer)
        except (OSError, ValueError, KeyError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _give(self, key: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = self._offers.setdefault(key, _Offer())
        left = asyncio.ensure_future(reader.read())
        settled = asyncio.ensure_future(found.settled.wait())
        await asyncio.wait({left, settled}, return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        if left.done() or not found.digest:
            if not found.settled.is_set():
                self._offers.pop(key, None)
            return
        left.cancel()
        writer.write(json.dumps({"digest": found.digest}).encode() + b"\n")
        await writer.drain()
        self._offers.pop(key, None)
        found.fetched.set()


async def fetch(meeting: Meeting, prompt: Sequence[int], abort: asyncio.Event) -> bool:
    """Get the cache of ``prompt``; False when ``abort`` came first.

    Raises:
        TransferError: the other engine is gone, has nothing, or has another prompt's.
    """
    getting = asyncio.ensure_future(_get(meeting))
    aborted = asyncio.ensure_future(abort.wait())
    try:
        await asyncio.wait({getting, aborted}, return_when=asyncio.FIRST_COMPLETED)
        if not getting.done():
            return False
        if getting.result() != digest(prompt):
            raise TransferError("the cache is another prompt's")
        return True
    finally:
        getting.cancel()
        aborted.cancel()
        with contextlib.suppress(asyncio.CancelledError, TransferError):
            await getting


async def _get(meeting: Meeting) -> Any:
    try:
        reader, writer = await asyncio.open_connection(meeting.host, meeting.port)
        try:
            writer.write(json.dumps({"key": meeting.key, "engine": meeting.engine}).encode() + b"\n")
            line = await reader.readline()
        finally:
            writer.close()
        return json.loads(line)["digest"]
    except (OSError, ValueError, KeyError) as error:
        raise TransferError(f"the cache did not come: {error}") from None


def digest(prompt: Sequence[int]) -> str:
    """What stands for the cache of ``prompt``."""
    return hashlib.sha256(struct.pack(f"<{len(prompt)}I", *prompt)).hexdigest()
