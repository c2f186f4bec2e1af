"""What the drivers read out of answers, where contracts have ways of their own (spec engine-contract 2.1 to 2.8)."""

import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from smg_grpc_proto import (
    mlx_engine_pb2,
    sglang_scheduler_pb2,
    tokenspeed_scheduler_pb2,
    trtllm_service_pb2,
    vllm_engine_pb2,
)

from smg.core.backends import EngineRequest
from smg.core.request import Limits, Logprobs, Sampling
from smg.engines import labels
from smg.engines.base import EngineInfo
from smg.engines.capabilities import FEATURES, offered
from smg.engines.table import adapter
from tests.engines.contracts import NAMES, having

SECRETS = {"api_key": "sk-1", "admin_api_key": "sk-2", "ssl_keyfile_password": "sk-3"}

ARGUMENTS = {
    "tp_size": 2.0,
    "dp_size": 1,
    "context_length": 4096,
    "load_balance_method": "round_robin",
    "is_embedding": False,
    "mem_fraction_static": 0.9,
    "nested": {"api_key": "sk-4"},
    **SECRETS,
}


def decoder(contract, **changes):
    fields = {"id": "r-1", "ids": [5], "sampling": Sampling(), "limits": Limits()}
    return adapter(contract).decoder(EngineRequest(**(fields | changes)))


def struct(**fields):
    out = Struct()
    out.update(fields)
    return out


def info(contract, model=None, server=None):
    pb = {"sglang": sglang_scheduler_pb2, "tokenspeed": tokenspeed_scheduler_pb2, "trtllm": trtllm_service_pb2}[
        contract
    ]
    told = pb.GetModelInfoResponse(**(model or {})).SerializeToString()
    return adapter(contract).info(told, pb.GetServerInfoResponse(**(server or {})).SerializeToString())


class TestStreams:
    @pytest.mark.parametrize(
        ("told", "finish"),
        [("stop_word", "stop"), ("cancelled", "abort"), ("timeout", "abort"), ("length", "length"), ("new", "stop")],
    )
    def test_trtllm_has_names_of_its_own_for_ends(self, told, finish):
        message = trtllm_service_pb2.GenerateResponse(complete={"finish_reason": told}).SerializeToString()
        assert decoder("trtllm").decode(message)[0].finish == finish

    def test_trtllm_rows_may_be_fewer_than_ids(self):
        row = {"token_id": 7, "logprob": -0.5, "top_logprobs": [{"token_id": 7, "logprob": -0.5}]}
        message = trtllm_service_pb2.GenerateResponse(chunk={"token_ids": [7, 8], "logprobs": [row]})
        [batch] = decoder("trtllm", logprobs=Logprobs(1)).decode(message.SerializeToString())
        assert [(found.token, found.logprob, found.top) for found in batch.logprobs] == [
            (7, -0.5, ((7, -0.5),)),
            (8, None, ()),
        ]

    def test_mlx_tells_of_token_0_as_of_any_other(self):
        pb = mlx_engine_pb2
        told = pb.GenerateResponse(complete={"finish_reason": "stop", "matched_stop_token_id": 0})
        silent = pb.GenerateResponse(complete={"finish_reason": "stop"})
        assert decoder("mlx").decode(told.SerializeToString())[0].matched_stop == 0
        assert decoder("mlx").decode(silent.SerializeToString())[0].matched_stop is None

    @pytest.mark.parametrize("contract", NAMES)
    def test_an_empty_answer_has_no_batch_and_garbage_is_a_value_error(self, contract):
        assert decoder(contract).decode(b"") == []
        with pytest.raises(ValueError, match="GenerateResponse"):
            decoder(contract).decode(b"\xff\xff\xff")

    @pytest.mark.parametrize("contract", NAMES)
    def test_other_garbage_too(self, contract):
        made = adapter(contract)
        with pytest.raises(ValueError, match="GetModelInfoResponse"):
            made.info(b"\xff", b"")
        with pytest.raises(ValueError, match="GetServerInfoResponse"):
            made.info(b"", b"\xff")
        assert not made.healthy(b"\xff")
        assert not made.healthy(b"")
        with pytest.raises(ValueError, match="GetTokenizerChunk"):
            made.tokenizer_chunk(b"\xff")

    @pytest.mark.parametrize("contract", having("loads"))
    def test_loads_that_are_none(self, contract):
        with pytest.raises(ValueError, match="GetLoadsResponse"):
            adapter(contract).loads(b"\xff")

    @pytest.mark.parametrize("contract", having("embed"))
    def test_an_embedding_that_is_none(self, contract):
        with pytest.raises(ValueError, match="EmbedResponse"):
            adapter(contract).embedding(b"\xff")

    @pytest.mark.parametrize(("status", "healthy"), [("OK", True), (" ok \n", True), ("loading", False), ("", False)])
    def test_trtllm_says_how_it_is_in_words(self, status, healthy):
        message = trtllm_service_pb2.HealthCheckResponse(status=status).SerializeToString()
        assert adapter("trtllm").healthy(message) is healthy


