"""Decoding of chat requests: what every field becomes, and every rule of spec api-and-ops 1.5 with its field path."""

import json

import pytest

from smg.api.openai_chat.decode import ChatOptions, decode
from smg.api.sampling import UsageOptions
from smg.core.errors import GatewayError
from smg.core.request import Constraint, MediaPart, RawPart, ReasoningPart, TextPart, ToolCall, ToolChoice

HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object"}}}
PONG = {"type": "function", "function": {"name": "pong"}}


def chat(headers=None, **fields):
    return decode(json.dumps({"model": "m", "messages": HI} | fields).encode(), headers or {})


def refused(**fields) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        chat(**fields)
    assert caught.value.status == 400
    return caught.value


class TestPlainFields:
    def test_defaults(self):
        request = chat()
        assert (request.dialect, request.model, request.n, request.stream) == ("openai_chat", "m", 1, False)
        assert request.sampling.temperature is None
        assert request.limits.max_tokens is None
        assert request.logprobs is None
        assert request.skip_special_tokens
        assert request.separate_reasoning
        assert request.tool_choice == ToolChoice("none")
        assert request.options == ChatOptions()

    def test_null_means_absent(self):
        names = ("temperature", "n", "stop", "stream", "stream_options", "tools", "tool_choice", "response_format")
        assert chat(**dict.fromkeys(names)).n == 1

    def test_unknown_fields_are_tolerated(self):
        assert chat(user="u", metadata={"a": "b"}, some_engine_flag=[1]).model == "m"

    def test_a_missing_model_is_left_to_the_router(self):
        assert decode(json.dumps({"messages": HI}).encode(), {}).model == ""

    def test_sampling(self):
        sampling = chat(
            temperature=0,
            top_p=0.5,
            top_k=-1,
            min_p=0.1,
            frequency_penalty=-2,
            presence_penalty=2,
            repetition_penalty=1.1,
            seed=7,
            logit_bias={"5": -100, "6": 1.5},
        ).sampling
        assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 0.5, -1, 0.1)
        assert (sampling.frequency_penalty, sampling.presence_penalty) == (-2, 2)
        assert (sampling.repetition_penalty, sampling.seed) == (1.1, 7)
        assert sampling.logit_bias == {5: -100, 6: 1.5}

    def test_the_newer_name_of_the_token_limit_wins(self):
        assert chat(max_tokens=5).limits.max_tokens == 5
        assert chat(max_tokens=5, max_completion_tokens=6).limits.max_tokens == 6
        assert chat(max_tokens=100.0).limits.max_tokens == 100

    def test_stops(self):
        stop = chat(stop="a", stop_token_ids=[3], no_stop_trim=True, ignore_eos=True).stop
        assert (stop.strings, stop.ids, stop.visible, stop.ignore_eos) == (("a",), (3,), True, True)
        assert chat(stop="a", include_stop_str_in_output=True).stop.visible
        assert chat(stop=["a", "b"]).stop.strings == ("a", "b")

    def test_logprobs(self):
        assert chat(logprobs=True).logprobs.top == 0
        assert chat(logprobs=True, top_logprobs=20).logprobs.top == 20
        assert chat(logprobs=False).logprobs is None

    def test_template_and_reasoning(self):
        request = chat(
            chat_template_kwargs={"enable_thinking": False}, reasoning_effort="high", separate_reasoning=False
        )
        assert request.template_kwargs == {"enable_thinking": False}
        assert (request.reasoning_effort, request.separate_reasoning) == ("high", False)
        assert chat(reasoning_effort=3).reasoning_effort == "3"

    def test_what_else_a_template_is_given(self):
        documents = [{"title": "t", "text": "x"}]
        assert chat(documents=documents).template_kwargs == {"documents": documents}
        assert chat(add_generation_prompt=False).template_kwargs == {"add_generation_prompt": False}
        assert chat(add_generation_prompt=True, documents=[]).template_kwargs == {}
        own = chat(add_generation_prompt=False, chat_template_kwargs={"add_generation_prompt": True})
        assert own.template_kwargs == {"add_generation_prompt": True}
        turns = [*HI, {"role": "assistant", "content": "I"}]
        assert chat(messages=turns, add_generation_prompt=False, continue_final_message=True).template_kwargs == {}

    def test_any_effort_is_the_template_s_to_judge(self):
        assert chat(reasoning_effort="bogus").reasoning_effort == "bogus"

    def test_OA_04_continuous_usage_needs_include_usage(self):
        def options(**flags):
            return chat(stream=True, stream_options=flags).options

        assert options(include_usage=True) == ChatOptions(UsageOptions(include=True))
        assert options(include_usage=True, continuous_usage_stats=True) == ChatOptions(UsageOptions(True, True))
        assert options(continuous_usage_stats=True) == ChatOptions()

    def test_routing_hints_come_from_headers(self):
        hints = chat({"x-smg-routing-key": "k", "x-smg-target-worker": "w", "x-smg-priority": "bulk"}).hints
        assert (hints.routing_key, hints.target_worker, hints.priority, hints.dp_rank) == ("k", "w", "bulk", None)
        assert chat(data_parallel_rank=0).hints.dp_rank == 0

    def test_the_body_is_kept_for_raw_backends(self):
        assert json.loads(chat(seed=1).raw)["seed"] == 1


