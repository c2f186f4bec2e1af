"""The vLLM contract against the published stubs (spec engine-contract 2.1 to 2.9, 3.2)."""

import math

import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto.generated import common_pb2

from smg.core.backends import EngineRequest
from smg.core.errors import GatewayError
from smg.core.request import Constraint, Limits, Logprobs, Sampling
from smg.engines.base import EngineLoad
from smg.engines.vllm.adapter import VllmAdapter

ADAPTER = VllmAdapter()


def request(**changes):
    fields = {"id": "r-1", "ids": [5, 6, 7], "sampling": Sampling(), "limits": Limits()}
    return EngineRequest(**(fields | changes))


def encode(**changes):
    return pb.GenerateRequest.FromString(ADAPTER.generate(request(**changes)))


def sampling(**given):
    return encode(sampling=Sampling(**given)).sampling_params


def decoder(**changes):
    return ADAPTER.decoder(request(**changes))


def chunk(**fields):
    return pb.GenerateResponse(chunk=pb.GenerateStreamChunk(**fields)).SerializeToString()


def complete(**fields):
    return pb.GenerateResponse(complete=pb.GenerateComplete(**fields)).SerializeToString()


class TestRequest:
    def test_a_bare_request_is_exactly_this(self):
        expected = pb.GenerateRequest(
            request_id="r-1",
            tokenized=pb.TokenizedInput(input_ids=[5, 6, 7]),
            sampling_params=pb.SamplingParams(
                temperature=1.0,
                top_p=1.0,
                repetition_penalty=1.0,
                skip_special_tokens=True,
                spaces_between_special_tokens=True,
                n=1,
            ),
            stream=True,
        )
        assert encode() == expected

    def test_no_zero_where_zero_breaks_the_generation(self):
        params = sampling()
        assert params.HasField("temperature")
        assert (params.top_p, params.repetition_penalty, params.n) == (1.0, 1.0, 1)
        assert not params.HasField("max_tokens")
        assert not params.HasField("seed")

    def test_everything_the_client_said_is_sent(self):
        message = encode(
            sampling=Sampling(
                temperature=0.0,
                top_p=0.5,
                top_k=40,
                min_p=0.25,
                frequency_penalty=-1.5,
                presence_penalty=0.5,
                repetition_penalty=1.25,
                seed=7,
                logit_bias={3: -100.0, 9: 2.5},
            ),
            limits=Limits(max_tokens=10, min_tokens=2),
            stop_ids=(50, 51),
            ignore_eos=True,
            n=3,
            dp_rank=0,
        )
        params = message.sampling_params
        assert params.HasField("temperature")
        assert params.temperature == 0.0
        assert (params.top_p, params.top_k, params.min_p) == (0.5, 40, 0.25)
        assert (params.frequency_penalty, params.presence_penalty, params.repetition_penalty) == (-1.5, 0.5, 1.25)
        assert (params.seed, params.max_tokens, params.min_tokens, params.n) == (7, 10, 2, 3)
        assert dict(params.logit_bias) == {3: -100.0, 9: 2.5}
        assert list(params.stop_token_ids) == [50, 51]
        assert list(params.stop) == []
        assert params.ignore_eos
        assert message.HasField("data_parallel_rank")  # rank 0 is a pin

    @pytest.mark.parametrize(
        ("seed", "sent"), [(2**40, 2**31 - 1), (-(2**40), -(2**31)), (0, 0), (2**31 - 1, 2**31 - 1)]
    )
    def test_seeds_are_clamped_to_32_bits(self, seed, sent):
        params = sampling(seed=seed)
        assert params.HasField("seed")
        assert params.seed == sent

    def test_top_k_off_is_zero(self):
        assert sampling(top_k=-1).top_k == 0
        assert sampling(top_k=0).top_k == 0

    def test_a_top_p_of_zero_means_the_best_token_alone(self):
        assert 0.0 < sampling(top_p=0.0).top_p < 1e-5

    @pytest.mark.parametrize(
        ("changes", "param"),
        [
            ({"sampling": Sampling(repetition_penalty=0.0)}, "repetition_penalty"),
            ({"sampling": Sampling(temperature=-1.0)}, "temperature"),
            ({"sampling": Sampling(top_p=math.nan)}, "top_p"),
            ({"sampling": Sampling(logit_bias={-1: 1.0})}, "logit_bias.-1"),
            ({"sampling": Sampling(logit_bias={100_000_000: 1.0}), "vocab_size": 32_000}, "logit_bias.100000000"),
            ({"sampling": Sampling(logit_bias={32_000: 1.0}), "vocab_size": 32_000}, "logit_bias.32000"),
            ({"limits": Limits(max_tokens=-1)}, "max_tokens"),
            ({"limits": Limits(min_tokens=2**32)}, "min_tokens"),
            ({"stop_ids": (-5,)}, "stop_token_ids"),
            ({"ids": [1, -2]}, "prompt"),
            ({"n": 0}, "n"),
            ({"constraint": Constraint("choice")}, "choice"),
        ],
    )
    def test_what_has_no_place_in_the_contract_is_a_bad_request(self, changes, param):
        with pytest.raises(GatewayError) as caught:
            ADAPTER.generate(request(**changes))
        assert (caught.value.status, caught.value.param) == (400, param)

    @pytest.mark.parametrize("kind", ["json_schema", "regex", "grammar", "structural_tag"])
    def test_text_constraints(self, kind):
        params = encode(constraint=Constraint(kind, "the text")).sampling_params
        assert params.WhichOneof("constraint") == kind
        assert getattr(params, kind) == "the text"

    def test_other_constraints(self):
        assert encode(constraint=Constraint("json_object")).sampling_params.json_object
        assert list(encode(constraint=Constraint("choice", choices=("a", "b"))).sampling_params.choice.choices) == [
            "a",
            "b",
        ]
        assert encode().sampling_params.WhichOneof("constraint") is None
        with pytest.raises(GatewayError) as caught:
            ADAPTER.generate(request(constraint=Constraint("poem")))
        assert caught.value.code == "unsupported_parameter"

    def test_logprobs(self):
        none = encode().sampling_params
        assert not none.HasField("logprobs")
        assert not none.HasField("prompt_logprobs")
        sampled = encode(logprobs=Logprobs(0)).sampling_params
        assert sampled.HasField("logprobs")
        assert sampled.logprobs == 0
        both = encode(logprobs=Logprobs(4, prompt=True)).sampling_params
        assert (both.logprobs, both.prompt_logprobs) == (4, 4)

    def test_aborts_of_several_ids_are_one_message(self):
        [message] = ADAPTER.abort(["a", "b"], "deadline")
        assert list(pb.AbortRequest.FromString(message).request_ids) == ["a", "b"]


