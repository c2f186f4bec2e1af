"""Vision: media of prompts to what engines take, for one worker process (spec multimodal 1, steps 4 to 8)."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from smg.config.settings import MediaSettings
from smg.core.background import step_back
from smg.core.media import MediaInputs
from smg.core.request import MediaPart
from smg.telemetry.metrics import Metrics
from smg.vision import jit
from smg.vision.audio.decode import AudioLimits
from smg.vision.audio.model import audio_medium
from smg.vision.cache import ProcessedCache
from smg.vision.decode import DecodeOptions
from smg.vision.expand import Anchor, check_anchors, expand
from smg.vision.fetch import Fetcher, Wanted
from smg.vision.images import ImageMedium
from smg.vision.inputs import Group, describe
from smg.vision.items import Fetched, Items, Medium, Room, together
from smg.vision.model import Tokens, read_files, vision_model
from smg.vision.normalise import Precision
from smg.vision.pool import MediaPool
from smg.vision.sources import MediaPolicy
from smg.vision.video.decode import VideoLimits
from smg.vision.video.model import video_medium

log = logging.getLogger("smg.vision")

# Compiling takes some ten seconds of a processor, at a lower priority than what streams.
KERNEL_WAIT_SECS = 45.0


class Vision:
    """What requests with media share. Make it on the running event loop, with the first such request. Items wait until
    the kernels are compiled or loaded, in a thread of their own, but not for ever: slower code makes the same."""

    def __init__(
        self,
        settings: MediaSettings,
        state_dir: str,
        max_bytes: int,
        max_tensor_bytes: int,
        metrics: Metrics | None = None,
    ) -> None:
        """``max_bytes`` is what the media of one request may have, ``max_tensor_bytes`` what they may become.

        Raises ValueError for networks that are none.
        """
        self._settings = settings
        self._fetcher = Fetcher(policy(settings, max_bytes), metrics=metrics)
        self._pool = MediaPool(settings.threads)
        self._cache = ProcessedCache(settings.cache_mb << 20)
        self._items = Items(self._pool, self._cache, metrics)
        self._max_tensor_bytes = max_tensor_bytes
        self._image_options = DecodeOptions(max_pixels=settings.max_pixels, orient=not settings.ignore_orientation)
        self._audio_limits = AudioLimits(settings.audio_max_secs, timeout_secs=settings.decode_timeout_secs)
        self._video_limits = VideoLimits(
            settings.video_max_decoded_bytes,
            max_tensor_bytes,
            settings.max_pixels,
            settings.decode_timeout_secs,
            settings.threads,
        )
        self._kernels = asyncio.Event()
        arguments = (state_dir, asyncio.get_running_loop(), self._kernels)
        threading.Thread(target=_warm, args=arguments, name="smg-kernels", daemon=True).start()

    async def model(self, directory: str, name: str, tokens: Tokens, kind: str = "image") -> Medium | None:
        """Media of ``kind`` to the model called ``name`` whose files are in ``directory``; None when it takes none.

        Raises:
            GatewayError: ``multimodal_config_missing`` or ``invalid_multimodal_request`` (400), see ``read_files`` and
                the media.
        """
        return await asyncio.to_thread(self._medium, Path(directory), name, tokens, kind)

    def _medium(self, directory: Path, name: str, tokens: Tokens, kind: str) -> Medium | None:
        files = read_files(directory)
        if kind == "audio":
            return audio_medium(name, files, tokens, self._audio_limits)
        if kind == "video":
            settings = self._settings
            return video_medium(name, files, tokens, settings.resample, settings.video_sampling, self._video_limits)
        model = vision_model(name, files, tokens, self._settings.resample) if kind == "image" else None
        if model is None:
            return None
        return ImageMedium(model, self._image_options, self._settings.decode_timeout_secs, self._max_tensor_bytes)

    async def inputs(
        self,
        media: Sequence[Medium],
        ids: Sequence[int],
        wanted: Sequence[tuple[str, MediaPart]],
        precision: str | None,
    ) -> tuple[list[int], MediaInputs]:
        """Process the items ``wanted`` (path and part) and put them into the prompt ``ids``, which has a placeholder
        for each; returns the longer prompt. ``media`` are their kinds, each once. Without a ``precision``
        (``core.media.Tensor.dtype``) no tensors are made.

        Raises:
            GatewayError: status 400 naming the part, or ``multimodal_prompt_contract_mismatch`` before anything is
                fetched; ``overloaded``.
        """
        counts = {one.kind: (one.search_id, sum(part.kind == one.kind for _, part in wanted)) for one in media}
        check_anchors(ids, counts)
        data = await self._fetcher.fetch_all([Wanted(part, path) for path, part in wanted])
        kinds: dict[str, list[Fetched]] = {one.kind: [] for one in media}
        for encoded, (path, part) in zip(data, wanted, strict=True):
            kinds[part.kind].append(Fetched(encoded, path))
        await self._warmed()
        room = Room(self._max_tensor_bytes)
        groups = await together([self._group(one, kinds[one.kind], precision, room) for one in media])
        anchors = [Anchor(group.medium.kind, group.medium.search_id, group.replacements) for group in groups]
        expanded, bindings = expand(ids, anchors)
        return expanded, describe(groups, bindings, (ids, len(expanded)))

    async def _warmed(self) -> None:
        """Slower code may take a minute for the largest images, and everybody behind them with it."""
        if self._kernels.is_set():
            return
        try:
            async with asyncio.timeout(KERNEL_WAIT_SECS):
                await self._kernels.wait()
        except TimeoutError:
            log.warning(
                "the media kernels are not compiled yet: slower code serves", extra={"waited": KERNEL_WAIT_SECS}
            )

    async def _group(self, medium: Medium, fetched: Sequence[Fetched], precision: str | None, room: Room) -> Group:
        kind: Precision | None = precision  # type: ignore[assignment]
        items = await self._items.load(medium, fetched, kind, room)
        family = medium.family(kind or "float32")
        arrays = None if kind is None else await self._items.joined(family.layout, items, room)
        return Group(medium, family, items, [family.prompt(item.plan, medium.vocabulary) for item in items], arrays)

    @property
    def cache(self) -> ProcessedCache:
        return self._cache

    def released(self, size: int) -> None:
        """A request has let go of tensors with ``size`` bytes."""
        self._pool.released(size)

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
        max_bytes_of={"audio": settings.audio_max_bytes, "video": settings.video_max_bytes},
        max_total_bytes=max_bytes,
        max_items=settings.max_items,
        concurrency=settings.fetch_concurrency,
    )


def _warm(state_dir: str, loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    step_back()
    jit.warm(state_dir)
    with contextlib.suppress(RuntimeError):
        # The loop may have been closed meanwhile.
        loop.call_soon_threadsafe(done.set)
