"""Which frames of a video a model sees (spec multimodal 10).

Two choices of frames are known: that of the Hugging Face processor of the family, and vLLM's, which is one for all.
"""

import math
import struct
from typing import Literal, NamedTuple, TypeAlias

_FLOAT = struct.Struct("f")

Sampling: TypeAlias = Literal["huggingface", "vllm"]


class Rates(NamedTuple):
    """Frames a model wants: ``fps`` of them a second of video, ``least`` to ``most`` of them, or ``fixed``.

    ``step`` is how many make one time step of the model.
    """

    fps: float = 2.0
    least: int = 4
    most: int = 768
    step: int = 2
    fixed: int | None = None


def spread(total: int, count: int, *, rounded: bool) -> list[int]:
    """``count`` of ``total`` frames from the first to the last, evenly; ``rounded`` to even halves, else floored."""
    if count == 1:
        return [0]
    last = total - 1
    if rounded:
        # As numpy.linspace computes it: the step first.
        step = last / (count - 1)
        return [last if i == count - 1 else round(i * step) for i in range(count)]
    return [i * last // (count - 1) for i in range(count)]


def qwen3(total: int, fps: float, rates: Rates) -> list[int]:
    """Qwen3-VL's processor: from the first to the last frame, never more than there are."""
    count = rates.fixed
    if count is None:
        count = min(max(int(total / fps * rates.fps), rates.least), rates.most, total)
    return spread(total, min(count, total), rounded=True)


def qwen2(total: int, fps: float, rates: Rates) -> list[int]:
    """Qwen2-VL's processor: at equal distances from the first frame on, whole time steps where there are enough."""
    if rates.fixed is not None:
        count = min(round(rates.fixed / rates.step) * rates.step, total)
    else:
        most = min(rates.most, total) // rates.step * rates.step
        wanted = min(max(total / fps * rates.fps, rates.least), most, total)
        count = math.floor(wanted / rates.step) * rates.step
    if count < 1:
        # Fewer than make a time step: its processor refuses them, but a picture is a video too.
        return list(range(min(total, rates.step)))
    # As torch.arange: in float64, rounded to float32, which lifts what falls just short of a whole number.
    step = total / count
    return [int(_FLOAT.unpack(_FLOAT.pack(i * step))[0]) for i in range(math.ceil(total / step))]


def vllm(total: int, fps: float, rates: Rates) -> list[int]:
    """vLLM's loader: by the duration, from the first to the last frame."""
    count = rates.fixed
    if count is None:
        count = min(max(round(total / fps * rates.fps), rates.least), rates.most)
    return spread(total, min(count, total), rounded=False)


def timestamps(indices: list[int], fps: float, step: int) -> list[float]:
    """Seconds at the middle of each time step: the mean of its first and its last frame's.

    The last frame fills up a step that lacks some.
    """
    filled = indices + [indices[-1]] * (-len(indices) % step)
    return [(filled[i] / fps + filled[i + step - 1] / fps) / 2 for i in range(0, len(filled), step)]
