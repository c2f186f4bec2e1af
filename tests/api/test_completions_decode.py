"""Decoding of completions: the four kinds of prompt, every field, every rule with its field path."""

import json

import pytest

from smg.api.openai_completions.decode import CompletionOptions, decode
from smg.api.sampling import UsageOptions
from smg.core.errors import GatewayError
from smg.core.request import Constraint, Limits, Logprobs


def completion(headers=None, **fields):
    return decode(json.dumps({"model": "m", "prompt": "Say"} | fields).encode(), headers or {})


def refused(**fields) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        completion(**fields)
    assert caught.value.status == 400
    return caught.value


class TestPrompts:
    def test_a_text(self):
        request = completion(prompt="Say this")
        assert (request.prompt_text, request.prompt_ids, request.prompts) == ("Say this", None, [])
        assert request.choices == 1

    def test_a_list_of_ids(self):
        request = completion(prompt=[1, 2, 3])
        assert (request.prompt_text, request.prompt_ids, request.prompts) == (None, [1, 2, 3], [])

    @pytest.mark.parametrize("prompts", [["a", "b"], ["a"], [[1, 2], [3]], [[1]]])
    def test_several(self, prompts):
        request = completion(prompt=prompts, n=2)
        assert (request.prompt_text, request.prompt_ids, request.prompts) == (None, None, prompts)
        assert request.choices == 2 * len(prompts)

    @pytest.mark.parametrize(
        ("prompt", "param"),
        [
            (None, "prompt"),
            ("", "prompt"),
            ([], "prompt"),
            ({"text": "a"}, "prompt"),
            (5, "prompt"),
            (["a", ""], "prompt[1]"),
            (["a", 1], "prompt[1]"),
            ([1, "a"], "prompt[1]"),
            ([1, -1], "prompt[1]"),
            ([1, True], "prompt[1]"),
            ([1, 2.5], "prompt[1]"),
            ([1, 2**40], "prompt[1]"),
            ([[1], []], "prompt[1]"),
            ([[1], [2, "a"]], "prompt[1][1]"),
            ([[1], "a"], "prompt[1]"),
            ([[1], [[2]]], "prompt[1][0]"),
            ([{"a": 1}], "prompt[0]"),
            (["a"] * 1025, "prompt"),
        ],
    )
    def test_bad_ones_are_named(self, prompt, param):
        assert refused(prompt=prompt).param == param

    def test_a_missing_prompt(self):
        with pytest.raises(GatewayError) as caught:
            decode(b'{"model":"m"}', {})
        assert (caught.value.status, caught.value.param) == (400, "prompt")

    def test_OA_07_half_an_emoji(self):
        with pytest.raises(GatewayError) as caught:
            decode(b'{"model":"m","prompt":"\\udcf0"}', {})
        assert (caught.value.status, caught.value.param) == (400, "prompt")

    def test_special_tokens_in_front_can_be_refused(self):
        assert completion().add_special_tokens
        assert not completion(add_special_tokens=False).add_special_tokens


class TestFields:
    def test_defaults(self):
        request = completion()
        assert (request.dialect, request.model, request.n, request.stream) == ("openai_completions", "m", 1, False)
        assert request.limits == Limits(None, 0, 16)
        assert request.logprobs is None
        assert request.options == CompletionOptions()
        assert not request.separate_reasoning

    def test_limits(self):
        assert completion(max_tokens=5).limits.max_tokens == 5
        assert completion(max_tokens=0).limits.max_tokens == 0
        assert completion(min_tokens=40).limits == Limits(None, 40, 40)

    @pytest.mark.parametrize(
        ("fields", "n"), [({}, 1), ({"n": 3}, 3), ({"best_of": 4}, 4), ({"n": 2, "best_of": 2}, 2)]
    )
    def test_as_many_are_generated_as_the_best_are_chosen_of(self, fields, n):
        request = completion(**fields)
        assert (request.n, request.options.n) == (n, fields.get("n", 1))
        # Without probabilities there is no best.
        assert (request.logprobs is not None) == (n > fields.get("n", 1))

    def test_logprobs(self):
        assert completion(logprobs=0).logprobs == Logprobs(0)
        assert completion(logprobs=5, echo=True).logprobs == Logprobs(5, prompt=True)
        assert completion(echo=True).logprobs is None

    def test_echo_and_usage(self):
        options = completion(echo=True, stream=True, stream_options={"include_usage": True}).options
        assert options == CompletionOptions(echo=True, usage=UsageOptions(include=True))

    def test_engine_extras(self):
        request = completion(
            top_k=5, min_p=0.1, repetition_penalty=1.2, seed=3, logit_bias={"7": -100}, stop=["a"], stop_token_ids=[9]
        )
        assert (request.sampling.top_k, request.sampling.min_p, request.sampling.seed) == (5, 0.1, 3)
        assert (request.sampling.repetition_penalty, request.sampling.logit_bias) == (1.2, {7: -100})
        assert (request.stop.strings, request.stop.ids) == (("a",), (9,))
        assert completion(no_stop_trim=True, ignore_eos=True, skip_special_tokens=False).stop.visible

    @pytest.mark.parametrize("schema", [{"type": "object"}, '{"type":"object"}'])
    def test_a_schema_as_text_or_object(self, schema):
        assert completion(json_schema=schema).constraint == Constraint("json_schema", '{"type":"object"}')

    def test_a_suffix(self):
        assert completion(suffix="end").suffix == "end"
        assert completion(suffix="").suffix is None

    def test_null_means_absent(self):
        names = ("n", "best_of", "echo", "logprobs", "max_tokens", "stop", "stream", "stream_options", "suffix")
        assert completion(**dict.fromkeys(names)).options == CompletionOptions()

    def test_unknown_fields_are_tolerated(self):
        assert completion(user="u", some_engine_flag=[1]).prompt_text == "Say"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"best_of": 21}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"repetition_penalty": 2.1}, "repetition_penalty"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"stop": [""]}, "stop[0]"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"regex": "a", "ebnf": "b"}, "ebnf"),
        ({"regex": "a", "json_schema": {}}, "json_schema"),
        ({"json_schema": "{"}, "json_schema"),
        ({"json_schema": "[]"}, "json_schema"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        ({"logit_bias": {"5": -101}}, "logit_bias.5"),
        ({"prompt": [1, 2], "suffix": "end"}, "suffix"),
    ],
)
def test_rules(fields, param):
    assert refused(**fields).param == param


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allowed_token_ids", [5]),
        ("bad_words", ["x"]),
        ("use_beam_search", True),
        ("truncate_prompt_tokens", 5),
        ("prompt_logprobs", 1),
        ("return_token_ids", True),
        ("session_params", {"id": "s"}),
    ],
)
def test_what_would_change_the_answer_and_is_not_supported_is_refused(name, value):
    error = refused(**{name: value})
    assert (error.code, error.param) == ("unsupported_parameter", name)
    assert completion(**{name: None}).prompt_text == completion(**{name: False}).prompt_text == "Say"


def test_a_lora_adapter_is_handed_on():
    assert completion(prompt="x", lora_path="sql").lora == "sql"
    assert completion(prompt="x").lora is None
