"""Media over ZeroMQ: tensors in frames of their own, and what each engine is told of an item (spec multimodal 12)."""

import msgspec
import numpy as np
import pytest

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.media import MediaInputs, MediaItem, Tensor
from smg.engines.zmq.frames import Told
from smg.engines.zmq.tensors import cast
from smg.engines.zmq.tokenspeed import TokenSpeedWire
from smg.engines.zmq.wire import VllmWire
from tests.engines.zmq.scheduler import MEDIA
from tests.engines.zmq.test_tokenspeed import at as tokenspeed_at
from tests.engines.zmq.test_zmq import at, drain, request

__all__ = ["at", "tokenspeed_at"]

FEATURES = 2
DTYPES = {"bfloat16": np.uint16, "bool": np.bool_}
PAD = 7
# Two items: three and four rows of a thousand floats, in a prompt of twelve tokens.
ROWS = [np.arange(rows * 1000, dtype=np.float32).reshape(rows, 1000) for rows in (3, 4)]
IDS = [1, PAD, PAD, PAD, 2, 3, PAD, 4, PAD, PAD, 5, 6]
DIGESTS = ["0123456789abcdef" * 4, "f" * 64]


def tensor(array, name=None):
    return Tensor(name or array.dtype.name, array.shape, (array,))


def flat(modality="image", sides=("image_grid_thw", "patches_per_image"), arrays=ROWS, dtype="float32"):
    """Items whose tensors join along their rows; the second one has separators among its tokens."""
    grids = [np.array([[1, rows, 1]]) for rows in (3, 4)]
    counts = [np.array([rows]) for rows in (3, 4)]
    items = [
        MediaItem(
            modality,
            DIGESTS[place],
            b"",
            *(((1, 3), [(1, 3)]), ((5, 5), [(6, 1), (8, 2)]))[place],
            Tensor(dtype, arrays[place].shape, (arrays[place],)),
            {sides[0]: tensor(grids[place]), sides[1]: tensor(counts[place])},
        )
        for place in range(2)
    ]
    side = {sides[0]: tensor(np.concatenate(grids)), sides[1]: tensor(np.concatenate(counts))}
    whole = Tensor(dtype, (7, 1000), tuple(arrays))
    return MediaInputs(items, whole, side, sides[1], (sides[0],), PAD, [1, PAD, 2, 3, PAD, 5, 6], len(IDS))


def batched():
    """Items whose tensors are entries of a batch."""
    items = [
        MediaItem(
            "image", DIGESTS[place], b"", (1, 3), [(1, 3)], tensor(np.full((1, 3, 20, 20), place, np.float32)), {}
        )
        for place in range(2)
    ]
    return MediaInputs(items, None, {}, "", (), PAD, [], len(IDS))


def asked(media, **changes):
    return request(ids=IDS, media=media, **changes)


def read(frames):
    """A message with the arrays of its tensors in place."""
    payload = frames[0]

    def resolve(value):
        if isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
            kind, shape, data = value
            raw = frames[data] if isinstance(data, int) else data
            return np.frombuffer(raw, DTYPES.get(kind, kind)).reshape(shape)
        if isinstance(value, list):
            return [resolve(one) for one in value]
        return {key: resolve(one) for key, one in value.items()} if isinstance(value, dict) else value

    return resolve(msgspec.msgpack.decode(payload, ext_hook=lambda code, data: bytes(data)))


def vllm(media, dtype="float32"):
    frames = VllmWire().add(asked(media), 0, 1, Told(128, dtype))
    return frames, read(frames)[FEATURES]


