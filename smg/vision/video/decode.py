"""Videos to frames, through FFmpeg's libraries (spec multimodal 10).

A video is opened, its size, rate and number of frames are read, and what is to be taken is decided from these; then it
is decoded from its beginning and only the frames that were asked for become pixels, one at a time.

Pictures are turned as the container says, as OpenCV (vLLM's reader) and torchcodec (Hugging Face's) do: by its display
matrix, in steps of 90 degrees. Mirrors in it are not applied, as neither of the two does.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smg.core.errors import GatewayError
from smg.core.media import Encoded
from smg.vision.containers import Deadline, opened, undecodable

U8 = NDArray[np.uint8]

# Rates outside of these are damage, or time stamps that mean nothing.
_SLOWEST, _FASTEST = 1 / 3600, 1000.0
_USUAL_FPS = 24.0
# Decoding costs time for each frame that is passed over, too.
_MOST_FRAMES = 1 << 20


class VideoInfo(NamedTuple):
    """``frames`` of ``height`` times ``width`` pixels, ``fps`` of them a second.

    Pictures are turned ``turns`` times by 90 degrees, counterclockwise; height and width are those of the turned ones.
    """

    frames: int
    height: int
    width: int
    fps: float
    turns: int = 0


class VideoLimits(NamedTuple):
    """Bytes of all frames that are taken of one video, as pixels, and the time that decoding may take.

    Only one frame is held at a time, so ``max_bytes`` bounds work; ``max_tensor_bytes`` bounds what they become.
    ``max_pixels`` bounds one frame: FFmpeg's decoders allocate several of them. ``threads`` decode one video; they
    inherit the priority of the caller.
    """

    max_bytes: int = 8 << 30
    max_tensor_bytes: int = 256 << 20
    max_pixels: int = 178_956_970
    timeout_secs: float = 30.0
    threads: int = 1


def read_video(
    encoded: Encoded,
    choose: Callable[[VideoInfo], Sequence[int]],
    take: Callable[[int, U8], None],
    limits: VideoLimits = VideoLimits(),  # noqa: B008 - immutable
) -> None:
    """Call ``choose`` once with what the video is, then ``take(number, pixels)`` for each index that it names.

    Indices ascend and may repeat; ``pixels`` is uint8[H, W, 3]. Where a video turns out to have fewer frames than it
    says, ``choose`` is called again with their true number, and ``take`` from 0 on. CPU-bound.

    Raises:
        GatewayError: 400 ``media_undecodable``, ``media_too_large`` or ``media_timeout``.
    """
    deadline = Deadline(limits.timeout_secs, "video")
    info = _info(encoded, limits, deadline)
    for _ in range(2):
        indices = choose(info)
        size = len(indices) * info.height * info.width * 3
        if size > limits.max_bytes:
            raise GatewayError(
                "media_too_large", f"the video's frames have {size} bytes; {limits.max_bytes} are allowed"
            )
        found = _pick(encoded, indices, info, take, deadline, limits.threads)
        if found > indices[-1]:
            return
        if not found:
            break
        info = info._replace(frames=found)
    raise undecodable("video", "has no frames that can be decoded")


def _info(encoded: Encoded, limits: VideoLimits, deadline: Deadline) -> VideoInfo:
    with opened(encoded, "video") as container:
        stream = _stream(container)
        width, height = stream.codec_context.width, stream.codec_context.height
        if width < 1 or height < 1:
            raise undecodable("video", "has no size")
        if width * height > limits.max_pixels:
            message = f"a frame has {width} x {height} pixels; {limits.max_pixels} are allowed"
            raise GatewayError("media_too_large", message)
        rate = stream.average_rate or stream.guessed_rate
        fps = float(rate) if rate and _SLOWEST <= rate <= _FASTEST else _USUAL_FPS
        frames = stream.frames or _count(container, stream, deadline)
    if not 0 < frames <= _MOST_FRAMES:
        raise undecodable("video", f"has {frames} frames")
    turns = _turns(encoded, deadline)
    if turns % 2:
        height, width = width, height
    return VideoInfo(frames, height, width, fps, turns)


def _turns(encoded: Encoded, deadline: Deadline) -> int:
    """How often the pictures are to be turned: the first one tells, to the nearest 90 degrees."""
    with opened(encoded, "video") as container:
        stream = _stream(container)
        stream.thread_type = "NONE"
        first = next(_decoded(container, stream, deadline), None)
        return 0 if first is None else round(first.rotation / 90) % 4


def _count(container: Any, stream: Any, deadline: Deadline) -> int:
    """Frames of a container that does not tell: its packets, which are cheap to count."""
    count = 0
    for packet in container.demux(stream):
        if packet.size:
            count += 1
        if not count % 1024:
            deadline.check()
    return count


def _pick(
    encoded: Encoded,
    indices: Sequence[int],
    info: VideoInfo,
    take: Callable[[int, U8], None],
    deadline: Deadline,
    threads: int,
) -> int:
    """Decode up to the last of ``indices``; returns how many frames there were."""
    wanted = list(indices)
    number = index = -1
    height, width = (info.width, info.height) if info.turns % 2 else (info.height, info.width)
    with opened(encoded, "video") as container:
        stream = _stream(container)
        # By default FFmpeg takes as many threads as there are processors.
        stream.thread_type = "AUTO" if threads > 1 else "NONE"
        stream.thread_count = threads
        pixels: U8 | None = None
        for index, frame in enumerate(_decoded(container, stream, deadline)):
            if index != wanted[number + 1]:
                continue
            if (frame.height, frame.width) != (height, width):
                frame = frame.reformat(width=width, height=height)
            pixels = np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), info.turns))
            while number + 1 < len(wanted) and wanted[number + 1] == index:
                number += 1
                take(number, pixels)
            if number + 1 == len(wanted):
                break
    return index + 1


def _decoded(container: Any, stream: Any, deadline: Deadline) -> Iterator[Any]:
    for frame in container.decode(stream):
        deadline.check()
        yield frame


def _stream(container: Any) -> Any:
    """The first stream of moving pictures; covers of recordings are none."""
    for stream in container.streams.video:
        if not stream.disposition & type(stream.disposition).attached_pic:
            return stream
    raise undecodable("video", "is not a video, or of an unknown format")
