"""What a mock engine does as one of a pair (spec engine-contract 5)."""

import asyncio
import uuid
from typing import Any

import grpc

from smg.engine_server.mock.ask import Ask
from smg.engine_server.mock.contract import Contract
from smg.engine_server.mock.transfer import Role, TransferError, Transfers, fetch


class Pair:
    """The part ``role`` of a pair; ``regular`` engines have none of it. ``connector`` is vLLM's way to hand over."""

    def __init__(self, role: Role, host: str, port: int, connector: str) -> None:
        self.role = role
        self.connector = connector
        self.transfers = Transfers(f"engine-{uuid.uuid4().hex[:8]}" if role == "prefill" else "")
        self._host = host
        self._port = port

    async def start(self) -> None:
        """Be there for decode engines, or as an encode engine for prefill engines. Raises OSError."""
        if self.role in ("prefill", "encode"):
            await self.transfers.start(self._host, self._port)
            self._port = self.transfers.port

    async def stop(self) -> None:
        """Cut decode engines off. Idempotent."""
        await self.transfers.stop()

    async def receive(self, contract: Contract, ask: Ask, abort: asyncio.Event, context: Any) -> bool:
        """As a decode engine: wait for the prompt's cache; False when aborted. Without a partner it computes itself."""
        meeting = contract.meeting(ask.request) if self.role == "decode" else None
        if meeting is None:
            return True
        try:
            return await fetch(meeting, ask.prompt, abort)
        except TransferError as error:
            await context.abort(grpc.StatusCode.INTERNAL, f"KV transfer failed: {error}")
            raise

    async def embeddings(self, contract: Contract, ask: Ask, abort: asyncio.Event, context: Any) -> bool:
        """As a prefill engine: wait for the embeddings of all media; False when aborted."""
        for meeting, content in contract.embeddings(ask.request) if self.role == "prefill" else ():
            try:
                if not await fetch(meeting, content, abort):
                    return False
            except TransferError as error:
                await context.abort(grpc.StatusCode.INTERNAL, f"the embeddings did not come: {error}")
        return True

    def encoded(self, room: int, content: bytes) -> None:
        """As an encode engine: have the embeddings of the item with this hash ready in ``room``."""
        self.transfers.offer(str(room), content)

    def offer(self, contract: Contract, ask: Ask) -> asyncio.Event | None:
        """As a prefill engine: the prompt is computed. The event tells when it was fetched; None when nobody will."""
        meeting = contract.meeting(ask.request) if self.role == "prefill" else None
        return None if meeting is None else self.transfers.offer(meeting.key, ask.prompt)

    async def hand_over(self, contract: Contract, ask: Ask, offered: asyncio.Event | None, abort: asyncio.Event) -> str:
        """As a prefill engine: what goes into the last message, which in some contracts waits for the decode engine."""
        meeting = contract.meeting(ask.request)
        if offered is None or meeting is None:
            return ""
        if meeting.waits:
            waiting = [asyncio.ensure_future(event.wait()) for event in (offered, abort)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()
        if "nixl" not in self.connector.casefold():
            return ""
        return contract.kv_params(ask.request, self._host, self.transfers.port, self.transfers.engine)

    def withdraw(self, contract: Contract, ask: Ask) -> None:
        """As a prefill engine: the request is over without having been handed over."""
        meeting = contract.meeting(ask.request) if self.role == "prefill" else None
        if meeting is not None:
            self.transfers.withdraw(meeting.key)
