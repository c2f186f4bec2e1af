"""Encoded image to RGB: the pixels of Pillow, upright and opaque (spec multimodal 4)."""

import gc
import io
import struct
import weakref
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from smg.core.errors import GatewayError
from smg.vision import decode
from smg.vision.containers import Deadline
from smg.vision.decode import DecodeOptions, count_pixels, decode_image


def picture(width=70, height=50, channels=3):
    """A smooth picture with an edge and some noise, so that codecs have something to do."""
    y, x = np.mgrid[:height, :width]
    planes = [(x * 3 + y * 2 + 40 * c) % 256 for c in range(channels)]
    pixels = np.stack(planes, axis=2)
    pixels[height // 2 :, width // 3 :] //= 2
    noise = np.random.default_rng(0).integers(0, 20, pixels.shape)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pillow(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF", "ICO", "WEBP", "AVIF"])
def test_formats_are_found_by_content(kind):
    data = encoded(Image.fromarray(picture(48, 48)), kind, **({"sizes": [(48, 48)]} if kind == "ICO" else {}))
    decoded = decode_image(data)
    assert decoded.format == kind
    np.testing.assert_array_equal(decoded.pixels, pillow(data))


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (8, 8), (70, 50), (131, 77)])
@pytest.mark.parametrize("turbo", [True, False])
def test_jpegs_have_the_same_pixels_with_and_without_simplejpeg(subsampling, progressive, size, turbo, monkeypatch):
    if not turbo:
        monkeypatch.setattr(decode, "_simplejpeg", None)
    image = Image.fromarray(picture(*size))
    data = encoded(image, "JPEG", quality=85, subsampling=subsampling, progressive=progressive)
    pixels = decode_image(data).pixels
    np.testing.assert_array_equal(pixels, pillow(data))
    assert pixels.flags.c_contiguous


def test_simplejpeg_is_in_use_here():
    assert decode._simplejpeg is not None


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_jpegs_of_other_colour_spaces(mode):
    data = encoded(Image.fromarray(picture()).convert(mode), "JPEG")
    np.testing.assert_array_equal(decode_image(data).pixels, pillow(data))


@pytest.mark.parametrize("mode", ["1", "L", "P"])
def test_grey_and_palette(mode):
    data = encoded(Image.fromarray(picture()).convert(mode), "PNG")
    np.testing.assert_array_equal(decode_image(data).pixels, pillow(data))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_orientation_is_applied_as_pillow_applies_it(orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(picture()), kind, exif=exif)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    np.testing.assert_array_equal(decode_image(data).pixels, upright)
    np.testing.assert_array_equal(decode_image(data, DecodeOptions(orient=False)).pixels, pillow(data))


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_changes_nothing(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(picture()), "JPEG", exif=exif)
    assert decode_image(data).pixels.shape == (50, 70, 3)


def test_alpha_lies_over_white_or_the_colour_asked_for():
    rgba = picture(channels=4)
    rgba[0, 0] = (10, 20, 30, 0)
    rgba[0, 1] = (10, 20, 30, 255)
    image = Image.fromarray(rgba, "RGBA")
    data = encoded(image, "PNG")
    pixels = decode_image(data).pixels
    white = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    np.testing.assert_array_equal(pixels, np.asarray(white))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, 1].tolist() == [10, 20, 30]
    assert decode_image(data, DecodeOptions(background=(1, 2, 3))).pixels[0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("mode", "transparent"), [("P", 5), ("L", 7), ("RGB", (9, 8, 7))])
def test_a_transparent_colour_lies_over_white(mode, transparent):
    image = Image.new(mode, (4, 4), 3 if mode != "RGB" else (1, 1, 1))
    if mode == "P":
        image.putpalette([i for i in range(256) for _ in range(3)])
    image.putpixel((2, 1), transparent)
    pixels = decode_image(encoded(image, "PNG", transparency=transparent)).pixels
    assert pixels[1, 2].tolist() == [255, 255, 255]
    assert pixels[0, 0].tolist() != [255, 255, 255]


@pytest.mark.parametrize("tall", [False, True])
def test_transparent_pixels_keep_their_opacity_for_models_that_look_at_it(tall, monkeypatch):
    if tall:
        monkeypatch.setattr(decode, "_BAND_PIXELS", 70 * 8)
    rgba = picture(channels=4)
    np.testing.assert_array_equal(decode_image(encoded(Image.fromarray(rgba, "RGBA"), "PNG"), alpha=True).pixels, rgba)
    palette = Image.fromarray(rgba[:, :, :3].copy()).convert("P")
    decoded = decode_image(encoded(palette, "PNG", transparency=3), alpha=True).pixels
    assert decoded.shape == (50, 70, 4)
    np.testing.assert_array_equal(decoded[:, :, 3] == 0, np.asarray(palette) == 3)
    opaque = encoded(Image.fromarray(rgba[:, :, :3].copy()), "PNG")
    np.testing.assert_array_equal(decode_image(opaque, alpha=True).pixels, rgba[:, :, :3])