class TestServerArguments:
    @pytest.mark.parametrize("contract", ["sglang", "tokenspeed"])
    def test_secrets_never_enter_a_label(self, contract):
        told = info(contract, server={"server_args": struct(**ARGUMENTS), "scheduler_info": struct(**SECRETS)})
        assert "sk-" not in str(told)
        assert told.labels["tp_size"] == "2"
        assert told.labels["load_balance_method"] == "round_robin"
        assert told.labels["is_embedding"] == "false"
        assert "mem_fraction_static" not in told.labels

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"context_length": 4096}, 4096),
            ({"context_length": None}, 4000),
            ({}, 4000),
            ({"context_length": "long"}, 4000),
            ({"context_length": True}, 4000),
        ],
        ids=str,
    )
    def test_sglang_tells_the_size_of_its_cache_as_context(self, arguments, expected):
        model = {"max_context_length": 500_000, "max_req_input_len": 4000}
        told = info("sglang", model, {"server_args": struct(**arguments)})
        assert (told.context_length, told.max_input_length) == (expected, 4000)
        assert "max_context_length" not in told.labels

    def test_messages_inside_messages_are_no_labels(self):
        server = sglang_scheduler_pb2.GetServerInfoResponse(
            server_args=struct(x="y"), start_time=Timestamp(seconds=5), sglang_version="0.5.21", active_requests=3
        )
        assert labels.flatten(server) == {"version": "0.5.21"}

    def test_the_weights_have_a_version_of_their_own(self):
        told = info("sglang", {"weight_version": "w3"}, {"sglang_version": "0.5.21"})
        assert (told.labels["version"], told.labels["weight_version"]) == ("0.5.21", "w3")

    def test_sglang_names_sampling_defaults_in_two_places(self):
        assert info("sglang", {"preferred_sampling_params": '{"top_k": 20}'}).default_sampling == {"top_k": 20.0}
        both = {"preferred_sampling_params": '{"top_k": 20}', "default_sampling_params_json": '{"top_p": 0.5}'}
        assert info("sglang", both).default_sampling == {"top_p": 0.5}

    def test_tokenspeed_shares_its_memory_namespace(self):
        told = info("tokenspeed", server={"scheduler_info": struct(shm_namespace_id="boot:1", token="sk-5")})
        assert told.labels["shm_namespace_id"] == "boot:1"
        assert "token" not in told.labels

    @pytest.mark.parametrize(
        ("arguments", "generates"),
        [({}, True), ({"disaggregation_mode": "encode"}, False), ({"disaggregation_mode": "prefill"}, True),
         ({"is_embedding": True}, False)],
        ids=str,
    )  # fmt: skip
    def test_tokenspeed_encode_workers_do_not_generate(self, arguments, generates):
        assert info("tokenspeed", server={"server_args": struct(**arguments)}).is_generation is generates


class TestFeatures:
    @pytest.mark.parametrize("contract", NAMES)
    def test_every_feature_has_a_description(self, contract):
        assert adapter(contract).capabilities <= FEATURES.keys()

    @pytest.mark.parametrize(
        ("contract", "told", "vision"),
        [("sglang", {"is_generation": True}, {"image"}), ("tokenspeed", {}, {"image", "video"})],
    )
    def test_media_are_offered_where_the_model_takes_them(self, contract, told, vision):
        able, blind = (
            offered(adapter(contract).capabilities, info(contract, {**told, "supports_vision": sees}))
            for sees in (True, False)
        )
        assert able - blind == vision

    def test_an_engine_may_have_less_than_its_contract(self):
        off = info("tokenspeed", server={"server_args": struct(enable_output_logprobs=False, dp_size=2)})
        found = offered(adapter("tokenspeed").capabilities, off)
        assert "logprobs" not in found
        assert {"dp_rank", "generate", "seed"} <= found
        silent = offered(adapter("tokenspeed").capabilities, info("tokenspeed"))
        assert "logprobs" in silent
        assert "dp_rank" not in silent

    def test_trtllm_needs_its_vocabulary_for_a_bias(self):
        assert info("trtllm").lacks == {"logit_bias"}
        assert info("trtllm", {"vocab_size": 5}).lacks == frozenset()

    def test_an_embedding_model_keeps_what_is_not_generation(self):
        contract = adapter("sglang").capabilities
        found = offered(contract, EngineInfo("m", is_generation=False))
        assert found == {"embed", "loads", "tokenizer_bundle", "flush_cache", "profile", "kv_events"}
        assert offered(contract, EngineInfo("m")) == contract


def test_vllm_kv_parameters_are_relayed_byte_for_byte():
    text = '{"do_remote_prefill": true,  "x": 1}'
    message = vllm_engine_pb2.GenerateResponse(complete={"kv_transfer_params_json": text}).SerializeToString()
    assert decoder("vllm").decode(message)[0].kv_params == text.encode()
