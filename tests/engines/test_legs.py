"""The fields by which the engines of a pair find each other, and their loads (spec engine-contract 3.2 to 3.6, 5)."""

import pytest
from google.protobuf.json_format import MessageToDict
from smg_grpc_proto import sglang_scheduler_pb2 as sglang

from smg.core.backends import Bootstrap, EngineRequest, Leg
from smg.core.request import Limits, Sampling
from smg.engines.table import adapter
from tests.engines.contracts import NAMES, having, sent

ROOM = 2**31 - 1
MEETING = Bootstrap("10.0.0.7", 8998, ROOM)


def request(leg):
    return EngineRequest(id="r", ids=[5], sampling=Sampling(), limits=Limits(9), leg=leg)


def extra(contract, leg):
    """What a leg adds to the message, field by field."""
    with_leg, without = (
        MessageToDict(sent(adapter(contract), request(each)), preserving_proto_field_name=True) for each in (leg, None)
    )
    assert without.items() <= with_leg.items()
    return {key: value for key, value in with_leg.items() if key not in without}


def test_the_contracts_that_have_pairs():
    assert set(having("disaggregation")) == {"vllm", "sglang", "tokenspeed"}


@pytest.mark.parametrize("contract", NAMES)
def test_a_request_for_one_engine_says_nothing_of_another(contract):
    message = sent(adapter(contract), request(None))
    told = {name for name, _ in ((field.name, value) for field, value in message.ListFields())}
    assert not told & {"disaggregated_params", "kv_bootstrap_info", "encode_bootstrap_info", "kv_transfer_params_json"}


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_sglang(role):
    told = {"bootstrap_host": "10.0.0.7", "bootstrap_port": 8998, "bootstrap_room": ROOM}
    assert extra("sglang", Leg(role, MEETING)) == {"disaggregated_params": told}


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_tokenspeed_rooms_have_63_bits(role):
    told = {"bootstrap_host": "10.0.0.7", "bootstrap_port": 8998, "bootstrap_room": str(2**63 - 1)}
    assert extra("tokenspeed", Leg(role, Bootstrap("10.0.0.7", 8998, 2**63 - 1))) == {"kv_bootstrap_info": told}


def test_tokenspeed_the_prefill_engine_is_told_the_encode_engine_of_each_item():
    encoders = (Bootstrap("e1", 9001, 77), Bootstrap("e2", 9002, 88))
    items = extra("tokenspeed", Leg("prefill", MEETING, encoders=encoders))["encode_bootstrap_info"]["items"]
    assert items == [
        {"bootstrap_host": "e1", "bootstrap_port": 9001, "bootstrap_room": "77"},
        {"item_index": 1, "bootstrap_host": "e2", "bootstrap_port": 9002, "bootstrap_room": "88"},
    ]


def test_vllm_parameters_pass_as_they_are():
    assert extra("vllm", Leg("decode", kv_params=b'{"a" :1}')) == {"kv_transfer_params_json": '{"a" :1}'}
    message = sent(adapter("vllm"), request(Leg("decode", kv_address=("10.0.0.7", 8998))))
    assert (message.kv_transfer_params.remote_host, message.kv_transfer_params.remote_port) == ("10.0.0.7", 8998)
    assert not message.HasField("kv_transfer_params_json")


def test_vllm_a_prefill_engine_answers_once():
    assert not sent(adapter("vllm"), request(Leg("prefill"))).stream
    assert sent(adapter("vllm"), request(Leg("decode"))).stream


def test_sglang_what_waits_for_a_transfer_waits():
    queues = sglang.DisaggregationMetrics(
        prefill_prealloc_queue_reqs=1,
        prefill_inflight_queue_reqs=2,
        decode_prealloc_queue_reqs=4,
        decode_transfer_queue_reqs=8,
        decode_retracted_queue_reqs=16,
    )
    loads = [
        sglang.SchedulerLoad(num_waiting_reqs=100, disaggregation=queues),
        sglang.SchedulerLoad(num_waiting_reqs=3),
    ]
    answer = sglang.GetLoadsResponse(loads=loads).SerializeToString()
    assert [load.waiting for load in adapter("sglang").loads(answer)] == [131, 3]
    asked = sglang.GetLoadsRequest.FromString(adapter("sglang").loads_request())
    assert list(asked.include) == ["core", "disagg"]
