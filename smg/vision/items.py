"""The media of one request: each decoded and preprocessed by itself on the media pool, then joined."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from blake3 import blake3

from smg.core import clock
from smg.core.background import background
from smg.core.errors import GatewayError
from smg.core.media import Encoded
from smg.telemetry.metrics import Metrics
from smg.vision.cache import Processed, ProcessedCache
from smg.vision.families.base import Layout, Replacement, Tensor, Vocabulary
from smg.vision.normalise import Precision
from smg.vision.pool import MediaPool, Split

T = TypeVar("T")

# Hashing less than this is quicker than handing it to a thread.
_HASH_INLINE = 1 << 16


class MediaFamily(Protocol):
    """What a model's family says of items, whatever their kind; plans are its own."""

    @property
    def name(self) -> str: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def keep_on_cpu(self) -> tuple[str, ...]: ...
    @property
    def precision(self) -> Precision: ...

    def side(self, plans: Sequence[Any]) -> dict[str, Tensor]: ...

    def prompt(self, plan: Any, vocabulary: Vocabulary) -> Replacement: ...


class Medium(Protocol):
    """One kind of media to one model.

    ``kind`` is that of ``MediaPart``. ``search_id`` is what its ``placeholder`` becomes in a prompt, ``limit`` how many
    items a request may have. ``settings`` tells apart everything that decides what items become, but for the element
    type.
    """

    @property
    def kind(self) -> str: ...
    @property
    def placeholder(self) -> str: ...
    @property
    def limit(self) -> int: ...
    @property
    def search_id(self) -> int: ...
    @property
    def settings(self) -> bytes: ...
    @property
    def vocabulary(self) -> Vocabulary: ...

    def family(self, precision: Precision) -> MediaFamily:
        """The family for tensors of this element type."""
        ...

    def weight(self, encoded: Encoded) -> int:
        """About what the item costs, in pixels of an image; takes no longer than reading its header."""
        ...

    def process(self, encoded: Encoded, precision: Precision | None, split: Split) -> Processed:
        """Decode and preprocess one item; without ``precision`` it is only planned. CPU-bound.

        Raises:
            GatewayError: 400, without a path.
        """
        ...


def becomes_too_large(kind: str, most: int, param: str | None = None) -> GatewayError:
    """What an item is refused with that becomes more than ``most`` bytes."""
    return GatewayError(
        "media_too_large", f"the {kind} input becomes more than {most} bytes for the engine", param=param
    )


class Room:
    """Bytes that the media of one request may still become; ``most`` at first. The request's turns go by it, too."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most

    def take(self, size: int, kind: str, param: str | None) -> None:
        """Use ``size`` bytes for an item. Raises GatewayError ``media_too_large`` when there are not so many."""
        self._left -= size
        if self._left < 0:
            raise becomes_too_large(kind, self._most, param)


class Fetched(NamedTuple):
    """One item's bytes, and where in the request it stands."""

    encoded: Encoded
    param: str | None


class LoadedItem(NamedTuple):
    """``encoded`` are the client's bytes; ``digest`` tells bytes and processing apart (32 bytes)."""

    encoded: Encoded
    digest: bytes
    processed: Processed

    @property
    def plan(self) -> Any:
        return self.processed.plan


class Items:
    """Loads items for models. Shares its pool and cache with other requests and owns none of them."""

    def __init__(self, pool: MediaPool, cache: ProcessedCache, metrics: Metrics | None = None) -> None:
        self._pool = pool
        self._cache = cache
        self._metrics = metrics

    async def load(
        self, medium: Medium, fetched: Sequence[Fetched], precision: Precision | None, room: Room
    ) -> list[LoadedItem]:
        """Decode and preprocess items of one kind, in order; without ``precision`` they are only planned.

        One that is there twice is processed once.

        Raises:
            GatewayError: status 400 naming the part (see ``Medium.process``, ``Room``); ``overloaded``.
        """

        async def one(item: Fetched) -> LoadedItem:
            loaded = await self._one(medium, item, precision, room)
            room.take(loaded.processed.nbytes, medium.kind, item.param)
            return loaded

        return await together([one(item) for item in fetched])

    async def _one(self, medium: Medium, item: Fetched, precision: Precision | None, room: Room) -> LoadedItem:
        encoded, param = item
        identity = medium.settings
        if len(encoded) <= _HASH_INLINE:
            digest = blake3(b"".join((encoded, identity))).digest()
        else:
            digest = await background(lambda: blake3(encoded).update(identity).digest())

        try:
            processed = await self._cache.get(
                digest + (precision or "").encode(), lambda: self._process(medium, encoded, precision, room)
            )
        except GatewayError as error:
            if error.status != 400:
                raise
            # The work may have been another request's, so the place is told here.
            raise GatewayError(error.code, error.message, param=param, detail=error.detail) from None
        if self._metrics is not None:
            self._metrics.mm_items_total.inc(medium.kind)
        return LoadedItem(encoded, digest, processed)

    async def _process(self, medium: Medium, encoded: Encoded, precision: Precision | None, room: Room) -> Processed:
        def job() -> tuple[Processed, float]:
            started = clock.monotonic()
            return medium.process(encoded, precision, self._pool.split), clock.monotonic() - started

        weight = await background(medium.weight, encoded)
        processed, seconds = await self._pool.run(job, room, weight)
        if self._metrics is not None:
            self._metrics.mm_processed_total.inc(medium.kind)
            self._metrics.mm_decode_seconds.observe(processed.decode_secs, medium.kind)
            self._metrics.mm_preprocess_seconds.observe(seconds - processed.decode_secs, medium.kind)
        return processed

    async def joined(self, layout: Layout, items: Sequence[LoadedItem], room: Room | None = None) -> list[Tensor]:
        """The items' tensors, contiguous, so that their bytes in order are those of the batch.

        Items of unequal size in a batched layout are padded with zeros to the largest.
        """
        tensors = [item.processed.tensor for item in items]
        assert all(tensor is not None for tensor in tensors), "load() had no precision"
        found = [tensor for tensor in tensors if tensor is not None]
        largest = tuple(np.max([tensor.shape for tensor in found], axis=0))
        if layout.kind == "flat" or all(tensor.shape == largest for tensor in found):
            return found
        return await together([self._pool.run(_padding(tensor, largest), room, tensor.size) for tensor in found])


def _padding(tensor: Tensor, shape: tuple[int, ...]) -> Callable[[], Tensor]:
    def job() -> Tensor:
        if tensor.shape == shape:
            return tensor
        out = np.zeros(shape, tensor.dtype)
        out[tuple(slice(size) for size in tensor.shape)] = tensor
        return out

    return job


async def together(jobs: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order; the first failure cancels what has not started and is raised."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