def test_sixteen_bits_are_scaled_and_not_clipped():
    grey = (np.arange(64 * 64, dtype=np.uint32).reshape(64, 64) * 16).astype(np.uint16)
    pixels = decode_image(encoded(Image.fromarray(grey), "PNG")).pixels
    np.testing.assert_array_equal(pixels[:, :, 1], grey >> 8)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_the_first_frame_of_an_animation(kind):
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "green", "blue")]
    data = encoded(
        frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
    )
    assert decode_image(data).pixels[3, 3].tolist() == [255, 0, 0]


# ---- bad input


def broken(data, code="media_undecodable", **options):
    with pytest.raises(GatewayError) as caught:
        decode_image(data, DecodeOptions(**options), "messages[0].content[1]")
    assert (caught.value.code, caught.value.status, caught.value.param) == (code, 400, "messages[0].content[1]")


@pytest.mark.parametrize(
    "data", [b"", b"not an image", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"%!PS-Adobe"]
)
def test_what_is_no_image(data):
    broken(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize("turbo", [True, False])
def test_truncated_images_are_refused_and_not_filled_with_grey(kind, turbo, monkeypatch):
    if not turbo:
        monkeypatch.setattr(decode, "_simplejpeg", None)
    data = encoded(Image.fromarray(picture(200, 200)), kind)
    broken(data[: len(data) * 2 // 3])
    if kind == "JPEG":
        broken(data[:-128])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_random_damage_never_escapes_as_another_error():
    random = np.random.default_rng(7)
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "ICO", "BMP"):
        whole = np.frombuffer(encoded(Image.fromarray(picture(40, 40)), kind), np.uint8)
        for _ in range(60):
            data = whole.copy()
            at = random.integers(0, len(data), 8)
            data[at] = random.integers(0, 256, 8)
            try:
                pixels = decode_image(data.tobytes(), DecodeOptions(max_pixels=1 << 20)).pixels
            except GatewayError as error:
                assert error.status == 400
            else:
                assert pixels.dtype == np.uint8
                assert pixels.shape[2] == 3


def png_header(width, height):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", b"")
    )


@pytest.mark.parametrize("size", [(20_000, 20_000), (1 << 30, 1 << 30), (14_000, 13_000)])
def test_decompression_bombs_are_refused_by_their_header(size):
    broken(png_header(*size), "media_too_large")


def test_very_long_lines_are_refused():
    broken(png_header(1, 65_536), "media_too_large")
    broken(png_header(100, 1), "media_too_large", max_side=99)


def test_the_pixel_limit_holds_for_jpegs_too():
    data = encoded(Image.fromarray(picture(70, 50)), "JPEG")
    broken(data, "media_too_large", max_pixels=70 * 50 - 1)
    assert decode_image(data, DecodeOptions(max_pixels=70 * 50)).pixels.shape == (50, 70, 3)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "I;16"])
def test_bands_of_a_large_image_are_the_whole_image(mode, monkeypatch):
    rows = np.random.default_rng(1).integers(0, 256, (50, 70), np.uint8)
    image = Image.fromarray(rows.astype(np.uint16) << 8) if mode == "I;16" else Image.fromarray(rows).convert(mode)
    data = encoded(image, "TIFF")
    whole = decode_image(data).pixels
    monkeypatch.setattr(decode, "_BAND_PIXELS", 70 * 8)
    np.testing.assert_array_equal(decode_image(data).pixels, whole)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_decoding_ends_when_its_time_is_over(kind):
    data = encoded(Image.new("RGB", (70, 50)), kind)
    with pytest.raises(GatewayError) as caught:
        decode_image(data, deadline=Deadline(1e-9, "image"))
    assert (caught.value.code, caught.value.status) == ("media_timeout", 400)
    assert caught.value.message == "decoding the image took longer than 1e-09 seconds"


def test_a_png_is_given_up_between_two_pieces_of_its_file():
    class Twice(Deadline):
        checks = 0

        def check(self):
            self.checks += 1
            if self.checks == 3:
                raise GatewayError("media_timeout", "over")

    noise = np.random.default_rng(2).integers(0, 256, (300, 300, 3), np.uint8)  # some 270 KB, which are not packed
    deadline = Twice(0, "image")
    with pytest.raises(GatewayError, match="over"):
        decode_image(encoded(Image.fromarray(noise), "PNG"), deadline=deadline)
    assert deadline.checks == 3


def test_pixels_are_counted_by_the_header():
    data = encoded(Image.new("L", (300, 200)), "PNG")
    assert count_pixels(data) == count_pixels(memoryview(data)) == 60_000
    assert count_pixels(data[:100]) == 60_000
    assert count_pixels(b"no image") == 0


def test_pixels_are_let_go_at_once(monkeypatch):
    images = []

    def remembered(image, *rest):
        images.append(weakref.ref(image))
        return decode._to_rgb(image, rest[0])

    monkeypatch.setattr(decode, "_in_bands", remembered)
    gc.disable()
    try:
        decode_image(encoded(Image.new("RGB", (70, 50)), "PNG"))
        assert [image() for image in images] == [None]
    finally:
        gc.enable()