class TestVllm:
    def test_each_item_is_a_feature_by_place(self):
        _, (first, second) = vllm(flat())
        assert [first["identifier"], first["mm_hash"], first["modality"]] == [DIGESTS[0], DIGESTS[0], "image"]
        assert first["mm_position"] == {"offset": 1, "length": 3, "is_embed": None}
        assert (second["mm_position"]["offset"], second["mm_position"]["length"]) == (5, 5)
        assert second["mm_position"]["is_embed"].tolist() == [False, True, False, True, True]

    def test_rows_are_told_with_all_items_rows(self):
        _, features = vllm(flat())
        for feature, rows in zip(features, ROWS, strict=True):
            primary, grid = feature["data"]["pixel_values"], feature["data"]["image_grid_thw"]
            np.testing.assert_array_equal(primary["data"], rows)
            slices = [[[0, 3, None]], [[3, 7, None]]]
            assert primary["field"] == ["flat", {"slices": slices, "dim": 0, "keep_on_cpu": False}]
            assert grid["data"].tolist() == [1, len(rows), 1]
            assert grid["field"] == ["batched", {"keep_on_cpu": True}]
            count = feature["data"]["patches_per_image"]
            assert (count["data"].shape, count["data"].tolist()) == ((), len(rows))
            assert count["field"] == ["batched", {"keep_on_cpu": False}]

    def test_an_entry_of_a_batch_comes_without_its_first_axis(self):
        _, features = vllm(batched())
        assert [feature["data"]["pixel_values"]["data"].shape for feature in features] == [(3, 20, 20)] * 2
        assert features[1]["data"]["pixel_values"]["data"].max() == 1
        assert features[0]["data"]["pixel_values"]["field"] == ["batched", {"keep_on_cpu": False}]

    def test_tensors_lie_behind_the_payload_uncopied(self):
        frames, _ = vllm(flat())
        assert [frame.nbytes for frame in frames[1:]] == [12_000, 16_000]
        assert all(np.shares_memory(frame, rows) for frame, rows in zip(frames[1:], ROWS, strict=True))

    def test_video_is_called_as_models_call_it(self):
        _, (feature, _) = vllm(flat("video", ("video_grid_thw", "patches_per_video")))
        assert set(feature["data"]) == {"pixel_values_videos", "video_grid_thw", "patches_per_video"}
        timed = flat("video", ("video_second_per_grid", "patches_per_video"))
        _, (feature, _) = vllm(timed)
        assert "second_per_grid_ts" in feature["data"]

    def test_floats_become_the_engine_s_own(self):
        exact = vllm(flat(), "")[1][1]["data"]["pixel_values"]["data"]
        half = vllm(flat(), "float16")[1][1]["data"]["pixel_values"]["data"]
        bits = vllm(flat(), "bfloat16")[1][1]["data"]["pixel_values"]["data"]
        np.testing.assert_array_equal(exact, ROWS[1])
        np.testing.assert_array_equal(half.view(np.float16), ROWS[1].astype(np.float16))
        again = (bits.astype(np.uint32) << 16).view(np.float32)
        assert np.abs(again / np.maximum(ROWS[1], 1) - np.minimum(ROWS[1], 1)).max() <= 2**-8
        # Ties go to even: 257 and 259 lie between numbers of eight bits.
        assert again.ravel()[[256, 257, 258, 259]].tolist() == [256, 256, 258, 260]

    def test_what_it_cannot_be_is_refused(self):
        with pytest.raises(GatewayError) as caught:
            cast(Tensor("float16", (2,), (b"\0" * 4,)), "bfloat16")
        assert (caught.value.status, caught.value.code) == (400, "unsupported_parameter")

    def test_without_tensors(self):
        media = flat()
        items = [msgspec.structs.replace(item, tensor=None) for item in media.items]
        for wire in (VllmWire(), TokenSpeedWire()):
            with pytest.raises(GatewayError, match="raw image input"):
                wire.add(asked(msgspec.structs.replace(media, items=items)), 0, 1, Told())

    async def test_the_engine_core_gets_them_for_each_choice(self, at):
        source = await at.worker.open(RequestContext("q"), asked(flat(), n=2))
        await drain(source)
        assert at.core.behind == [[rows.tobytes() for rows in ROWS]] * 2
        assert len(at.core.adds[1][FEATURES]) == 2

    async def test_a_request_that_is_over_before_its_tensors_are_ready(self, at, monkeypatch):
        ctx = RequestContext("q")
        put = VllmWire.add
        monkeypatch.setattr(VllmWire, "add", lambda *given: (ctx.cancel.cancel("client_disconnect"), put(*given))[1])
        with pytest.raises(GatewayError):
            await at.worker.open(ctx, asked(flat()))
        assert at.core.adds == []
        assert at.worker._sources == {}

    async def test_the_engine_tells_its_type_of_floats(self, at):
        labels = (await at.control.info()).labels
        assert labels["multimodal_encoder_dtype"] == labels["dtype"] == "bfloat16"
        assert at.control.capabilities >= {"image", "video"}
        assert not at.control.capabilities & {"audio", "mixed_media"}


class TestTokenSpeed:
    def items(self, media):
        frames = TokenSpeedWire().add(asked(media), 0, 1, Told(128, "bfloat16"))
        fields = read(frames)
        assert fields[MEDIA - 11 : MEDIA] == [None, None, None, False, 0.0, *[None] * 6]
        assert len(fields) == MEDIA + 1
        return fields[MEDIA]

    def test_each_item_by_position(self):
        items, image, video = self.items(flat())
        assert (image, video) == (PAD, None)
        for item, place, rows, offsets in zip(items, (0, 1), ROWS, ([[1, 3]], [[6, 6], [8, 9]]), strict=True):
            modality, digest, pad, runs, features, shared, side = item
            assert (modality, pad, shared, runs) == (1, None, None, offsets)
            assert digest == int.from_bytes(bytes.fromhex(DIGESTS[place])[:8], "little")
            np.testing.assert_array_equal(features, rows)
            assert side["image_grid_thw"].tolist() == [[1, len(rows), 1]]

    def test_kinds_have_numbers_and_tokens_of_their_own(self):
        media = flat()
        first, second = media.items
        kinds = [
            msgspec.structs.replace(first, modality="audio", token_id=70),
            msgspec.structs.replace(second, modality="video", token_id=71),
        ]
        items, image, video = self.items(msgspec.structs.replace(media, items=kinds))
        assert [item[0] for item in items] == [3, 2]
        assert (image, video) == (None, 71)

    def test_text_alone_has_no_such_fields(self):
        assert len(read(TokenSpeedWire().add(asked(None), 0, 1, Told()))) == 11

    async def test_the_scheduler_gets_them_from_any_process(self, tokenspeed_at):
        for process in (1, 2):
            await tokenspeed_at.run(process, ids=IDS, media=flat())
        scheduler = tokenspeed_at.scheduler
        assert scheduler.behind == [[rows.tobytes() for rows in ROWS]] * 2
        assert await tokenspeed_at.control.info()
        assert tokenspeed_at.control.capabilities >= {"image", "audio", "video", "mixed_media"}
