"""Video as a medium: what videos mean to one model, by the files beside its tokenizer (spec multimodal 5, 10)."""

import json
import math
from typing import Any

import numpy as np
from blake3 import blake3

from smg.core import clock
from smg.core.errors import GatewayError
from smg.core.media import Encoded
from smg.vision.cache import Processed
from smg.vision.config import parse_config
from smg.vision.families.base import Tensor, token_id
from smg.vision.filters import Flavour
from smg.vision.model import Files, Tokens, Vocabulary
from smg.vision.normalise import STORAGE, Precision
from smg.vision.pool import Split
from smg.vision.video.decode import U8, VideoInfo, VideoLimits, read_video
from smg.vision.video.families import Qwen2Video, VideoPlan, find_family
from smg.vision.video.frames import Sampling

# Pixels of decoded frames in one byte of a usual video, about.
_WEIGHT = 64


class VideoMedium:
    """Videos to one model (``items.Medium``).

    Raises:
        GatewayError: ``invalid_multimodal_request`` when the vocabulary has no placeholder.
    """

    kind = "video"

    def __init__(
        self,
        family: type[Qwen2Video],
        files: Files,
        tokens: Tokens,
        flavour: Flavour,
        sampling: Sampling,
        limits: VideoLimits,
    ) -> None:
        self._kind = family
        self._limits = limits
        self._flavour: Flavour = flavour
        self._sampling: Sampling = sampling
        self._config = parse_config(files["config.json"], _processor(files))
        self._made: dict[Precision, Qwen2Video] = {}
        self.vocabulary = Vocabulary(tokens)
        self.placeholder = family.placeholder
        self.limit = family.limit
        self.search_id = token_id(self.vocabulary, family.placeholder)
        facts = [self.kind, family.name, flavour, sampling, files]
        self.settings = blake3(json.dumps(facts, sort_keys=True).encode()).digest()

    def family(self, precision: Precision) -> Qwen2Video:
        """See ``items.Medium``."""
        made = self._made.get(precision)
        if made is None:
            made = self._made[precision] = self._kind(self._config, self._flavour, precision, self._sampling)
        return made

    def weight(self, encoded: Encoded) -> int:
        """See ``items.Medium``; estimated from the size, as frames cost what they have of pixels."""
        return len(encoded) * _WEIGHT

    def process(self, encoded: Encoded, precision: Precision | None, split: Split) -> Processed:
        """See ``items.Medium``. Frames become patches one at a time, so that one of them is held as pixels."""
        making = _Making(self.family(precision or "float32"), precision, split, self._limits.max_tensor_bytes)
        started = clock.monotonic()
        read_video(encoded, making.choose, making.take, self._limits)
        decode_secs = clock.monotonic() - started - making.fill_secs
        assert making.plan is not None
        if making.out is not None:
            making.out.flags.writeable = False
        return Processed(making.plan, making.out, decode_secs)


class _Making:
    """One video on its way into its tensor."""

    def __init__(self, family: Qwen2Video, precision: Precision | None, split: Split, most: int) -> None:
        self._most = most
        self._family = family
        self._precision = precision
        self._split = split
        self.plan: VideoPlan | None = None
        self.out: Tensor | None = None
        self.fill_secs = 0.0

    def choose(self, info: VideoInfo) -> list[int]:
        self.plan = self._family.plan(info)
        if self._precision is not None:
            size = math.prod(self.plan.shape) * np.dtype(STORAGE[self._precision]).itemsize
            if size > self._most:
                message = f"the video becomes {size} bytes for the engine; {self._most} are allowed"
                raise GatewayError("media_too_large", message)
            self.out = np.empty(self.plan.shape, STORAGE[self._precision])
        return self.plan.indices

    def take(self, number: int, pixels: U8) -> None:
        if self.out is not None and self.plan is not None:
            started = clock.monotonic()
            self._family.fill(number, pixels, self.plan, self.out, self._split)
            self.fill_secs += clock.monotonic() - started


def video_medium(
    name: str, files: Files, tokens: Tokens, flavour: Flavour, sampling: Sampling, limits: VideoLimits
) -> VideoMedium | None:
    """The medium of the model called ``name``; None when it takes no video. Raises GatewayError as ``VideoMedium``."""
    family = find_family(name, files["config.json"])
    return None if family is None else VideoMedium(family, files, tokens, flavour, sampling, limits)


def _processor(files: Files) -> dict[str, Any]:
    """The video processor's part: a file of its own, or inside ``processor_config.json``, or what images have.

    Budgets of pixels that are meant for images are not taken over: a video has its own.
    """
    if "video_preprocessor_config.json" in files:
        return files["video_preprocessor_config.json"]
    inner = files.get("processor_config.json", {}).get("video_processor")
    if isinstance(inner, dict):
        return inner
    shared = files.get("preprocessor_config.json", {})
    budgets = ("min_pixels", "max_pixels", "size")
    return {name: value for name, value in shared.items() if name not in budgets}
