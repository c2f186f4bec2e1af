"""What is decided about media before anything is fetched, and what routing sees of it (spec multimodal 1, 11, 12)."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from smg.config import load
from smg.core.errors import GatewayError
from smg.core.media import MediaInputs, MediaItem, Tensor
from smg.core.request import GenerationRequest, MediaPart, Message, TextPart
from smg.fleet.records import FleetSnapshot, ModelRecord, WorkerRecord
from smg.pipeline.media import Media, WithMedia, check_settings, element_type, routing_ids
from smg.text.prepare import Prepared

# Nothing is asked of it.
TEXT = SimpleNamespace(tokenizer=None)
RECORD = ModelRecord("m", tokenizer_dir="/nowhere")
IMAGE = MediaPart("image", url="http://h/a.png")


def worker(runtime="vllm", features=frozenset({"generate", "image"}), **labels):
    return WorkerRecord("w" + runtime, 0, "grpc://h:1", runtime, models=["m"], features=features, labels=labels)


def asking(*parts, role="user"):
    return GenerationRequest("chat", "m", messages=[Message("user", "first"), Message(role, list(parts))])


async def refused(request, *workers, flags=()):
    """The error for ``request``, which comes before any file of the model is read."""
    fleet = FleetSnapshot(workers=list(workers or [worker()]), models=[RECORD])
    with pytest.raises(GatewayError) as caught:
        await Media(load(list(flags), {})).prepare(fleet, RECORD, TEXT, request)
    assert caught.value.status == 400
    return caught.value.code, caught.value.param


@pytest.mark.parametrize("kind", ["audio", "video", "file"])
async def test_other_media_are_refused_by_their_part(kind):
    parts = [IMAGE, MediaPart(kind, url="http://h/a")]
    assert await refused(asking(*parts)) == ("multimodal_not_supported", "messages[1].content[1]")


async def test_several_kinds_need_an_engine_that_takes_them_together():
    parts = [IMAGE, MediaPart("audio", url="http://h/a")]
    features = frozenset({"generate", "image", "audio"})
    apart = worker(features=features)
    assert await refused(asking(*parts), apart) == ("multimodal_not_supported", "messages[1].content[1]")
    able = worker("tokenspeed", features | {"mixed_media"})
    # The next thing that is missing are the model's files.
    assert await refused(asking(*parts), able) == ("multimodal_config_missing", "messages[1].content[0]")


async def test_engines_without_images_are_told():
    mlx = worker("mlx", frozenset({"generate"}))
    assert await refused(asking(TextPart("a"), IMAGE), mlx) == ("multimodal_not_supported", "messages[1].content[1]")


@pytest.mark.parametrize("kind", ["image", "video"])
async def test_a_model_without_vision_is_told_before_what_is_installed(kind):
    blind = worker("vllm", frozenset({"generate"}), supports_vision="false")
    fleet = FleetSnapshot(workers=[blind], models=[RECORD])
    request = asking(TextPart("a"), MediaPart(kind, url="http://h/a"))
    with pytest.raises(GatewayError) as caught:
        await Media(load([], {})).prepare(fleet, RECORD, TEXT, request)
    assert (caught.value.status, caught.value.code) == (400, "multimodal_not_supported")
    assert (caught.value.message, caught.value.param) == (f"the model 'm' takes no {kind}s", "messages[1].content[1]")


async def test_the_first_image_too_many_is_named():
    request = asking(IMAGE, TextPart("a"), IMAGE, IMAGE)
    flags = ("--media-max-items", "2")
    assert await refused(request, flags=flags) == ("invalid_multimodal_request", "messages[1].content[3]")


async def test_answers_carry_no_images():
    request = asking(TextPart("a"), IMAGE, role="assistant")
    assert await refused(request) == ("invalid_multimodal_request", "messages[1].content[1]")


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([worker()], "float32"),
        ([worker("tokenspeed")], "bfloat16"),
        ([worker("vllm", multimodal_encoder_dtype="torch.bfloat16"), worker("tokenspeed")], "bfloat16"),
        ([worker("vllm", multimodal_encoder_dtype="half")], "float16"),
        ([worker("vllm", multimodal_encoder_dtype="int4")], "float32"),
        ([worker("vllm"), worker("tokenspeed")], "float32"),
        ([worker("trtllm")], None),
        ([worker("trtllm"), worker("tokenspeed")], "bfloat16"),
        ([worker("mlx")], None),
    ],
)
def test_the_element_type_is_what_the_engines_want_and_float32_where_they_differ(workers, expected):
    assert element_type(workers) == expected


def inputs(digest, patches=((2, 20),)):
    item = MediaItem("image", digest, b"", (1, 22), list(patches), None, {})
    return MediaInputs([item], None, {}, "", (), 9, [1, 9, 2], 23)


def test_routing_tells_images_apart_and_knows_them_again():
    ids = [1, 8, *[9] * 20, 2]
    first, again, other = (routing_ids(ids, inputs(digest)) for digest in ("ab" * 32, "ab" * 32, "ab" * 31 + "ac"))
    assert first == again
    # Any eight tokens in a row tell the images apart.
    assert all(first[at : at + 8] != other[at : at + 8] for at in range(2, 15))
    assert (first[:2], first[22:]) == ([1, 8], [2])
    assert min(first[2:22]) > 1 << 30
    assert max(first) < 1 << 32


def test_a_wrong_network_is_found_at_the_start():
    assert check_settings(load(["--allowed-media-networks", "10.0.0.0/8"], {})) is None
    problem = check_settings(load(["--allowed-media-networks", "10.0.0.1/8"], {}))
    assert problem is not None
    assert problem.startswith("--allowed-media-networks")


def test_nothing_of_it_is_loaded_before_it_is_needed():
    code = (
        "import sys, smg.server.app, smg.api.routes, smg.pipeline.services\n"
        "print(sorted({'numba', 'PIL', 'aiohttp', 'smg.vision.service'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Blind:
    """A vision that sees nothing: one kind of everything, and no items."""

    kind, limit, placeholder = "image", 9, "<image>"

    async def model(self, *given):
        return self

    async def inputs(self, media, ids, wanted, precision):
        self.seen = [part for _, part in wanted]
        return [1], MediaInputs([], None, {}, "", (), 0, [], 1)


async def test_a_prepared_request_lets_go_of_its_media(monkeypatch):
    async def prepared(_text, _request):
        return Prepared("", [1])

    monkeypatch.setattr("smg.pipeline.media.prepare", prepared)
    media, vision = Media(load([], {})), Blind()
    media._vision = vision
    request = asking(TextPart("a"), MediaPart("image", url="data:image/png;base64,AAAA"))
    request.attachments = [[MediaPart("image", data=b"bytes")]]
    await media.prepare(FleetSnapshot(workers=[worker()], models=[RECORD]), RECORD, TEXT, request)
    assert [part.url or part.data for part in vision.seen] == ["data:image/png;base64,AAAA", b"bytes"]
    assert [(part, path) for path, part in request.media()] == [
        (MediaPart("image"), "messages[1].content[1]"),
        (MediaPart("image"), "[0]"),
    ]
    assert request.messages[1].content[0] == TextPart("a")


async def test_it_tells_what_a_request_let_go_of_that_has_been_sent():
    def item(tensor):
        return MediaItem("image", "00" * 32, b"", (0, 1), ((0, 1),), tensor, {})

    released = []
    media = Media(load([], {}))
    made = [item(Tensor("uint8", (3,), (b"abc",))), item(None), item(Tensor("uint8", (2,), (b"de",)))]
    sent = WithMedia(Prepared("", [1]), MediaInputs(made, None, {}, "", (), 0, [], 1), [1])
    # Who has had no media yet has nothing to give back.
    media.released(sent)
    media._vision = SimpleNamespace(released=released.append)
    media.released(sent)
    assert released == [5]


async def test_an_engine_s_own_limit_on_items_holds():
    strict, vision = worker(mm_item_limits="image=2"), Blind()
    media = Media(load([], {}))
    media._vision = vision
    fleet = FleetSnapshot(workers=[strict, worker("other")], models=[RECORD])
    with pytest.raises(GatewayError, match="at most 2 images") as caught:
        await media.prepare(fleet, RECORD, TEXT, asking(IMAGE, IMAGE, IMAGE))
    assert (caught.value.code, caught.value.param) == ("invalid_multimodal_request", "messages[1].content[2]")
