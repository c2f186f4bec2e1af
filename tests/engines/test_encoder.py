"""The encoder service of the TokenSpeed contract (spec engine-contract 3.6 and 5.4)."""

import grpc
import pytest
from smg_grpc_proto import tokenspeed_encoder_pb2 as encoder

from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.media import MediaItem, Tensor
from smg.engine_server.mock import Fault, MockEngine, Script
from smg.engines.capabilities import offered
from smg.engines.table import adapter
from tests.engines.contracts import driver_to, lacking

PIXELS = Tensor("float32", (1, 2, 3), (bytes(range(20)), bytes(4)))
GRID = Tensor("int64", (1,), (bytes(8),))
ITEM = MediaItem("image", "01ff" * 16, b"", (4, 18), ((4, 10), (20, 2)), PIXELS, {"grid": GRID})
TOKEN = 77


def mock(role="encode", **script):
    return MockEngine(Script(**script), contract="tokenspeed", role=role)


def test_one_item_and_one_room():
    message = encoder.EncodeRequest.FromString(adapter("tokenspeed").encode("r-1", ITEM, TOKEN, 2**63 - 1))
    assert message.request_id == "r-1"
    assert [each.bootstrap_room for each in message.items] == [2**63 - 1]
    (item,) = message.mm_inputs.items
    assert (item.modality, item.content_hash, item.placeholder_token_id) == (1, b"\x01\xff" * 16, 77)
    assert [(each.offset, each.length) for each in item.placeholders] == [(4, 10), (20, 2)]
    assert (list(item.encoder_input.shape), item.encoder_input.dtype) == ([1, 2, 3], "float32")
    assert item.encoder_input.inline == PIXELS.tobytes()
    assert list(item.model_specific_tensors["grid"].shape) == [1]


async def test_the_engine_accepts_it():
    async with mock() as engine, driver_to(engine.url, "tokenspeed") as driver:
        await driver.encode(RequestContext("r"), "r-1", ITEM, TOKEN, 5)
        assert [(each.request_id, each.items[0].bootstrap_room) for each in engine.encoded] == [("r-1", 5)]


async def test_one_that_does_not_is_to_blame():
    async with mock("regular") as engine, driver_to(engine.url, "tokenspeed") as driver:
        with pytest.raises(GatewayError) as caught:
            await driver.encode(RequestContext("r"), "r-1", ITEM, TOKEN, 5)
        assert (caught.value.status, caught.value.worker_fault) == (502, True)


async def test_failures_are_those_of_any_call():
    faults = (Fault(rpc="Encode", status=grpc.StatusCode.UNAVAILABLE),)
    async with mock(faults=faults) as engine, driver_to(engine.url, "tokenspeed") as driver:
        with pytest.raises(GatewayError) as caught:
            await driver.encode(RequestContext("r"), "r-1", ITEM, TOKEN, 5)
        assert (caught.value.status, caught.value.worker_fault) == (503, True)


async def test_a_deadline_bounds_it():
    faults = (Fault(rpc="Encode", kind="stall"),)
    async with mock(faults=faults) as engine, driver_to(engine.url, "tokenspeed") as driver:
        with pytest.raises(GatewayError) as caught:
            await driver.encode(RequestContext("r", deadline=clock.monotonic() + 0.1), "r-1", ITEM, TOKEN, 5)
        assert caught.value.status == 504
        with pytest.raises(GatewayError) as caught:
            await driver.encode(RequestContext("r", deadline=clock.monotonic()), "r-1", ITEM, TOKEN, 5)
        assert caught.value.code == "deadline_exceeded"


async def test_an_encode_engine_says_so_and_does_not_generate():
    async with mock() as engine, driver_to(engine.url, "tokenspeed") as driver:
        info = await driver.info()
        features = offered(driver.adapter.capabilities, info)
        assert info.labels["disaggregation_mode"] == "encode"
        assert "encode" in features
        assert not features & {"generate", "disaggregation"}
    async with mock("regular") as engine, driver_to(engine.url, "tokenspeed") as driver:
        assert "encode" not in offered(driver.adapter.capabilities, await driver.info())


@pytest.mark.parametrize("contract", lacking("encode"))
def test_other_contracts_have_no_encoder(contract):
    with pytest.raises(GatewayError) as caught:
        adapter(contract).encode("r-1", ITEM, TOKEN, 5)
    assert caught.value.status == 501