RULES = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"content": "hi"}]}, "messages[0]"),
    ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [*HI, {"role": "tool", "tool_call_id": "c"}]}, "messages[1].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages[0].content[0].text"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].image_url.url",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "%"}}]}]},
        "messages[0].content[0].input_audio.data",
    ),
    ({"messages": [{"role": "assistant", "tool_calls": [{"type": "magic"}]}]}, "messages[0].tool_calls[0].type"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"min_p": -0.1}, "min_p"),
    ({"min_p": 1.1}, "min_p"),
    ({"repetition_penalty": 2.1}, "repetition_penalty"),
    ({"frequency_penalty": -2.1}, "frequency_penalty"),
    ({"presence_penalty": 2.1}, "presence_penalty"),
    ({"top_k": 0}, "top_k"),
    ({"top_k": -2}, "top_k"),
    ({"n": 0}, "n"),
    ({"n": 11}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
    ({"top_logprobs": 1}, "top_logprobs"),
    ({"top_logprobs": 0, "logprobs": False}, "top_logprobs"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop_token_ids": [1, -1]}, "stop_token_ids[1]"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": False, "stream_options": {}}, "stream_options"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"regex": "a", "ebnf": "b"}, "ebnf"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]},
        "tools[0].function.parameters.type",
    ),
    ({"regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
    ({"ebnf": "a", "response_format": {"type": "json_schema", "json_schema": {"name": "s"}}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": ""}}}, "response_format.json_schema.name"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": "json"}, "response_format"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": "maybe"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": 5}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "magic"}}, "tool_choice.type"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "nope"}}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice.function.name"),
    ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "none", "tools": [TOOL]}}, "tool_choice.mode"),
    ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.tools"),
    ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [PONG]}}, "tool_choice"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "magic"}]}, "tools[0].type"),
    ({"best_of": 2}, "best_of"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"return_hidden_states": True}, "return_hidden_states"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"data_parallel_rank": -1}, "data_parallel_rank"),
]


UNSUPPORTED = {
    "allowed_token_ids": [5],
    "bad_words": ["x"],
    "use_beam_search": True,
    "truncate_prompt_tokens": 5,
    "stop_regex": "a",
    "custom_params": {"a": 1},
    "return_hidden_states": True,
    "session_params": {"id": "s"},
    "custom_logit_processor": "p",
    "logits_processors": ["p"],
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "prompt_logprobs": 0,
    "return_audio": True,
    "chat_template": "{{ messages }}",
    "echo": True,
    "mm_processor_kwargs": {"num_crops": 4},
    "web_search_options": {},
}


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED.items())
def test_what_would_change_the_answer_and_is_not_supported_is_refused(name, value):
    error = refused(**{name: value})
    assert (error.code, error.param, error.message) == ("unsupported_parameter", name, f"{name} is not supported")


