"""The images of one request: fetched together, decoded and preprocessed on the media pool, in request order."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from blake3 import blake3

from smg.vision.decode import DEFAULT_OPTIONS, U8, DecodeOptions, decode_image
from smg.vision.families.base import Encoded, Family, Plan, Tensor, allocate
from smg.vision.fetch import Fetcher, Wanted
from smg.vision.pool import MediaPool

T = TypeVar("T")


class LoadedImage(NamedTuple):
    """``pixels`` uint8[H, W, 3]; ``digest`` is BLAKE3 of the encoded bytes, 64 lower-case hexadecimal digits.

    The digest is what engines and routing know an image by (spec multimodal 3, 12).
    """

    pixels: U8
    digest: str


class Images:
    """Loads and encodes images. Shares its fetcher and pool with other requests and owns neither."""

    def __init__(self, fetcher: Fetcher, pool: MediaPool, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        self._fetcher = fetcher
        self._pool = pool
        self._options = options

    async def load(self, wanted: Sequence[Wanted]) -> list[LoadedImage]:
        """Fetch and decode all images; one that is named twice is fetched and decoded once.

        Raises:
            GatewayError: status 400 naming the part, see ``Fetcher.fetch_all`` and ``decode_image``; ``overloaded``.
        """
        data = await self._fetcher.fetch_all(wanted)
        first = {id(one): index for index, one in reversed(list(enumerate(data)))}

        def decoding(index: int) -> Callable[[], LoadedImage]:
            encoded, param = data[index], wanted[index].param
            return lambda: LoadedImage(decode_image(encoded, self._options, param).pixels, blake3(encoded).hexdigest())

        indexes = sorted(first.values())
        loaded = await _all([self._pool.run(decoding(index)) for index in indexes])
        by_index = dict(zip(indexes, loaded, strict=True))
        return [by_index[first[id(one)]] for one in data]

    async def encode(self, family: Family, images: Sequence[LoadedImage]) -> Encoded:
        """Preprocess at least one image for ``family``; the images of a request run beside each other.

        Raises:
            GatewayError: ``invalid_value`` for a size the model can't take; ``overloaded``.
        """
        plans = [family.plan(image.pixels.shape[0], image.pixels.shape[1]) for image in images]
        tensor, parts = allocate(family, plans)

        def filling(image: LoadedImage, plan: Plan, part: Tensor) -> Callable[[], None]:
            return lambda: family.fill(image.pixels, plan, part, self._pool.split)

        jobs = zip(images, plans, parts, strict=True)
        await _all([self._pool.run(filling(*job)) for job in jobs])
        return Encoded(tensor, family.side(plans), plans)


async def _all(jobs: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order; the first failure cancels what has not started and is raised."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
