"""Encoded image to RGB pixels, with the pixels of Pillow's default decoder (spec multimodal 4).

Pillow reads the header, judges and decodes. Only the pixels of ordinary JPEGs come from simplejpeg when it is
installed: it is libjpeg-turbo with accurate DCT and smooth upsampling, as Pillow uses it, gives the same bytes in about
half the time and does not hold the GIL. What it refuses goes to Pillow again, so Pillow alone decides what is broken.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from smg.core.errors import GatewayError
from smg.core.media import Encoded
from smg.vision.containers import UNLIMITED, Deadline
from smg.vision.reader import reader

U8: TypeAlias = NDArray[np.uint8]
Colour: TypeAlias = tuple[int, int, int]

# Formats whose decoders are safe to show to strangers, by Pillow's plug-in. Pillow knows many more, some of which
# start programs. AVIF depends on Pillow's version.
_PLUGINS = {
    "JPEG": "Jpeg",
    "PNG": "Png",
    "GIF": "Gif",
    "WEBP": "WebP",
    "BMP": "Bmp",
    "TIFF": "Tiff",
    "ICO": "Ico",
    "AVIF": "Avif",
}

_ORIENTATION = 0x0112
_BAND_PIXELS = 1 << 20
_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "La", "RGBa"})


class DecodeOptions(msgspec.Struct, frozen=True):
    """``max_pixels`` is checked before anything is allocated; no more than 357 million, Pillow's own hard limit.

    ``max_side`` bounds width and height: a line of pixels is cheap to send and decode, but weights to resample it grow
    with its length. It is that of JPEG, which no camera exceeds.
    ``orient`` applies the EXIF orientation. ``background`` is the colour (r, g, b) under transparent pixels.
    """

    max_pixels: int = 178_956_970
    max_side: int = 65_535
    orient: bool = True
    background: Colour = (255, 255, 255)


DEFAULT_OPTIONS = DecodeOptions()


class Decoded(NamedTuple):
    """``pixels`` is uint8[H, W, 3], contiguous, upright; ``format`` is Pillow's name of the encoding.

    Where ``alpha`` was asked for and the image has transparency, they are uint8[H, W, 4].
    """

    pixels: U8
    format: str


_TURN: dict[int, Callable[[U8], U8]] = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: a[::-1].transpose(1, 0, 2),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: a[:, ::-1].transpose(1, 0, 2),
}


def count_pixels(data: Encoded) -> int:
    """Pixels of an image by its header; 0 for what is none, or too large to be opened."""
    try:
        with Image.open(reader(data), formats=_formats()) as image:
            return image.width * image.height
    except Exception:
        # Whatever is wrong with it is told by ``decode_image``.
        return 0


def decode_image(
    data: Encoded,
    options: DecodeOptions = DEFAULT_OPTIONS,
    param: str | None = None,
    deadline: Deadline = UNLIMITED,
    alpha: bool = False,
) -> Decoded:
    """Decode the first frame of an image. CPU-bound: run it on the media pool.

    Transparent pixels lie on ``options.background``, or keep their opacity with ``alpha``.

    Raises:
        GatewayError: ``media_undecodable`` when it is no image, broken or truncated; ``media_too_large`` when it has
            more than ``options.max_pixels``; ``media_timeout`` when ``deadline`` is over, which is looked at
            between steps. ``param`` is passed on.
    """
    try:
        with Image.open(reader(data), formats=_formats()) as image:
            width, height = image.size
            if width * height > options.max_pixels:
                raise _too_many_pixels(options.max_pixels, param)
            if max(width, height) > options.max_side:
                message = f"the image is wider or higher than {options.max_side} pixels"
                raise GatewayError("media_too_large", message, param=param)
            kind = image.format or ""
            with _watched(image, deadline):
                turn = int(image.getexif().get(_ORIENTATION, 1) or 1) if options.orient else 1
                pixels = _turbo(data, image)
                if pixels is None:
                    image.load()
                    pixels = _in_bands(image, None if alpha else options.background, deadline)
            deadline.check()
    except GatewayError:
        raise
    except Image.DecompressionBombError:
        raise _too_many_pixels(options.max_pixels, param) from None
    except UnidentifiedImageError:
        message = f"this is not an image in a supported format ({', '.join(_formats())})"
        raise GatewayError("media_undecodable", message, param=param) from None
    except MemoryError:
        raise
    except Exception as error:
        # Decoders meet broken input with whatever their parser stumbled over: struct.error, IndexError, zlib.error, …
        message = "the image is broken or truncated"
        raise GatewayError("media_undecodable", message, param=param, detail=repr(error)) from None
    if turn in _TURN:
        pixels = _TURN[turn](pixels)
    return Decoded(np.ascontiguousarray(pixels), kind)


@lru_cache(maxsize=1)
def _formats() -> tuple[str, ...]:
    for module in _PLUGINS.values():
        with suppress(ImportError):
            import_module(f"PIL.{module}ImagePlugin")
    return tuple(name for name in _PLUGINS if name in Image.OPEN)


def _too_many_pixels(limit: int, param: str | None) -> GatewayError:
    return GatewayError("media_too_large", f"the image has more than {limit} pixels", param=param)


def _turbo(data: Encoded, image: Image.Image) -> U8 | None:
    """Pixels of a grey or colour JPEG from simplejpeg, None for everything else."""
    if _simplejpeg is None or image.format not in ("JPEG", "MPO") or image.mode not in ("L", "RGB"):
        return None
    try:
        pixels: U8 = _simplejpeg.decode_jpeg(data, "RGB", fastdct=False, fastupsample=False, strict=True)
    except ValueError:
        return None
    return pixels if pixels.shape[:2] == (image.height, image.width) else None


@contextmanager
def _watched(image: Any, deadline: Deadline) -> Iterator[None]:
    """Look at the time whenever Pillow reads another piece of the file to decode it."""
    read = getattr(image, "load_read", None)

    def checked(size: int) -> bytes:
        deadline.check()
        # Some formats put another file there when they begin to load.
        piece: bytes = image.fp.read(size) if read is None else read(size)
        return piece

    image.load_read = checked
    try:
        yield
    finally:
        # Or the image would hold itself, and its pixels, until the garbage collector comes by.
        del image.load_read


def _in_bands(image: Image.Image, background: Colour | None, deadline: Deadline) -> U8:
    """The pixels of a loaded image, some rows at a time: on the way they are in memory several times over.

    Without a ``background`` transparent pixels keep their opacity, in a fourth channel.
    """
    width, height = image.size
    rows = max(1, _BAND_PIXELS // width)
    if rows >= height:
        return _to_rgb(image, background)
    out = np.empty((height, width, 4 if background is None and _is_transparent(image) else 3), np.uint8)
    for top in range(0, height, rows):
        deadline.check()
        bottom = min(top + rows, height)
        out[top:bottom] = _to_rgb(image.crop((0, top, width, bottom)), background)
    return out


def _is_transparent(image: Image.Image) -> bool:
    return image.mode in _ALPHA_MODES or ("transparency" in image.info and not image.mode.startswith("I;16"))


def _to_rgb(image: Image.Image, background: Colour | None) -> U8:
    if image.mode.startswith("I;16"):
        # Pillow would clip to 255; the high byte is what it takes from 16-bit colour images too.
        grey = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if _is_transparent(image):
        top = image.convert("RGBA")
        if background is None:
            return np.asarray(top)
        image = Image.alpha_composite(Image.new("RGBA", top.size, (*background, 255)), top)
    return np.asarray(image.convert("RGB"))


def _import_simplejpeg() -> Any:
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


_simplejpeg = _import_simplejpeg()

# Sizes are judged here, and what Pillow has to say about a client's metadata must not fill our log. Filters are global
# and must not be changed in threads.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