@pytest.mark.parametrize("value", [None, False])
def test_what_asks_for_nothing_is_fine(value):
    assert chat(**dict.fromkeys(UNSUPPORTED, value)).n == 1


def test_empty_values_are_fine_where_they_ask_for_nothing():
    assert chat(bad_words=[], allowed_token_ids=[], truncate_prompt_tokens=0, chat_template="", documents=[]).n == 1


@pytest.mark.parametrize(("fields", "param"), RULES, ids=[json.dumps(fields)[:70] for fields, _ in RULES])
def test_a_broken_rule_is_a_400_that_names_the_field(fields, param):
    assert refused(**fields).param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 2},
        {"top_p": 1},
        {"min_p": 0},
        {"min_p": 1},
        {"repetition_penalty": 2},
        {"top_k": -1},
        {"top_k": 1},
        {"n": 10},
        {"max_tokens": 1},
        {"min_tokens": 4, "max_tokens": 4},
        {"stop": ["a", "b", "c", "d"]},
        {"stop": []},
        {"best_of": 3, "n": 3},
        {"modalities": ["text"]},
        {"tool_choice": "none"},
        {"stream": True, "stream_options": None},
        {"response_format": {"type": "text"}, "regex": "a"},
        {"return_hidden_states": False},
    ],
    ids=json.dumps,
)
def test_the_borders_of_the_rules_are_allowed(fields):
    assert chat(**fields).model == "m"


def test_a_lora_adapter_is_handed_on():
    assert chat(lora_path="sql").lora == "sql"
    assert chat(lora_path="").lora is None


class TestBrokenBodies:
    @pytest.mark.parametrize("body", [b"", b"{", b"[1", b"\xff{}", b"not json"])
    def test_what_is_not_json(self, body):
        with pytest.raises(GatewayError) as caught:
            decode(body, {})
        assert (caught.value.code, caught.value.status) == ("json_parse_error", 400)

    @pytest.mark.parametrize("body", [b"[]", b"5", b"null"])
    def test_what_is_no_object(self, body):
        with pytest.raises(GatewayError) as caught:
            decode(body, {})
        assert (caught.value.code, caught.value.status) == ("invalid_value", 400)

    def test_OA_07_half_an_emoji_names_the_field(self):
        with pytest.raises(GatewayError) as caught:
            decode(b'{"model":"m","messages":[{"role":"user","content":"x \\ud83d"}]}', {})
        assert (caught.value.status, caught.value.param) == (400, "messages[0].content")

    def test_OA_07_a_whole_emoji_is_fine(self):
        body = b'{"model":"m","messages":[{"role":"user","content":"ok \\ud83d\\ude00"}]}'
        assert decode(body, {}).messages[0].content == "ok 😀"


