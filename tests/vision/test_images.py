"""Images of a request, from bytes to the tensors of a batch (spec multimodal 1, 14; case MM-01)."""

import asyncio
import io

import numpy as np
import pytest
from PIL import Image

from smg.core.errors import GatewayError
from smg.core.request import MediaPart
from smg.vision import decode, images
from smg.vision.cache import ProcessedCache
from smg.vision.config import parse_config
from smg.vision.decode import DecodeOptions
from smg.vision.families.base import encode
from smg.vision.families.inkling import Inkling
from smg.vision.families.kimi import KimiK3, KimiK25
from smg.vision.families.pixtral import Pixtral
from smg.vision.families.qwen_vl import Qwen2VL
from smg.vision.fetch import Fetcher, Wanted
from smg.vision.images import ImageMedium
from smg.vision.items import Fetched, Items, Room
from smg.vision.model import VisionModel
from smg.vision.pool import MediaPool, serial
from smg.vision.sources import MediaPolicy


class Tokens:
    def token_id(self, text):
        return 1

    def encode(self, text, add_special_tokens=False):
        return [2]


def model(kind=Qwen2VL, flavour="pillow", **config):
    return VisionModel(kind, {"config.json": {}, "preprocessor_config.json": config}, Tokens(), flavour)


def png(height, width, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return pixels, buffer.getvalue()


def wanted(*data):
    return [Wanted(MediaPart(kind="image", data=one), f"messages[0].content[{i}]") for i, one in enumerate(data)]


class Loader(Items):
    """Counts what is decoded."""

    def __init__(self, monkeypatch, limit=256 << 20, options=decode.DEFAULT_OPTIONS, cache=64 << 20):
        self.pool = MediaPool(2)
        self.fetcher = Fetcher(MediaPolicy())
        self.decoded = 0
        self.options = options
        self.limit = limit
        super().__init__(self.pool, ProcessedCache(cache))

        def counting(*arguments, **named):
            self.decoded += 1
            return decode.decode_image(*arguments, **named)

        monkeypatch.setattr(images, "decode_image", counting)

    async def load(self, model, wanted, precision):
        data = await self.fetcher.fetch_all(wanted)
        fetched = [Fetched(encoded, item.param) for encoded, item in zip(data, wanted, strict=True)]
        return await super().load(ImageMedium(model, self.options), fetched, precision, Room(self.limit))


@pytest.fixture
async def make(monkeypatch):
    made = []

    def make(**options):
        made.append(Loader(monkeypatch, **options))
        return made[-1]

    yield make
    for loader in made:
        loader.pool.close()
        await loader.fetcher.close()


async def test_images_become_what_they_become_one_after_the_other(make, either):
    found = [png(*size, 3) for size in [(900, 700), (100, 300), (56, 56)]]
    loader = make()
    loaded = await loader.load(model(), wanted(*(data for _, data in found)), "float32")
    family = model().family("float32")
    alone = encode(family, [pixels for pixels, _ in found])
    batch = np.concatenate(await loader.joined(family.layout, loaded))
    np.testing.assert_array_equal(batch, alone.tensor)
    assert [image.plan for image in loaded] == alone.plans
    assert [image.encoded for image in loaded] == [data for _, data in found]


async def test_a_batch_of_unequal_images_is_padded_with_zeros(make):
    found = [png(*size, 3) for size in [(64, 128), (128, 64)]]
    loader, pixtral = make(), model(Pixtral)
    loaded = await loader.load(pixtral, wanted(*(data for _, data in found)), "float32")
    alone = encode(pixtral.family("float32"), [pixels for pixels, _ in found])
    np.testing.assert_array_equal(np.stack(await loader.joined(pixtral.family("float32").layout, loaded)), alone.tensor)


async def test_the_same_image_is_decoded_once_in_a_request_and_over_all_requests(make):
    _, data = png(40, 60, 1)
    loader = make()
    first, second = await loader.load(model(), wanted(data, bytes(bytearray(data))), "float32")
    assert first.processed is second.processed
    together = await asyncio.gather(*(loader.load(model(), wanted(data), "float32") for _ in range(4)))
    assert all(loaded[0].processed is first.processed for loaded in together)
    assert loader.decoded == 1


@pytest.mark.parametrize(
    "other",
    [model(flavour="torchvision"), model(max_pixels=1 << 20), model(Pixtral)],
    ids=["flavour", "pixel budget", "family"],
)
async def test_other_processing_is_another_image(make, other):
    _, data = png(40, 60, 1)
    loader = make()
    [one], [two] = [await loader.load(each, wanted(data), "float32") for each in (model(), other)]
    assert loader.decoded == 2
    assert one.digest != two.digest


async def test_other_decoding_is_another_image(make):
    _, data = png(40, 60, 1)
    loaders = [make(), make(options=DecodeOptions(orient=False))]
    [one], [two] = [await loader.load(model(), wanted(data), "float32") for loader in loaders]
    assert one.digest != two.digest


async def test_an_engine_that_preprocesses_itself_costs_no_pixels(make):
    _, data = png(40, 60, 1)
    [loaded] = await make().load(model(), wanted(data), None)
    assert loaded.processed.tensor is None
    assert loaded.plan == model().family("float32").plan(40, 60)


async def test_a_broken_image_is_named_also_to_those_who_only_joined(make):
    _, data = png(40, 60, 1)
    loader = make()
    broken = data[: len(data) // 2]

    async def fails(*parts):
        with pytest.raises(GatewayError) as caught:
            await loader.load(model(), wanted(*parts), "float32")
        assert caught.value.code == "media_undecodable"
        return caught.value.param

    assert await asyncio.gather(fails(data, broken, data), fails(broken)) == [
        "messages[0].content[1]",
        "messages[0].content[0]",
    ]


async def test_a_size_the_model_cannot_take_is_named(make):
    with pytest.raises(GatewayError, match="too narrow") as caught:
        await make().load(model(), wanted(png(40, 60, 1)[1], png(1, 300, 1)[1]), "float32")
    assert caught.value.param == "messages[0].content[1]"


async def test_images_that_together_are_too_large_for_an_engine_are_refused(make):
    _, data = png(224, 224, 1)
    with pytest.raises(GatewayError) as caught:
        await make(limit=1 << 20).load(model(), wanted(data), "float32")
    assert (caught.value.code, caught.value.param) == ("media_too_large", "messages[0].content[0]")


async def test_element_types_are_the_same_values_rounded(make):
    _, data = png(60, 90, 1)
    loader = make()
    exact, half = [(await loader.load(model(), wanted(data), kind))[0] for kind in ("float32", "float16")]
    np.testing.assert_array_equal(exact.processed.tensor.astype(np.float16), half.processed.tensor)
    assert exact.digest == half.digest


def test_what_is_transparent_reaches_the_family_that_asks_for_it():
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((28, 28, 4), np.uint8), "RGBA").save(buffer, "PNG")
    for kind, lowest in ((KimiK3, (180 / 255 - 0.5) * 2), (KimiK25, 1)):
        tensor = ImageMedium(model(kind)).process(buffer.getvalue(), "float32", serial).tensor
        assert (tensor.max(), tensor.min()) == (1, pytest.approx(lowest))


def test_the_configuration_decides_not_its_spelling():
    assert parse_config({}, {"size": 5}).size == {"shortest_edge": 5}
    assert model(a=1, b=2).settings == model(b=2, a=1).settings


async def test_an_image_that_takes_too_long_is_refused_with_its_place(make):
    class Short(ImageMedium):
        def __init__(self, model):
            super().__init__(model, timeout_secs=1e-9)

    _, data = png(40, 60, 1)
    fetched = [Fetched(data, "messages[0].content[3]")]
    with pytest.raises(GatewayError) as caught:
        await Items.load(make(), Short(model()), fetched, "float32", Room(1 << 20))
    assert (caught.value.code, caught.value.param) == ("media_timeout", "messages[0].content[3]")


def test_an_image_that_becomes_too_large_is_refused_before_memory_is_taken_for_it(monkeypatch):
    _, data = png(400, 400, 1)
    plan = model(Inkling).family("float32").plan(400, 400)
    size = 10 * 11 * 2 * 40 * 40 * 3 * 4
    assert (np.prod(plan.shape) * 4, plan.tokens) == (size, 110)
    assert ImageMedium(model(Inkling), most_bytes=size).process(data, "float32", serial).tensor.nbytes == size
    medium = ImageMedium(model(Inkling), most_bytes=size - 1)
    assert medium.process(data, "bfloat16", serial).tensor.nbytes == size // 2
    monkeypatch.setattr(Inkling, "fill", lambda *_: pytest.fail("it was worked on"))
    with pytest.raises(GatewayError, match=f"becomes more than {size - 1} bytes") as caught:
        medium.process(data, "float32", serial)
    assert caught.value.code == "media_too_large"


def test_resizing_ends_when_the_time_of_an_image_is_over(monkeypatch):
    pixels, data = png(900, 700, 1)
    medium = ImageMedium(model(), timeout_secs=1.0)
    monkeypatch.setattr(images, "decode_image", lambda *_, deadline, alpha: decode.Decoded(pixels, "PNG"))
    monkeypatch.setattr(images.clock, "monotonic", iter([0.0, 0.0, 0.5, *[2.0] * 9]).__next__)
    with pytest.raises(GatewayError) as caught:
        medium.process(data, "float32", serial)
    assert caught.value.code == "media_timeout"
