"""The images of one request: fetched together, each decoded and preprocessed by itself on the media pool, joined."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from blake3 import blake3

from smg.core.background import background
from smg.core.errors import GatewayError
from smg.vision.cache import Processed, ProcessedCache
from smg.vision.decode import DEFAULT_OPTIONS, DecodeOptions, decode_image
from smg.vision.families.base import Family, Plan, Tensor
from smg.vision.fetch import Fetcher, Wanted
from smg.vision.model import VisionModel
from smg.vision.normalise import STORAGE, Precision
from smg.vision.pool import MediaPool

T = TypeVar("T")

# Hashing less than this is quicker than handing it to a thread.
_HASH_INLINE = 1 << 16


class LoadedImage(NamedTuple):
    """``encoded`` are the client's bytes; ``digest`` tells bytes and processing apart (32 bytes)."""

    encoded: bytes
    digest: bytes
    processed: Processed

    @property
    def plan(self) -> Plan:
        return self.processed.plan


class Images:
    """Loads images for models. Shares its fetcher, pool and cache with other requests and owns none of them.

    ``max_tensor_bytes`` bounds what the images of one request become.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        pool: MediaPool,
        cache: ProcessedCache,
        options: DecodeOptions = DEFAULT_OPTIONS,
        max_tensor_bytes: int = 256 << 20,
    ) -> None:
        self._fetcher = fetcher
        self._pool = pool
        self._cache = cache
        self._options = options
        self._max_tensor_bytes = max_tensor_bytes
        self._settings = repr(options).encode()

    async def load(
        self, model: VisionModel, wanted: Sequence[Wanted], precision: Precision | None
    ) -> list[LoadedImage]:
        """Fetch, decode and preprocess all images, in order; without ``precision`` they are only planned.

        One that is named twice is fetched and processed once.

        Raises:
            GatewayError: status 400 naming the part (see ``Fetcher.fetch_all``, ``decode_image``, ``Family.plan``);
                ``media_too_large`` for all together; ``overloaded``.
        """
        data = await self._fetcher.fetch_all(wanted)
        left = [self._max_tensor_bytes]

        async def one(encoded: bytes, param: str | None) -> LoadedImage:
            image = await self._one(model, encoded, precision, param)
            left[0] -= image.processed.nbytes
            if left[0] < 0:
                message = f"the images become more than {self._max_tensor_bytes} bytes for the engine"
                raise GatewayError("media_too_large", message, param=param)
            return image

        return await _all([one(encoded, item.param) for encoded, item in zip(data, wanted, strict=True)])

    async def _one(
        self, model: VisionModel, encoded: bytes, precision: Precision | None, param: str | None
    ) -> LoadedImage:
        identity = model.settings + self._settings
        if len(encoded) <= _HASH_INLINE:
            digest = blake3(encoded + identity).digest()
        else:
            digest = await background(lambda: blake3(encoded).update(identity).digest())
        job = _processing(model, encoded, precision, self._options, self._pool)
        try:
            processed = await self._cache.get(digest + (precision or "").encode(), lambda: self._pool.run(job))
        except GatewayError as error:
            if error.status != 400:
                raise
            # The work may have been another request's, so the place is told here.
            raise GatewayError(error.code, error.message, param=param, detail=error.detail) from None
        return LoadedImage(encoded, digest, processed)

    async def joined(self, family: Family, images: Sequence[LoadedImage]) -> list[Tensor]:
        """The images' tensors, contiguous, so that their bytes in order are those of the batch.

        Images of unequal size in a batched layout are padded with zeros to the largest.
        """
        tensors = [image.processed.tensor for image in images]
        assert all(tensor is not None for tensor in tensors), "load() had no precision"
        found = [tensor for tensor in tensors if tensor is not None]
        largest = tuple(np.max([tensor.shape for tensor in found], axis=0))
        if family.layout.kind == "flat" or all(tensor.shape == largest for tensor in found):
            return found
        return await _all([self._pool.run(_padding(tensor, largest)) for tensor in found])


def _processing(
    model: VisionModel, encoded: bytes, precision: Precision | None, options: DecodeOptions, pool: MediaPool
) -> Callable[[], Processed]:
    """The job that decodes and preprocesses one image; its pixels live no longer than the job."""

    def job() -> Processed:
        pixels = decode_image(encoded, options).pixels
        family = model.family(precision or "float32")
        plan = family.plan(pixels.shape[0], pixels.shape[1])
        if precision is None:
            return Processed(plan, None)
        out = np.empty(plan.shape, STORAGE[precision])
        family.fill(pixels, plan, out, pool.split)
        out.flags.writeable = False
        return Processed(plan, out)

    return job


def _padding(tensor: Tensor, shape: tuple[int, ...]) -> Callable[[], Tensor]:
    def job() -> Tensor:
        if tensor.shape == shape:
            return tensor
        out = np.zeros(shape, tensor.dtype)
        out[tuple(slice(size) for size in tensor.shape)] = tensor
        return out

    return job


async def _all(jobs: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order; the first failure cancels what has not started and is raised."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
