"""KvFeed: follows what one engine rank tells of its KV cache (spec routing 3, engine-contract 2.12).

    SYNCING → LIVE ⇄ RESYNC

In SYNCING and RESYNC the blocks are entered as they come, but the rank is still scored by what the gateway has sent
there; LIVE says that the exact plane may be asked instead. A rank becomes live with a complete snapshot, or with the
first chain from a prompt's start since its blocks were last dropped. Whatever could make the exact plane wrong drops
the blocks: knowing nothing costs a prefill, knowing something false costs one on the wrong engine every time.

No IO here: batches and times come from outside.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias

from smg.engines.kv_events import Chunk, Cleared, KvBatch, Removed, Stored

State: TypeAlias = Literal["syncing", "live", "resync"]

ORPHANS = 4096  # chains that wait for their parent
ORPHAN_SECS = 60.0
_SKIPPED = 1 << 16


class Blocks(Protocol):
    """The index of one rank's blocks, as ``smg._native.event_blocks.EventBlocks``."""

    @property
    def block(self) -> int: ...

    def __len__(self) -> int: ...

    def __contains__(self, name: int) -> bool: ...

    def clear(self) -> None: ...

    def store(self, hashes: list[int], tokens: list[int], parent: int | None = None, adapter: int = 0) -> bool: ...

    def remove(self, hashes: list[int]) -> None: ...

    def settle(self) -> bool: ...

    def repair(self) -> bool: ...


class Place(Protocol):
    """Where a rank is in the index."""

    def blocks(self, size: int) -> Blocks:
        """Begin with no blocks, of ``size`` tokens each."""
        ...

    def live(self, size: int) -> None:
        """Score the rank by its blocks of ``size`` tokens from now on; 0: by what the gateway has sent."""
        ...

    def forget_sent(self) -> None:
        """The engine's cache is empty: what the gateway has sent is not there any more."""
        ...

    def adapter(self, name: str) -> int:
        """The number of a LoRA adapter in the keys of blocks."""
        ...


