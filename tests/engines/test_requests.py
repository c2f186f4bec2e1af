"""What each driver makes of a request, field by field (spec engine-contract 2.3 to 2.6 and 2.11)."""

import math

import pytest
from google.protobuf.json_format import MessageToDict

from smg.core.backends import EngineRequest
from smg.core.errors import GatewayError
from smg.core.request import Constraint, Limits, Logprobs, Sampling
from smg.engines.table import adapter
from tests.engines.contracts import NAMES, having, lacking, message_class, sent

VOCABULARY = 16


def request(**changes):
    fields = {"id": "r-1", "ids": [5, 6], "sampling": Sampling(), "limits": Limits(max_tokens=9)}
    return EngineRequest(**(fields | {"vocab_size": VOCABULARY} | changes))


def fields(contract, **changes):
    return MessageToDict(sent(adapter(contract), request(**changes)), preserving_proto_field_name=True)


def refusal(contract, **changes):
    with pytest.raises(GatewayError) as caught:
        adapter(contract).generate(request(**changes))
    return caught.value


BARE = {
    "vllm": {
        "request_id": "r-1",
        "tokenized": {"input_ids": [5, 6]},
        "sampling_params": {
            "temperature": 1.0,
            "top_p": 1.0,
            "repetition_penalty": 1.0,
            "n": 1,
            "max_tokens": 9,
            "skip_special_tokens": True,
            "spaces_between_special_tokens": True,
        },
        "stream": True,
    },
    "sglang": {
        "request_id": "r-1",
        "tokenized": {"input_ids": [5, 6]},
        "sampling_params": {
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "repetition_penalty": 1.0,
            "n": 1,
            "max_new_tokens": 9,
            "skip_special_tokens": True,
            "spaces_between_special_tokens": True,
        },
        "logprob_start_len": -1,
        "log_metrics": True,
        "stream": True,
    },
    "trtllm": {
        "request_id": "r-1",
        "tokenized": {"input_token_ids": [5, 6]},
        "sampling_config": {
            "beam_width": 1,
            "num_return_sequences": 1,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "repetition_penalty": 1.0,
        },
        "output_config": {"exclude_input_from_output": True},
        "max_tokens": 9,
        "streaming": True,
        "include_stop_token_in_output": True,
    },
    "mlx": {
        "request_id": "r-1",
        "tokenized": {"input_ids": [5, 6]},
        "sampling_params": {"temperature": 1.0, "top_p": 1.0, "repetition_penalty": 1.0, "max_tokens": 9},
        "stream": True,
    },
    "tokenspeed": {
        "request_id": "r-1",
        "tokenized": {"input_ids": [5, 6]},
        "sampling_params": {
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "repetition_penalty": 1.0,
            "n": 1,
            "max_new_tokens": 9,
            "min_p": 0.0,
            "frequency_penalty": 0.0,
            "presence_penalty": 0.0,
            "no_stop_trim": True,
            "skip_special_tokens": True,
            "spaces_between_special_tokens": True,
        },
        "stream": True,
    },
}

FULL = Sampling(
    temperature=0.75,
    top_p=0.5,
    top_k=40,
    min_p=0.25,
    frequency_penalty=-1.5,
    presence_penalty=0.5,
    repetition_penalty=1.25,
    seed=-1,
    logit_bias={3: -100.0, 9: 2.5},
)
COMMON = {
    "temperature": 0.75,
    "top_p": 0.5,
    "top_k": 40,
    "min_p": 0.25,
    "frequency_penalty": -1.5,
    "presence_penalty": 0.5,
    "repetition_penalty": 1.25,
}
BIAS = {"3": -100.0, "9": 2.5}
ALL = {
    "vllm": {**COMMON, "seed": -1, "logit_bias": BIAS, "max_tokens": 9, "stop_token_ids": [50, 51], "ignore_eos": True},
    "sglang": {**COMMON, "logit_bias": BIAS, "max_new_tokens": 9, "stop_token_ids": [50, 51], "ignore_eos": True},
    # Different seeds stay different: -1 is the largest 64-bit number.
    "trtllm": {**COMMON, "seed": str(2**64 - 1)},
    "mlx": {**COMMON, "seed": -1, "logit_bias": BIAS, "max_tokens": 9, "stop_token_ids": [50, 51], "ignore_eos": True},
    "tokenspeed": {
        **COMMON,
        "sampling_seed": str(2**64 - 1),
        "logit_bias": BIAS,
        "max_new_tokens": 9,
        "stop_token_ids": [50, 51],
        "ignore_eos": True,
    },
}
PARAMS = {name: "sampling_config" if name == "trtllm" else "sampling_params" for name in NAMES}
MINIMUM = {"vllm": "min_tokens", "sglang": "min_new_tokens", "trtllm": "min_tokens", "tokenspeed": "min_new_tokens"}


