"""What each model family makes of a video: patches over two frames each, and its place in the prompt.

Sources: spec multimodal 8.1, 8.2 and 10. ``FAMILIES`` is the table; the first match wins.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from smg.core.errors import bad_request
from smg.vision.config import CLIP_MEAN, CLIP_STD, HALF, ImageConfig
from smg.vision.families.base import U8, Layout, Replacement, Tensor, Vocabulary, token_id
from smg.vision.families.qwen_vl import smart_resize
from smg.vision.filters import Filter, Flavour
from smg.vision.layouts import patches
from smg.vision.normalise import STORAGE, Precision, table
from smg.vision.pool import Split, serial
from smg.vision.resize import resize
from smg.vision.video import frames
from smg.vision.video.decode import VideoInfo
from smg.vision.video.frames import Rates, Sampling

_PLACEHOLDER = "<|video_pad|>"
_START, _END = "<|vision_start|>", "<|vision_end|>"


class VideoPlan(msgspec.Struct, frozen=True):
    """What one video becomes.

    ``indices`` are the frames that are taken, ``grid`` is (time, rows, columns) in patches, ``shape`` that of its part
    of the tensor. ``seconds`` are the middles of the time steps, ``step_secs`` is the distance of two of them.
    """

    indices: list[int]
    grid: tuple[int, int, int]
    shape: tuple[int, ...]
    tokens: int
    seconds: list[float]
    step_secs: float


class Qwen2Video:
    """Qwen2-VL and Qwen2.5-VL: a budget of pixels for each frame, one run of tokens for all."""

    name: ClassVar[str] = "qwen2_vl"
    placeholder: ClassVar[str] = _PLACEHOLDER
    limit: ClassVar[int] = 4
    layout: ClassVar[Layout] = Layout("flat", "patches_per_video")
    keep_on_cpu: ClassVar[tuple[str, ...]] = ("video_grid_thw",)
    mean: ClassVar[tuple[float, ...]] = CLIP_MEAN
    std: ClassVar[tuple[float, ...]] = CLIP_STD
    patch: ClassVar[int] = 14
    pixels: ClassVar[tuple[int, int]] = (128 * 28 * 28, 28 * 28 * 768)
    default_filter: ClassVar[Filter] = "bicubic"

    def __init__(
        self,
        config: ImageConfig,
        flavour: Flavour = "torchvision",
        precision: Precision = "float32",
        sampling: Sampling = "huggingface",
    ) -> None:
        self.config = config
        self.flavour: Flavour = flavour
        self.precision: Precision = precision
        self.sampling: Sampling = sampling
        self.filter: Filter = config.resample or self.default_filter
        self.patch_size = config.patch_size or self.patch
        self.merge = config.merge_size or 2
        self.time = config.temporal_patch_size or 2
        self.least = config.min_pixels or config.size.get("shortest_edge") or self.pixels[0]
        self.most = config.max_pixels or config.size.get("longest_edge") or self.pixels[1]
        self.rates = _rates(config, self.time)
        mean, std = config.image_mean or self.mean, config.image_std or self.std
        self.table = table(mean, std, config.rescale_factor, flavour, precision)

    def pick(self, info: VideoInfo) -> list[int]:
        """Frames by the family's own processor."""
        return frames.qwen2(info.frames, info.fps, self.rates)

    def target(self, count: int, height: int, width: int) -> tuple[int, int]:
        """Height and width that ``count`` frames of a size are resized to."""
        return smart_resize(height, width, self.patch_size * self.merge, self.least, self.most)

    def plan(self, info: VideoInfo) -> VideoPlan:
        """Plan a video. Raises GatewayError ``invalid_value`` for sizes the model can't take."""
        pick = self.pick(info) if self.sampling == "huggingface" else frames.vllm(info.frames, info.fps, self.rates)
        rows, columns = self.target(len(pick), info.height, info.width)
        grid = (-(-len(pick) // self.time), rows // self.patch_size, columns // self.patch_size)
        count = math.prod(grid)
        shape = (count, 3 * self.time * self.patch_size**2)
        # How many frames were taken of each second, in the end.
        sampled = len(pick) / info.frames * info.fps
        seconds = frames.timestamps(pick, info.fps, self.time)
        return VideoPlan(pick, grid, shape, count // self.merge**2, seconds, self.time / sampled)

    def fill(self, number: int, image: U8, plan: VideoPlan, out: Tensor, split: Split = serial) -> None:
        """Write the frame taken as number ``number``, uint8[H, W, 3], into ``out``; the last one fills up its step."""
        _, rows, columns = plan.grid
        size = self.patch_size
        planes = resize(image, rows * size, columns * size, self.filter, self.flavour, split)
        flat = np.empty((rows * columns, 3 * size**2), STORAGE[self.precision])
        patches(planes, self.table, flat, size, self.merge, 1, split)
        steps = out.reshape(plan.grid[0], rows * columns, 3, self.time, size**2)
        step, first = divmod(number, self.time)
        last = self.time if number + 1 == len(plan.indices) else first + 1
        for slot in range(first, last):
            steps[step, :, :, slot] = flat.reshape(rows * columns, 3, size**2)

    def side(self, plans: Sequence[VideoPlan]) -> dict[str, Tensor]:
        """The tensors that go with the primary one, by name."""
        return {
            "video_grid_thw": np.array([plan.grid for plan in plans], np.int64),
            "patches_per_video": np.array([plan.shape[0] for plan in plans], np.int64),
            "video_second_per_grid": np.array([plan.step_secs for plan in plans], np.float32),
        }

    def feature_id(self, vocabulary: Vocabulary) -> int:
        """Id of the token that stands for one feature."""
        thinker = self.config.model.get("thinker_config")
        for place in (thinker if isinstance(thinker, Mapping) else {}, self.config.model):
            configured = place.get("video_token_id")
            if isinstance(configured, int) and configured >= 0:
                return configured
        return token_id(vocabulary, self.placeholder)

    def prompt(self, plan: VideoPlan, vocabulary: Vocabulary) -> Replacement:
        """Token ids that take the place of the video's placeholder."""
        feature = self.feature_id(vocabulary)
        return Replacement([feature] * plan.tokens, feature)


class Qwen3Video(Qwen2Video):
    """Qwen3-VL and kin: a budget of pixels for the whole video, and the time in front of each step's tokens.

    A template writes one pair of markers around the placeholder; the processor puts a pair around each time step, so
    what takes their place begins before the first and ends behind the second.
    """

    name = "qwen3_vl"
    mean = HALF
    std = HALF
    patch = 16
    pixels = (128 * 32 * 32, 32 * 32 * 768)

    def pick(self, info: VideoInfo) -> list[int]:
        return frames.qwen3(info.frames, info.fps, self.rates)

    def target(self, count: int, height: int, width: int) -> tuple[int, int]:
        factor = self.patch_size * self.merge
        if min(height, width) < factor:
            grow = max(factor / height, factor / width)
            height, width = int(height * grow), int(width * grow)
        if max(height, width) > 200 * min(height, width):
            raise bad_request(f"a video of {width} x {height} pixels is too narrow: the limit is 1 to 200")
        rows, columns = round(height / factor) * factor, round(width / factor) * factor
        volume = round(count / self.time) * self.time * rows * columns
        if volume > self.most:
            shrink = math.sqrt(count * height * width / self.most)
            rows = max(factor, math.floor(height / shrink / factor) * factor)
            columns = max(factor, math.floor(width / shrink / factor) * factor)
        elif volume < self.least:
            grow = math.sqrt(self.least / (count * height * width))
            rows = math.ceil(height * grow / factor) * factor
            columns = math.ceil(width * grow / factor) * factor
        return rows, columns

    def prompt(self, plan: VideoPlan, vocabulary: Vocabulary) -> Replacement:
        feature = self.feature_id(vocabulary)
        start, end = token_id(vocabulary, _START), token_id(vocabulary, _END)
        ids: list[int] = []
        for second in plan.seconds:
            ids += vocabulary.encode(f"<{second:.1f} seconds>")
            ids += [start, *[feature] * (plan.tokens // plan.grid[0]), end]
        return Replacement(ids, feature, before=(start,), after=(end,))


class Qwen3OmniVideo(Qwen2Video):
    """Qwen3-Omni: Qwen3-VL's patches, but a budget for each frame and one run of tokens."""

    name = "qwen3_omni"
    limit = 1
    mean = HALF
    std = HALF
    patch = 16
    pixels = (131_072, 786_432)


def find_family(name: str, model: Mapping[str, Any]) -> type[Qwen2Video] | None:
    """The family of the model called ``name`` with this ``config.json``; None when it takes no video we know of."""
    lowered, declared = name.lower(), model.get("model_type")
    for family, types, names in FAMILIES:
        if declared in types or (not declared and any(all(part in lowered for part in parts) for parts in names)):
            return family
    return None


def _rates(config: ImageConfig, step: int) -> Rates:
    usual = Rates(step=step)
    fps = config.raw.get("fps")
    count = config.raw.get("num_frames")
    return usual._replace(
        fps=float(fps) if isinstance(fps, int | float) and fps > 0 else usual.fps,
        least=config.number("min_frames", default=usual.least),
        most=config.number("max_frames", default=usual.most),
        fixed=count if isinstance(count, int) and count > 0 else None,
    )


FAMILIES: tuple[tuple[type[Qwen2Video], frozenset[str], tuple[tuple[str, ...], ...]], ...] = (
    (Qwen3OmniVideo, frozenset({"qwen3_omni_moe", "qwen3_omni_moe_thinker"}), (("qwen3-omni",), ("qwen3_omni",))),
    (
        Qwen3Video,
        frozenset({"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"}),
        (("qwen3", "vl"), ("qwen3.5",), ("qwen3.6",)),
    ),
    (Qwen2Video, frozenset({"qwen2_vl", "qwen2_5_vl"}), (("qwen", "vl"),)),
)