class KvFeed:
    """State, cursor and orphans of one rank. Counts are since the start: ``events``, ``gaps``, ``resyncs``, ``orphans``
    (chains that had to wait for a parent), ``refused`` (that did not fit the rank's block size).
    """

    def __init__(self, place: Place) -> None:
        self.state: State = "syncing"
        self.last: int | None = None  # number of the last batch
        self.timestamp = 0.0  # of the last batch
        self.snapshots = False  # whether this engine sends snapshots
        self.events = self.gaps = self.resyncs = self.orphans = self.refused = 0
        self._place = place
        self._blocks: Blocks | None = None
        self._copies: dict[int, int] = {}  # beyond the first
        self._waiting: dict[int, list[tuple[Stored, float]]] = {}  # chains by missing parent, the oldest first
        self._skipped: set[int] = set()

    @property
    def size(self) -> int:
        """Blocks held."""
        return 0 if self._blocks is None else len(self._blocks)

    def apply(self, batch: KvBatch, now: float) -> bool:
        """Take over a batch. True: a snapshot is needed, and this engine gives them: subscribe anew from 0."""
        if batch.load_only:
            return False
        before = self.resyncs
        if not self._in_order(batch):
            return False
        self.last = batch.sequence
        self.timestamp = max(batch.timestamp, self.timestamp)
        for event in batch.events:
            self.events += 1
            match event:
                case Stored():
                    self._store(event, now)
                case Removed():
                    self._remove(event)
                case Cleared():
                    self._cleared(batch.chunk)
        if batch.chunk is not None and batch.chunk.index + 1 >= batch.chunk.count and batch.chunk.complete:
            self._go_live()
        return self.snapshots and self.resyncs != before and self.state != "live"

    def drop(self, *, restarted: bool = False) -> None:
        """Forget all blocks and the cursor: the stream was lost for too long, or the engine says it cannot go on.

        ``restarted``: what the gateway has sent is not there any more either.
        """
        self.last = None
        self._resync()
        if restarted:
            # The next process may have blocks of another size.
            self._blocks = None
            self._place.forget_sent()

    def repair(self, *, emptied: bool) -> None:
        """Enter all blocks once more when a part of the index was emptied; take out what could not be taken out."""
        if self._blocks is not None:
            self._blocks.repair() if emptied else self._blocks.settle()

    def expire(self, now: float) -> None:
        """Give up on chains whose parent has not come in time."""
        for parent in [parent for parent, chains in self._waiting.items() if chains[0][1] <= now]:
            chains = [chain for chain in self._waiting.pop(parent) if chain[1] > now]
            if chains:
                self._waiting[parent] = chains

    def _in_order(self, batch: KvBatch) -> bool:
        """Move the cursor over gaps and restarts; False for a batch that was seen before."""
        if batch.chunk is not None:
            self.snapshots = True
            # A snapshot begins with "cleared", and each of its chunks has its own number.
            return True
        if self.last is None or batch.sequence == self.last + 1:
            return True
        if batch.sequence > self.last + 1:
            self.gaps += 1
            self._resync()
            return True
        if batch.timestamp > self.timestamp and batch.sequence < self.last:
            # The engine counts anew: it is another process, with an empty cache.
            self.drop(restarted=True)
            return True
        return False

    def _cleared(self, chunk: Chunk | None) -> None:
        live = self.state == "live"
        self._drop_blocks()
        if chunk is not None:
            # The state follows; until all of it is here, what was sent speaks.
            self.state = "resync" if live else self.state
            return
        self._place.forget_sent()
        if live:
            # Complete as before: it holds nothing.
            self._go_live()

    def _store(self, event: Stored, now: float) -> None:
        chains = [event]
        while chains:
            chain = chains.pop()
            if chain.parent is not None and chain.parent in self._skipped:
                self._skip([*chain.hashes, *chain.skipped])
            elif chain.parent is not None and (self._blocks is None or chain.parent not in self._blocks):
                self._wait(chain, now)
            elif chain.hashes and not self._enter(chain):
                return
            else:
                self._skip(chain.skipped)
                chains += self._found([*chain.hashes, *chain.skipped])

    def _enter(self, chain: Stored) -> bool:
        """Index one chain whose parent is known; False when the blocks were dropped over it."""
        if self._blocks is None:
            self._blocks = self._place.blocks(chain.block_size)
        if chain.block_size != self._blocks.block:
            self.refused += 1
            self._skip(chain.hashes)
            return True
        for name in chain.hashes:
            if name in self._blocks:
                self._copies[name] = self._copies.get(name, 0) + 1
        adapter = self._place.adapter(chain.adapter)
        if not self._blocks.store(list(chain.hashes), list(chain.tokens), chain.parent, adapter):
            self._resync()
            return False
        if chain.parent is None:
            self._go_live()
        return True

    def _remove(self, event: Removed) -> None:
        gone = []
        for name in event.hashes:
            self._skipped.discard(name)
            copies = self._copies.get(name)
            if copies is None:
                gone.append(name)
            elif copies == 1:
                del self._copies[name]
            else:
                self._copies[name] = copies - 1
        if self._waiting:
            self._forget_waiting(set(gone))
        if self._blocks is not None and gone:
            self._blocks.remove(gone)

    # chains whose parent is not known

    def _wait(self, chain: Stored, now: float) -> None:
        assert chain.parent is not None
        self.orphans += 1
        if sum(map(len, self._waiting.values())) >= ORPHANS:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
        self._waiting.setdefault(chain.parent, []).append((chain, now + ORPHAN_SECS))

    def _found(self, names: Iterable[int]) -> list[Stored]:
        """Chains that have waited for one of ``names``."""
        if not self._waiting:
            return []
        return [chain for name in names for chain, _ in self._waiting.pop(name, ())]

    def _forget_waiting(self, gone: set[int]) -> None:
        """A chain of which a part is gone before its parent has come is never put together."""
        for parent, chains in list(self._waiting.items()):
            left = [chain for chain in chains if parent not in gone and gone.isdisjoint(chain[0].hashes)]
            if left:
                self._waiting[parent] = left
            else:
                del self._waiting[parent]

    def _skip(self, names: Sequence[int]) -> None:
        """Remember blocks that are left out, since nothing below them can be indexed either."""
        if len(self._skipped) + len(names) > _SKIPPED:
            self._skipped.clear()
        self._skipped.update(names)

    # state

    def _go_live(self) -> None:
        if self._blocks is None:
            # A complete snapshot of nothing; of what size its blocks will be is not known yet.
            self._place.forget_sent()
            return
        self.state = "live"
        self._place.live(self._blocks.block)

    def _resync(self) -> None:
        self.state = "resync"
        self.resyncs += 1
        self._drop_blocks()

    def _drop_blocks(self) -> None:
        self._place.live(0)
        if self._blocks is not None:
            self._blocks.clear()
        self._copies.clear()
        self._waiting.clear()
        self._skipped.clear()