class TestSampling:
    @pytest.mark.parametrize("contract", NAMES)
    def test_a_bare_request_is_exactly_this(self, contract):
        assert fields(contract) == BARE[contract]

    @pytest.mark.parametrize("contract", NAMES)
    def test_FIX_7_2_everything_the_client_said_is_sent(self, contract):
        message = fields(contract, sampling=FULL, stop_ids=(50, 51), ignore_eos=True)
        assert {name: message[PARAMS[contract]].get(name) for name in ALL[contract]} == ALL[contract]
        if contract == "trtllm":
            assert (message["stop_token_ids"], message["ignore_eos"]) == ([50, 51], True)
            vector = message["embedding_bias"]
            assert (len(vector), vector[3], vector[9], sum(map(abs, vector))) == (VOCABULARY, -100.0, 2.5, 102.5)
        # Strings are matched by the gateway; nobody is to need a tokenizer.
        assert "stop" not in message
        assert "stop" not in message[PARAMS[contract]]

    @pytest.mark.parametrize("contract", NAMES)
    def test_a_temperature_of_zero_is_greedy_and_no_default(self, contract):
        params = getattr(sent(adapter(contract), request(sampling=Sampling(temperature=0.0))), PARAMS[contract])
        assert params.temperature == 0.0
        if contract != "sglang":  # there the field cannot tell unset from zero
            assert params.HasField("temperature")

    @pytest.mark.parametrize("contract", having("min_tokens"))
    def test_a_minimum_of_tokens(self, contract):
        message = fields(contract, limits=Limits(max_tokens=9, min_tokens=2))
        assert message[PARAMS[contract]][MINIMUM[contract]] == 2

    @pytest.mark.parametrize("contract", having("n"))
    def test_several_choices(self, contract):
        name = "num_return_sequences" if contract == "trtllm" else "n"
        assert fields(contract, n=3)[PARAMS[contract]][name] == 3

    @pytest.mark.parametrize("contract", NAMES)
    @pytest.mark.parametrize(("given", "least"), [(0.0, 0.0), (None, 1.0)])
    def test_top_p_is_never_zero(self, contract, given, least):
        value = fields(contract, sampling=Sampling(top_p=given))[PARAMS[contract]]["top_p"]
        assert value > 0
        assert value == pytest.approx(least, abs=1e-5)

    @pytest.mark.parametrize("contract", NAMES)
    @pytest.mark.parametrize("given", [-1, 0, None])
    def test_all_candidates(self, contract, given):
        params = fields(contract, sampling=Sampling(top_k=given))[PARAMS[contract]]
        assert params.get("top_k", 0) == (-1 if contract in ("sglang", "tokenspeed") else 0)

    @pytest.mark.parametrize("contract", [name for name in NAMES if name != "trtllm"])
    def test_no_limit(self, contract):
        params = fields(contract, limits=Limits())[PARAMS[contract]]
        assert "max_tokens" not in params
        assert "max_new_tokens" not in params

    def test_trtllm_has_to_be_told_a_limit(self):
        for limit in (None, 0):
            error = refusal("trtllm", limits=Limits(limit))
            assert (error.status, error.param) == (400, "max_tokens")

    @pytest.mark.parametrize("contract", ["vllm", "mlx"])
    def test_FIX_7_2_seeds_are_clamped_to_32_bits(self, contract):
        assert fields(contract, sampling=Sampling(seed=2**40))["sampling_params"]["seed"] == 2**31 - 1

    @pytest.mark.parametrize("contract", NAMES)
    @pytest.mark.parametrize(
        ("changes", "param"),
        [
            ({"sampling": Sampling(repetition_penalty=0.0)}, "repetition_penalty"),
            ({"sampling": Sampling(temperature=-1.0)}, "temperature"),
            ({"sampling": Sampling(top_p=math.nan)}, "top_p"),
            ({"sampling": Sampling(min_p=math.inf)}, "min_p"),
            ({"sampling": Sampling(temperature=1e39)}, "temperature"),
            ({"sampling": Sampling(presence_penalty=math.inf)}, "presence_penalty"),
            ({"sampling": Sampling(frequency_penalty=math.nan)}, "frequency_penalty"),
            ({"sampling": Sampling(logit_bias={-1: 1.0})}, "logit_bias.-1"),
            ({"limits": Limits(-1)}, "max_tokens"),
            ({"limits": Limits(2**32)}, "max_tokens"),
            ({"stop_ids": (-5,)}, "stop_token_ids"),
            ({"ids": [1, -2]}, "prompt"),
            ({"ids": [2**32]}, "prompt"),
            ({"n": 0}, "n"),
        ],
        ids=str,
    )
    def test_what_has_no_place_is_a_bad_request(self, contract, changes, param):
        error = refusal(contract, **changes)
        assert (error.status, error.param) == (400, param)

    def test_a_bias_as_a_vector_needs_the_vocabulary(self):
        bias = Sampling(logit_bias={20: 1.0})
        assert refusal("trtllm", sampling=bias).param == "logit_bias.20"
        unknown = refusal("trtllm", sampling=bias, vocab_size=0)
        assert (unknown.code, unknown.param) == ("unsupported_parameter", "logit_bias")


