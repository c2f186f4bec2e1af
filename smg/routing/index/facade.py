"""Prefixes: the shared index as routing policies see it (spec routing 10.3; its events: 3)."""

import asyncio

from smg._native.hashes import xxh3_64
from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg.core.turns import turn
from smg.routing.candidates import Candidates, Place
from smg.routing.router import Query

# Blocks of a prompt that may take long to enter, and the time an event loop has for it at once, in seconds.
_MANY = 256
_STEP_SECS = 0.0005
# Nobody else holds these tasks.
_running: set[asyncio.Task[None]] = set()


def salt_of(model: str, kind: str, adapter: str = "") -> int:
    """What keeps prompts of different models, adapters and kinds ("tokens", "text", …) apart in the index."""
    return xxh3_64(f"{model}\0{adapter}\0{kind}".encode())


def adapter_of(name: str) -> int:
    """The number of a LoRA adapter in the keys of token blocks; 0 is the base model."""
    return (xxh3_64(name.encode()) or 1) if name else 0


class PrefixLesson:
    """A ``Lesson``: the worker in ``slot`` holds a prompt.

    Others that come while the prompt is being computed had better wait for it there than compute it again elsewhere,
    so it is entered at once. The ticket is taken now: should the worker be gone later, its successor in the slot learns
    nothing.

    A long prompt is mostly entered at once, too. But while a part of the index that many of its blocks lie in is laid
    out anew, that takes tens of milliseconds, which an event loop does not have: then the rest follows in turns.
    """

    def __init__(self, index: PrefixIndex, keys: PrefixKeys, slot: int) -> None:
        self._index = index
        self._keys = keys
        self._ticket = index.ticket(slot)
        self._held = index.depth(keys, (slot,))[0]
        self._rest: asyncio.Task[None] | None = None

    def assume(self) -> None:
        self._stop()
        loop = _loop() if self._keys.count >= _MANY else None
        if loop is None:
            self._index.insert(self._keys, self._ticket)
            return
        tick = self._index.next_tick()
        start = self._enter(tick, 0)
        if start >= 0:
            self._rest = loop.create_task(self._enter_rest(tick, start))
            _running.add(self._rest)
            self._rest.add_done_callback(_running.discard)

    # Entered once more: some of it may have been evicted, or withdrawn for another request.
    confirm = assume

    def withdraw(self) -> None:
        self._stop()
        self._index.withdraw(self._keys, self._ticket, self._held)

    def _enter(self, tick: int, start: int) -> int:
        return self._index.insert_some(self._keys, self._ticket, tick, start, _STEP_SECS)

    async def _enter_rest(self, tick: int, start: int) -> None:
        while start >= 0:
            await turn()
            start = self._enter(tick, start)

    def _stop(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None


def _loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that must not be held up, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Prefixes:
    """Asks and teaches the index. ``block`` is the size of its own token blocks; engines that tell of their cache may
    have others.
    """

    def __init__(self, index: PrefixIndex, block: int) -> None:
        self._index = index
        self._block = block
        self._salts: dict[tuple[str, str], int] = {}

    def match(self, query: Query, candidates: Candidates) -> PrefixKeys | None:
        """Note on ``candidates.placement`` how much of the prompt each holds; returns the prompt's keys.

        Tokens if there are any, else text; None when the query has neither.
        """
        if query.ids:
            salt = self._salt(query.model, "tokens")
            adapter = adapter_of(query.adapter)
            keys = self._index.token_keys(query.ids, self._block, salt, adapter)
            other = candidates.placement.match(self._index, keys)
            seen = {0, self._block}
            while other not in seen:
                # Some engines tell of their cache in blocks of another size.
                seen.add(other)
                other = candidates.placement.match(
                    self._index, PrefixKeys.of_tokens(query.ids, other, salt, adapter), False
                )
            return keys
        if query.text:
            keys = self._index.text_keys(query.text, self._salt(query.model, f"text\0{query.adapter}"))
            candidates.placement.match(self._index, keys)
            return keys
        return None

    def lesson(self, keys: PrefixKeys, place: Place) -> "PrefixLesson":
        """That ``place`` holds the prompt."""
        return PrefixLesson(self._index, keys, place.slot)

    def _salt(self, model: str, kind: str) -> int:
        found = self._salts.get((model, kind))
        if found is None:
            found = self._salts[model, kind] = salt_of(model, kind)
        return found
