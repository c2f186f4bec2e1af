"""Images of a request, from bytes to one tensor (spec multimodal 1; MM-01)."""

import io

import numpy as np
import pytest
from blake3 import blake3
from PIL import Image

from smg.core.errors import GatewayError
from smg.core.request import MediaPart
from smg.vision import decode, images
from smg.vision.config import parse_config
from smg.vision.families.base import encode
from smg.vision.families.qwen_vl import Qwen2VL
from smg.vision.fetch import Fetcher, Wanted
from smg.vision.images import Images
from smg.vision.pool import MediaPool
from smg.vision.sources import MediaPolicy


def png(height, width, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return pixels, buffer.getvalue()


def wanted(*data):
    return [Wanted(MediaPart(kind="image", data=one), f"messages[0].content[{i}]") for i, one in enumerate(data)]


@pytest.fixture
async def loader():
    fetcher, pool = Fetcher(MediaPolicy()), MediaPool(2)
    yield Images(fetcher, pool)
    pool.close()
    await fetcher.close()


async def test_images_stay_in_order_and_carry_their_digest(loader):
    (a, a_png), (b, b_png) = png(40, 60, 1), png(90, 30, 2)
    got = await loader.load(wanted(a_png, b_png))
    np.testing.assert_array_equal(got[0].pixels, a)
    np.testing.assert_array_equal(got[1].pixels, b)
    assert [one.digest for one in got] == [blake3(a_png).hexdigest(), blake3(b_png).hexdigest()]


async def test_the_same_bytes_are_decoded_once(loader, monkeypatch):
    _, data = png(40, 60, 1)
    calls = []

    def counting(*arguments):
        calls.append(1)
        return decode.decode_image(*arguments)

    monkeypatch.setattr(images, "decode_image", counting)
    got = await loader.load(wanted(data, data, data))
    assert len(calls) == 1
    assert got[0] is got[1] is got[2]


async def test_a_broken_image_is_named(loader):
    _, data = png(40, 60, 1)
    with pytest.raises(GatewayError) as caught:
        await loader.load(wanted(data, b"not an image", data))
    assert caught.value.code == "media_undecodable"
    assert caught.value.param == "messages[0].content[1]"


async def test_encoding_beside_each_other_equals_one_after_the_other(loader, either):
    family = Qwen2VL(parse_config({}), "pillow")
    loaded = await loader.load(wanted(*(png(*size, 3)[1] for size in [(900, 700), (100, 300), (56, 56)])))
    got = await loader.encode(family, loaded)
    alone = encode(family, [one.pixels for one in loaded])
    np.testing.assert_array_equal(got.tensor, alone.tensor)
    assert got.side["image_grid_thw"].tolist() == alone.side["image_grid_thw"].tolist()
    assert got.tokens == alone.tokens


async def test_a_size_the_model_cannot_take_is_told_before_any_work(loader):
    loaded = await loader.load(wanted(png(1, 300, 1)[1]))
    with pytest.raises(GatewayError, match="too narrow"):
        await loader.encode(Qwen2VL(parse_config({})), loaded)