CONSTRAINTS = [
    Constraint("json_schema", '{"type":"string"}'),
    Constraint("json_object"),
    Constraint("regex", "a+"),
    Constraint("grammar", 'root ::= "a"'),
    Constraint("structural_tag", '{"structures":[]}'),
    Constraint("choice", choices=("yes", "no (?)\n")),
]
ANY_OBJECT = '{"type":"object"}'
EITHER = "(yes|no \\(\\?\\)\\n)"
_TEXTS = [
    {"json_schema": '{"type":"string"}'},
    {"json_schema": ANY_OBJECT},
    {"regex": "a+"},
    {"ebnf_grammar": 'root ::= "a"'},
    {"structural_tag": '{"structures":[]}'},
    {"regex": EITHER},
]
# Spec engine-contract 2.4, row by row.
CONSTRAINED = {
    "vllm": [
        {"json_schema": '{"type":"string"}'},
        {"json_object": True},
        {"regex": "a+"},
        {"grammar": 'root ::= "a"'},
        {"structural_tag": '{"structures":[]}'},
        {"choice": {"choices": ["yes", "no (?)\n"]}},
    ],
    "sglang": _TEXTS,
    "tokenspeed": _TEXTS,
    "trtllm": [
        {"guide_type": "GUIDE_TYPE_JSON_SCHEMA", "guide": '{"type":"string"}'},
        {"guide_type": "GUIDE_TYPE_JSON"},
        {"guide_type": "GUIDE_TYPE_REGEX", "guide": "a+"},
        {"guide_type": "GUIDE_TYPE_EBNF_GRAMMAR", "guide": 'root ::= "a"'},
        {"guide_type": "GUIDE_TYPE_STRUCTURAL_TAG", "guide": '{"structures":[]}'},
        {"guide_type": "GUIDE_TYPE_REGEX", "guide": EITHER},
    ],
}


class TestConstraints:
    @pytest.mark.parametrize("place", range(len(CONSTRAINTS)), ids=[each.kind for each in CONSTRAINTS])
    @pytest.mark.parametrize("contract", list(CONSTRAINED))
    def test_each_kind_has_its_field(self, contract, place):
        message = fields(contract, constraint=CONSTRAINTS[place])
        if contract == "trtllm":
            assert message["guided_decoding"] == CONSTRAINED[contract][place]
            return
        bare = BARE[contract]["sampling_params"]
        added = {name: value for name, value in message["sampling_params"].items() if name not in bare}
        assert added == CONSTRAINED[contract][place]
        assert CONSTRAINTS[place].kind in adapter(contract).capabilities

    @pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda each: each.kind)
    def test_mlx_has_none(self, constraint):
        assert refusal("mlx", constraint=constraint).code == "unsupported_parameter"
        assert constraint.kind not in adapter("mlx").capabilities

    @pytest.mark.parametrize("contract", NAMES)
    def test_a_kind_nobody_knows(self, contract):
        assert refusal(contract, constraint=Constraint("poem")).code == "unsupported_parameter"

    @pytest.mark.parametrize("contract", list(CONSTRAINED))
    @pytest.mark.parametrize(
        ("constraint", "param"),
        [
            (Constraint("choice"), "choice"),
            (Constraint("regex"), "regex"),
            (Constraint("json_schema"), "response_format"),
        ],
        ids=str,
    )
    def test_one_that_says_nothing(self, contract, constraint, param):
        error = refusal(contract, constraint=constraint)
        assert (error.code, error.param) == ("invalid_value", param)