class TestMessages:
    def one(self, **message):
        return chat(messages=[message]).messages[0]

    def test_roles(self):
        roles = ["system", "developer", "user", "assistant"]
        turns = chat(messages=[{"role": role, "content": "x"} for role in roles]).messages
        assert [turn.role for turn in turns] == roles

    def test_a_string_stays_a_string_and_parts_stay_parts(self):
        assert self.one(role="user", content="x").content == "x"
        assert self.one(role="user", content=[{"type": "text", "text": "x"}]).content == [TextPart("x")]

    def test_a_part_without_a_type_is_text(self):
        assert self.one(role="user", content=[{"text": "x"}, "y"]).content == [TextPart("x"), TextPart("y")]

    def test_media_parts(self):
        image = {"type": "image_url", "image_url": {"url": "http://h/i", "detail": "low"}}
        audio = {"type": "input_audio", "input_audio": {"data": "AAE=", "format": "mp3"}}
        videos = [{"type": "video_url", "video_url": "http://h/v"}, {"type": "video", "video": {"url": "http://h/w"}}]
        parts = self.one(role="user", content=[image, audio, *videos]).content
        assert parts == [
            MediaPart("image", url="http://h/i", options={"detail": "low"}),
            MediaPart("audio", data=b"\0\1", media_type="audio/mp3"),
            MediaPart("video", url="http://h/v"),
            MediaPart("video", url="http://h/w"),
        ]

    def test_a_part_of_unknown_type_is_kept_as_it_is(self):
        part = {"type": "point_cloud", "points": [1]}
        assert self.one(role="user", content=[part]).content == [RawPart("point_cloud", part)]

    def test_reasoning_parts(self):
        part = {"type": "thinking", "thinking": "t", "signature": "s"}
        assert self.one(role="assistant", content=[part]).content == [ReasoningPart("t", signature="s")]

    def test_OA_08_both_names_of_the_reasoning_field_are_read(self):
        assert self.one(role="assistant", content="a", reasoning="r1").reasoning == "r1"
        assert self.one(role="assistant", content="a", reasoning_content="r1").reasoning == "r1"
        assert self.one(role="assistant", content="a", reasoning="no", reasoning_content="yes").reasoning == "yes"

    def test_tool_calls_keep_their_arguments_as_text(self):
        calls = [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
            {"function": {"name": "g", "arguments": {"b": 2}}},
            {"id": "c3", "function": {"name": "h"}},
            {"id": "c4", "type": "custom", "custom": {"name": "k", "input": "free"}},
        ]
        assert self.one(role="assistant", content=None, tool_calls=calls).tool_calls == [
            ToolCall("c1", "f", '{"a": 1}'),
            ToolCall("", "g", '{"b": 2}'),
            ToolCall("c3", "h", ""),
            ToolCall("c4", "k", "free", kind="custom"),
        ]

    def test_tool_results(self):
        turn = self.one(role="tool", content="42", tool_call_id="c1")
        assert (turn.role, turn.content, turn.tool_call_id) == ("tool", "42", "c1")

    def test_a_legacy_function_result_is_a_tool_result(self):
        turn = self.one(role="function", name="f", content="42")
        assert (turn.role, turn.name, turn.content) == ("tool", "f", "42")

    def test_continuing_the_last_message(self):
        turns = [*HI, {"role": "assistant", "content": "Sure"}]
        assert chat(messages=turns, continue_final_message=True).continue_final_message


class TestTools:
    def test_tools_are_kept_whole(self):
        (tool,) = chat(tools=[TOOL]).tools
        assert (tool.name, tool.parameters, tool.kind, tool.raw) == ("ping", {"type": "object"}, "function", TOOL)

    def test_legacy_functions(self):
        request = chat(functions=[{"name": "ping"}], function_call={"name": "ping"})
        assert [tool.name for tool in request.tools] == ["ping"]
        assert request.tool_choice == ToolChoice("required", ("ping",))

    def test_custom_tools_have_no_schema(self):
        (tool,) = chat(tools=[{"type": "custom", "custom": {"name": "sh"}}]).tools
        assert (tool.name, tool.parameters, tool.kind) == ("sh", None, "custom")

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            (None, ToolChoice("auto")),
            ("auto", ToolChoice("auto")),
            ("none", ToolChoice("none")),
            ("required", ToolChoice("required")),
            ({"type": "function", "function": {"name": "ping"}}, ToolChoice("required", ("ping",))),
            (
                {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "ping"}]},
                ToolChoice("auto", ("ping",)),
            ),
            (
                {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}},
                ToolChoice("required", ("ping",)),
            ),
        ],
    )
    def test_tool_choice(self, choice, expected):
        assert chat(tools=[TOOL, PONG], tool_choice=choice).tool_choice == expected

    def test_OA_09_none_without_tools_is_fine_and_parallel_calls_can_be_refused(self):
        assert chat(tool_choice="none").tool_choice.mode == "none"
        assert chat(tools=[TOOL], parallel_tool_calls=False).tool_choice == ToolChoice("auto", parallel=False)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"regex": "a+"}, Constraint("regex", "a+")),
        ({"ebnf": "root ::= x"}, Constraint("grammar", "root ::= x")),
        ({"response_format": {"type": "json_object"}}, Constraint("json_object")),
        ({"response_format": {"type": "text"}}, None),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}},
            Constraint("json_schema", '{"type":"object"}'),
        ),
    ],
)
def test_constraints(fields, expected):
    assert chat(**fields).constraint == expected