class TestAnswers:
    def test_tokens_come_from_chunks_and_the_end_from_complete(self):
        decode = decoder().decode
        [first] = decode(chunk(token_ids=[10, 11], prompt_tokens=3, completion_tokens=2))
        [last] = decode(chunk(token_ids=[12], prompt_tokens=3, completion_tokens=1))
        [end] = decode(complete(output_ids=[12], finish_reason="length", prompt_tokens=3, completion_tokens=1))
        assert (first.ids, last.ids, end.ids) == ([10, 11], [12], [])
        assert (first.finish, last.finish, end.finish) == (None, None, "length")
        assert end.prompt_tokens == 3

    @pytest.mark.parametrize(
        ("told", "finish"),
        [
            ("", "stop"),
            ("stop", "stop"),
            ("repetition", "stop"),
            ("length", "length"),
            ("abort", "abort"),
            ("error", "error"),
        ],
    )
    def test_finish_reasons(self, told, finish):
        [batch] = decoder().decode(complete(finish_reason=told))
        assert batch.finish == finish

    def test_what_else_a_complete_tells(self):
        [batch] = decoder().decode(
            complete(
                matched_token_id=50,
                index=1,
                kv_transfer_params_json='{"a": 1}',
                spec_accepted_tokens=4,
                spec_draft_tokens=9,
            )
        )
        assert (batch.index, batch.matched_stop, batch.kv_params) == (1, 50, b'{"a": 1}')
        assert (batch.spec_accepted_tokens, batch.spec_draft_tokens) == (4, 9)
        [text] = decoder().decode(complete(matched_stop_str="END"))
        assert text.matched_stop == "END"

    def test_cached_tokens_are_the_most_a_choice_has_shown(self):
        decode = decoder(n=2).decode
        counts = [0, 16, 0]
        assert [decode(chunk(token_ids=[1], cached_tokens=n))[0].cached_tokens for n in counts] == [0, 16, 16]
        assert decode(chunk(token_ids=[1], index=1))[0].cached_tokens == 0
        assert decode(complete(cached_tokens=8))[0].cached_tokens == 16

    def test_an_empty_answer_has_no_batch_and_garbage_is_a_value_error(self):
        assert decoder().decode(b"") == []
        with pytest.raises(ValueError, match=r"not a vllm.grpc.engine.GenerateResponse"):
            decoder().decode(b"\xff\xff\xff")