class TestLogprobs:
    @pytest.mark.parametrize(
        ("contract", "expected"),
        [
            ("vllm", {"sampling_params.logprobs": 4}),
            ("sglang", {"return_logprob": True, "top_logprobs_num": 4, "logprob_start_len": -1}),
            ("trtllm", {"output_config.logprobs": 4}),
            ("mlx", {"sampling_params.logprobs": 4}),
            ("tokenspeed", {"return_logprob": True, "top_logprobs_num": 4}),
        ],
    )
    def test_of_the_output(self, contract, expected):
        assert _at(fields(contract, logprobs=Logprobs(4)), expected) == expected

    @pytest.mark.parametrize(
        ("contract", "expected"),
        [
            ("vllm", {"sampling_params.logprobs": 0}),
            ("sglang", {"return_logprob": True}),
            ("trtllm", {"output_config.logprobs": 1}),
            ("mlx", {"sampling_params.logprobs": 1}),
            ("tokenspeed", {"return_logprob": True}),
        ],
    )
    def test_of_the_sampled_token_alone(self, contract, expected):
        assert _at(fields(contract, logprobs=Logprobs(0)), expected) == expected

    @pytest.mark.parametrize(
        ("contract", "expected"),
        [
            ("vllm", {"sampling_params.prompt_logprobs": 2}),
            ("sglang", {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": None}),
            ("trtllm", {"output_config.prompt_logprobs": 2}),
        ],
    )
    def test_of_the_prompt(self, contract, expected):
        """SGLang's 0, from the first token on, is proto3's default and so not on the wire."""
        assert _at(fields(contract, logprobs=Logprobs(2, prompt=True)), expected) == expected


class TestPlacement:
    @pytest.mark.parametrize("contract", having("dp_rank"))
    def test_rank_0_is_a_pin(self, contract):
        assert fields(contract, dp_rank=0)["data_parallel_rank"] == 0
        assert "data_parallel_rank" not in fields(contract)

    @pytest.mark.parametrize("contract", lacking("dp_rank"))
    def test_a_contract_without_ranks_is_asked_all_the_same(self, contract):
        assert fields(contract, dp_rank=1) == BARE[contract]

    def test_lora(self):
        assert fields("sglang", lora="sql")["lora_id"] == "sql"
        assert fields("trtllm", lora="7")["lora_config"] == {"task_id": "7"}
        assert refusal("trtllm", lora="sql").param == "lora_path"

    @pytest.mark.parametrize("contract", lacking("lora"))
    def test_no_lora(self, contract):
        error = refusal(contract, lora="sql")
        assert (error.code, error.param) == ("unsupported_parameter", "lora_path")

    def test_thinking_is_announced_to_who_wants_to_know(self):
        assert fields("sglang", require_reasoning=True)["require_reasoning"] is True
        for contract in NAMES:
            if contract != "sglang":
                assert fields(contract, require_reasoning=True) == BARE[contract]


class TestAbort:
    @pytest.mark.parametrize("contract", NAMES)
    def test_every_id_is_named_and_the_reason_where_there_is_room_for_it(self, contract):
        kind = message_class(contract, "AbortRequest")
        messages = [
            MessageToDict(kind.FromString(each), preserving_proto_field_name=True)
            for each in adapter(contract).abort(["a", "b"], "deadline")
        ]
        reason = {"reason": "deadline"} if contract in ("sglang", "tokenspeed") else {}
        if contract in ("vllm", "mlx"):
            assert messages == [{"request_ids": ["a", "b"]}]
        else:
            assert messages == [{"request_id": each, **reason} for each in ("a", "b")]


def _at(message, paths):
    found = {}
    for path in paths:
        value = message
        for name in path.split("."):
            value = value.get(name) if value is not None else None
        found[path] = value
    return found
