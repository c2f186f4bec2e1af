"""Long steps of requests take turns on the event loop (field case PF-01).

What a prompt of 100,000 tokens costs there is a few steps of one or two milliseconds. When eight such prompts come at
once their steps would follow each other before the loop looks at its sockets again, and every stream would wait for all
of them.
"""

import asyncio
import weakref

from smg._native.id_list import LONG_IDS

# What a request costs the loop at once above so many bytes of body or tokens of prompt is worth a turn.
LONG_BODY = 64 << 10
LONG_PROMPT = LONG_IDS
# Time for everybody else between two turns, in seconds: streams that are due now, and those that follow from them.
_BREATH_SECS = 0.001


class Turns:
    """Of all who wait, one goes on at a time, and the loop has been idle or elsewhere before it does."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __call__(self) -> None:
        """Wait for the caller's turn; it lasts until the caller awaits anything. First come, first served."""
        async with self._lock:
            await asyncio.sleep(_BREATH_SECS)


_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = weakref.WeakKeyDictionary()


async def turn() -> None:
    """Wait for a turn on the running loop."""
    loop = asyncio.get_running_loop()
    turns = _of_loops.get(loop)
    if turns is None:
        turns = _of_loops[loop] = Turns()
    await turns()
