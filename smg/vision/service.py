"""Vision: images of prompts to what engines take, for one worker process (spec multimodal 1, steps 4 to 8)."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smg.config.settings import MediaSettings
from smg.core.background import step_back
from smg.core.media import MediaInputs, MediaItem, Tensor
from smg.core.request import MediaPart
from smg.vision import jit
from smg.vision.cache import ProcessedCache
from smg.vision.decode import DecodeOptions
from smg.vision.expand import Anchor, Binding, check_anchors, expand
from smg.vision.families.base import Family
from smg.vision.families.base import Tensor as Array
from smg.vision.fetch import Fetcher, Wanted
from smg.vision.images import Images, LoadedImage
from smg.vision.model import Tokens, VisionModel, load_model
from smg.vision.normalise import Precision
from smg.vision.pool import MediaPool
from smg.vision.sources import MediaPolicy

_MODALITY = "image"


class Vision:
    """What requests with images share. Make it on the running event loop, with the first such request: until its
    kernels are compiled or loaded, in a thread of their own, slower code gives the same pixels."""

    def __init__(self, settings: MediaSettings, state_dir: str, max_bytes: int, max_tensor_bytes: int) -> None:
        """``max_bytes`` is what the images of one request may have, ``max_tensor_bytes`` what they may become.

        Raises ValueError for networks that are none.
        """
        self._settings = settings
        self._fetcher = Fetcher(policy(settings, max_bytes))
        self._pool = MediaPool(settings.threads)
        self._cache = ProcessedCache(settings.cache_mb << 20)
        options = DecodeOptions(max_pixels=settings.max_pixels, orient=not settings.ignore_orientation)
        self._images = Images(self._fetcher, self._pool, self._cache, options, max_tensor_bytes)
        threading.Thread(target=_warm, args=(state_dir,), name="smg-kernels", daemon=True).start()

    async def model(self, directory: str, name: str, tokens: Tokens) -> VisionModel | None:
        """See ``load_model``."""
        return await asyncio.to_thread(load_model, Path(directory), name, tokens, self._settings.resample)

    async def inputs(
        self, model: VisionModel, ids: Sequence[int], wanted: Sequence[tuple[str, MediaPart]], precision: str | None
    ) -> tuple[list[int], MediaInputs]:
        """Process the images ``wanted`` (path and part) and put them into the prompt ``ids``, which has a placeholder
        for each; returns the longer prompt. Without a ``precision`` (``core.media.Tensor.dtype``) no tensors are made.

        Raises:
            GatewayError: status 400 naming the part, or ``multimodal_prompt_contract_mismatch`` before anything is
                fetched; ``overloaded``.
        """
        check_anchors(ids, {_MODALITY: (model.search_id, len(wanted))})
        kind: Precision | None = precision  # type: ignore[assignment]
        images = await self._images.load(model, [Wanted(part, path) for path, part in wanted], kind)
        family = model.family(kind or "float32")
        replacements = [family.prompt(image.plan, model.vocabulary) for image in images]
        expanded, bindings = expand(ids, [Anchor(_MODALITY, model.search_id, replacements)])
        arrays = None if kind is None else await self._images.joined(family, images)
        return expanded, _describe(family, images, arrays, bindings, replacements[0].feature_id, (ids, len(expanded)))

    @property
    def cache(self) -> ProcessedCache:
        return self._cache

    async def close(self) -> None:
        """Drop what waits and close connections."""
        self._pool.close()
        await self._fetcher.close()


def policy(settings: MediaSettings, max_bytes: int) -> MediaPolicy:
    """The limits on fetching that ``settings`` ask for; ``max_bytes`` bounds a whole request."""
    domains = frozenset(name.lower().rstrip(".") for name in settings.allowed_domains)
    return MediaPolicy(
        allowed_domains=domains or None,
        allowed_networks=settings.allowed_networks,
        local_root=settings.allowed_local_path,
        timeout_secs=settings.fetch_timeout_secs,
        max_bytes=settings.image_max_bytes,
        max_total_bytes=max_bytes,
        max_items=settings.max_items,
        concurrency=settings.fetch_concurrency,
    )


def _describe(
    family: Family,
    images: Sequence[LoadedImage],
    arrays: Sequence[Array] | None,
    bindings: Sequence[Binding],
    token_id: int,
    prompt: tuple[Sequence[int], int],
) -> MediaInputs:
    side = family.side([image.plan for image in images])
    flat = family.layout.kind == "flat"
    items = []
    for index, (image, binding) in enumerate(zip(images, bindings, strict=True)):
        array = None if arrays is None else arrays[index]
        items.append(
            MediaItem(
                modality=_MODALITY,
                digest=image.digest.hex(),
                encoded=image.encoded,
                structural=binding.structural,
                patches=binding.patches,
                tensor=None if array is None else _tensor([array], family, None if flat else (1, *array.shape)),
                side={name: _plain(values[index : index + 1]) for name, values in side.items()},
            )
        )
    whole = None
    if arrays is not None:
        rows = sum(array.shape[0] for array in arrays)
        shape = (rows, *arrays[0].shape[1:]) if flat else (len(arrays), *arrays[0].shape)
        whole = _tensor(arrays, family, shape)
    return MediaInputs(
        items=items,
        tensor=whole,
        side={name: _plain(values) for name, values in side.items()},
        sizes=family.layout.sizes,
        keep_on_cpu=family.keep_on_cpu,
        token_id=token_id,
        anchored=prompt[0],
        expanded=prompt[1],
    )


def _tensor(arrays: Sequence[Array], family: Family, shape: tuple[int, ...] | None) -> Tensor:
    return Tensor(family.precision, shape or arrays[0].shape, tuple(arrays))


def _plain(array: Array) -> Tensor:
    return Tensor(array.dtype.name, array.shape, (np.ascontiguousarray(array),))


def _warm(state_dir: str) -> None:
    step_back()
    jit.warm(state_dir)
