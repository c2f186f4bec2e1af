"""Media containers through PyAV, which brings FFmpeg's libraries (spec multimodal 9, 10).

A client's bytes decide what FFmpeg does with them, so it may only be what is meant here: playlists and lists of files,
which would have it open URLs of their own, are no formats, and no protocol is allowed but the bytes at hand.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smg.core import clock
from smg.core.errors import GatewayError
from smg.core.media import Encoded
from smg.vision.reader import reader

# Demuxers by FFmpeg's names: what browsers, cameras and recorders write.
_FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,ogg,wav,mp3,flac,aac,aiff,caf,avi,mpegts,mpeg,flv,gif,amr,asf,au"
_OPTIONS = {"format_whitelist": _FORMATS, "protocol_whitelist": "none"}


def undecodable(kind: str, why: str, detail: str = "") -> GatewayError:
    """The error for media that can't be read."""
    return GatewayError("media_undecodable", f"the {kind} {why}", detail=detail)


class Deadline:
    """Time that is left for decoding one item, ``seconds`` from now on; 0 means no limit."""

    def __init__(self, seconds: float, kind: str) -> None:
        self._kind = kind
        self._seconds = seconds
        self._until = clock.monotonic() + seconds if seconds else float("inf")

    def check(self) -> None:
        """Raise GatewayError ``media_timeout`` when it is over."""
        if clock.monotonic() > self._until:
            message = f"decoding the {self._kind} took longer than {self._seconds:g} seconds"
            raise GatewayError("media_timeout", message)


UNLIMITED = Deadline(0, "media")


@contextmanager
def opened(encoded: Encoded, kind: str) -> Iterator[Any]:
    """An ``av.container.InputContainer`` over ``encoded``.

    Raises:
        GatewayError: ``media_undecodable``, also for what FFmpeg says inside of the block; ``multimodal_not_supported``
            without PyAV.
    """
    try:
        import av
    except ModuleNotFoundError as error:
        message = f"this gateway is installed without support for this kind of {kind} (the extra 'vision')"
        raise GatewayError("multimodal_not_supported", message, detail=repr(error)) from None
    try:
        with av.open(reader(encoded), mode="r", options=dict(_OPTIONS)) as container:
            yield container
    except (av.FFmpegError, ValueError, MemoryError) as error:
        raise undecodable(kind, "can't be decoded", repr(error)) from None
