"""Waiting for an engine's messages while rows of a table are fed with them (DESIGN 6, the pump)."""

import asyncio
from collections.abc import Sequence

from smg._native import stream_table
from smg._native.inlet import Inlet, Tokens
from smg._native.stream_feed import StreamFeed
from smg.core.stream import StreamTable


def feed_of(inlet: Inlet, table: StreamTable, rows: Sequence[int]) -> StreamFeed | None:
    """What feeds the messages of ``inlet`` to ``rows`` of ``table``; None for rows that cannot be fed natively."""
    if isinstance(table, stream_table.StreamTable) and StreamFeed.feeds(table, rows):
        return StreamFeed(inlet, table, rows)
    return None


async def fed(feed: StreamFeed, arrived: "asyncio.Future[None]", notes: list[Tokens]) -> None:
    """Let rows be fed until ``arrived``, that is until Python is needed; what tells of it is added to ``notes``."""
    try:
        if not feed.resume():
            # What Python has written last leaves at the end of this turn of the loop.
            asyncio.get_running_loop().call_soon(feed.arm)
        await arrived
    finally:
        # Also when the reader was cancelled: what was fed belongs to the answer, and the next one is told.
        notes += feed.pause()


def wake(future: "asyncio.Future[None] | None") -> None:
    """Let who waits for ``future`` go on."""
    if future is not None and not future.done():
        future.set_result(None)