class TestLogprobs:
    def answer(self, **fields):
        return chunk(token_ids=[7, 8], output_logprobs=pb.OutputLogProbs(**fields))

    def test_top_lists_are_sorted_and_have_no_duplicates(self):
        message = self.answer(
            token_logprobs=[-0.5, -1.0],
            token_ids=[7, 8],
            top_logprobs=[
                pb.TopLogProbs(token_ids=[7, 9, 7, 3], values=[-0.5, -0.25, -0.5, -2.0]),
                pb.TopLogProbs(token_ids=[8], values=[-1.0]),
            ],
        )
        [batch] = decoder(logprobs=Logprobs(2)).decode(message)
        assert [(row.token, row.logprob, row.top) for row in batch.logprobs] == [
            (7, -0.5, ((9, -0.25), (7, -0.5))),
            (8, -1.0, ((8, -1.0),)),
        ]

    def test_short_arrays_lack_their_tail(self):
        message = self.answer(token_logprobs=[-0.5], top_logprobs=[pb.TopLogProbs(token_ids=[7], values=[-0.5])])
        [batch] = decoder(logprobs=Logprobs(1)).decode(message)
        assert [(row.token, row.logprob, row.top) for row in batch.logprobs] == [(7, -0.5, ((7, -0.5),)), (8, None, ())]

    def test_infinities_have_a_value_json_knows(self):
        message = self.answer(token_logprobs=[-math.inf, math.nan])
        [batch] = decoder(logprobs=Logprobs()).decode(message)
        assert [row.logprob for row in batch.logprobs] == [-9999.0, None]

    def test_nobody_asked(self):
        [batch] = decoder().decode(self.answer(token_logprobs=[-0.5, -0.5], token_ids=[7, 8]))
        assert batch.logprobs is None

    def test_prompt_logprobs_come_once_per_choice_and_start_without_a_value(self):
        found = pb.InputLogProbs(
            token_logprobs=[pb.InputTokenLogProb(), pb.InputTokenLogProb(value=-1.5)],
            token_ids=[5, 6],
            top_logprobs=[pb.TopLogProbs(), pb.TopLogProbs(token_ids=[6, 2], values=[-1.5, -0.5])],
        )
        decode = decoder(logprobs=Logprobs(1, prompt=True)).decode
        [first] = decode(chunk(token_ids=[1], input_logprobs=found))
        [end] = decode(complete(input_logprobs=found))
        assert [(row.token, row.logprob, row.top) for row in first.prompt_logprobs] == [
            (5, None, ()),
            (6, -1.5, ((2, -0.5),)),
        ]
        assert end.prompt_logprobs is None


class TestInfo:
    def test_model_and_server_information(self):
        model = pb.GetModelInfoResponse(
            model_path="/models/llama",
            served_model_name="llama",
            tokenizer_path="/models/llama",
            max_context_length=8192,
            max_req_input_len=8000,
            vocab_size=128256,
            is_generation=True,
            eos_token_ids=[2, 5],
            architectures=["LlamaForCausalLM"],
            default_sampling_params_json='{"temperature": 0.6, "top_k": 20, "stop": ["x"], "top_p": true}',
        )
        server = pb.GetServerInfoResponse(
            active_requests=4,
            uptime_seconds=12.5,
            server_type="vllm-grpc",
            data_parallel_size=2,
            max_num_seqs=256,
            model_dtype="torch.bfloat16",
        )
        info = ADAPTER.info(model.SerializeToString(), server.SerializeToString())
        assert (info.model_id, info.model_path, info.tokenizer_path) == ("llama", "/models/llama", "/models/llama")
        assert (info.context_length, info.max_input_length, info.vocab_size) == (8192, 8000, 128256)
        assert info.eos_ids == (2, 5)
        assert info.is_generation
        assert info.default_sampling == {"temperature": 0.6, "top_k": 20.0}
        assert info.labels["dp_size"] == "2"
        assert info.labels["max_num_seqs"] == "256"
        assert info.labels["supports_vision"] == "false"
        assert info.lacks == {"image", "video"}
        sees = pb.GetModelInfoResponse(supports_vision=True)
        assert ADAPTER.info(sees.SerializeToString(), b"").lacks == frozenset()
        assert info.labels["architectures"] == '["LlamaForCausalLM"]'
        assert info.labels["eos_token_ids"] == "[2, 5]"
        for absent in ("active_requests", "uptime_seconds", "server_type", "kv_connector", "block_size"):
            assert absent not in info.labels

    def test_without_a_served_name_the_path_is_the_model(self):
        info = ADAPTER.info(pb.GetModelInfoResponse(model_path="org/name").SerializeToString(), b"")
        assert info.model_id == "org/name"
        with pytest.raises(ValueError, match=r"not a vllm.grpc.engine.GetModelInfoResponse"):
            ADAPTER.info(b"\xff", b"")

    @pytest.mark.parametrize("text", ["", "null", "[1]", "{broken", '{"temperature": "hot"}'])
    def test_sampling_defaults_that_make_no_sense_are_none(self, text):
        model = pb.GetModelInfoResponse(default_sampling_params_json=text).SerializeToString()
        assert ADAPTER.info(model, b"").default_sampling == {}

    def test_health_loads_and_tokenizer_chunks(self):
        assert ADAPTER.healthy(pb.HealthCheckResponse(healthy=True).SerializeToString())
        assert not ADAPTER.healthy(b"")
        assert not ADAPTER.healthy(b"\xff")
        assert list(pb.GetLoadsRequest.FromString(ADAPTER.loads_request()).include) == ["core"]
        load = pb.SchedulerLoad(
            dp_rank=1,
            num_running_reqs=2,
            num_waiting_reqs=3,
            num_used_tokens=4,
            max_total_num_tokens=5,
            token_usage=0.5,
            num_waiting_uncached_tokens=6,
            gen_throughput=7.5,
            cache_hit_rate=0.25,
            utilization=0.75,
            max_running_requests=8,
        )
        assert ADAPTER.loads(pb.GetLoadsResponse(loads=[load]).SerializeToString()) == [
            EngineLoad(1, 2, 3, 4, 5, 0.5, 6, 7.5, 0.25, 0.75, 8)
        ]
        piece = common_pb2.GetTokenizerChunk(data=b"zip", sha256="ab").SerializeToString()
        assert ADAPTER.tokenizer_chunk(piece) == (b"zip", "ab")
        with pytest.raises(ValueError, match="GetTokenizerChunk"):
            ADAPTER.tokenizer_chunk(b"\xff")
