"""What becomes of the body of a responses request."""

import base64
import json

import pytest
from msgspec.structs import replace

from smg.api.openai_responses.decode import decode, decode_prompt
from smg.core.errors import GatewayError
from smg.core.request import (
    Constraint,
    Limits,
    Logprobs,
    MediaPart,
    Message,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolGrammar,
)

F = {"type": "function", "name": "f", "description": "does", "parameters": {"type": "object"}}
G = {"type": "function", "name": "g"}
SH = {"type": "custom", "name": "sh"}
TEXT = {"type": "input_text", "text": "x"}
IMAGE = {"type": "input_image", "image_url": "https://x/y.png"}


def decoded(**fields):
    return decode(json.dumps({"model": "m", "input": "hi"} | fields).encode(), {})


def refused(**fields) -> tuple[str | None, str]:
    """Place and code of the error."""
    with pytest.raises(GatewayError) as caught:
        decoded(**fields)
    assert caught.value.status == 400
    return caught.value.param, caught.value.code


def messages(items, **fields) -> list[Message]:
    """The conversation, without the places that errors name."""
    found = decoded(input=items, **fields).messages
    for turn in found:
        turn.tool_calls = [replace(call, path="") for call in turn.tool_calls]
        if isinstance(turn.content, list):
            turn.content = [replace(part, path="") if isinstance(part, MediaPart) else part for part in turn.content]
    return found


def user(*parts, **fields) -> dict:
    return {"role": "user", "content": list(parts), **fields}


class TestInput:
    def test_a_text_is_what_the_user_says(self):
        assert messages("hi") == [Message("user", "hi")]

    def test_instructions_come_first(self):
        found = messages([{"role": "developer", "content": "d"}, {"role": "user", "content": "hi"}], instructions="i")
        assert found == [Message("system", "i"), Message("developer", "d"), Message("user", "hi")]

    def test_parts(self):
        parts = [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        ]
        (message,) = messages([user(*parts)])
        assert message.content == [
            TextPart("a"),
            MediaPart("image", url="https://x/y.png", options={"detail": "low"}),
            MediaPart("image", url="data:image/png;base64,AA=="),
        ]

    @pytest.mark.parametrize(
        "data",
        [
            base64.b64encode("größe".encode()).decode(),
            "data:text/plain;base64," + base64.b64encode("größe".encode()).decode(),
            "data:text/plain;charset=utf-8,gr%C3%B6%C3%9Fe",
        ],
    )
    def test_the_text_of_a_file_stands_below_its_name(self, data):
        (message,) = messages([user({"type": "input_file", "filename": "a.txt", "file_data": data})])
        assert message.content == [TextPart("[a.txt]\ngröße")]

    def test_items_of_one_assistant_turn_are_one_turn(self):
        items = [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "look", "annotations": [], "logprobs": []}],
            },
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": None},
            {"type": "custom_tool_call", "call_id": "c2", "name": "sh", "input": "ls\n"},
            {"type": "function_call_output", "call_id": "c1", "output": ""},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "content": None},
            {"type": "message", "role": "assistant", "content": "done"},
        ]
        assert messages(items) == [
            Message("user", "hi"),
            Message(
                "assistant",
                [TextPart("look")],
                reasoning="hm",
                tool_calls=[ToolCall("c1", "f", "{}"), ToolCall("c2", "sh", "ls\n", "custom")],
            ),
            Message("tool", "", tool_call_id="c1"),
            Message("tool", [TextPart("a")], tool_call_id="c2"),
            Message("assistant", "done", reasoning="so"),
        ]

    def test_messages_of_the_assistant_beside_each_other_are_two_turns(self):
        items = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "a"},
            {"type": "reasoning", "content": [{"text": "hm"}]},
            {"role": "assistant", "content": "b"},
        ]
        assert messages(items)[1:] == [Message("assistant", "a"), Message("assistant", "b", reasoning="hm")]

    def test_text_behind_a_call_stays_in_front_of_the_call_s_result(self):
        items = [
            {"role": "assistant", "content": "a"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"x": 1}},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "b"}]},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
        ]
        first, second = messages(items)
        assert first.content == [TextPart("a"), RefusalPart("b")]
        assert first.tool_calls == [ToolCall("c", "f", '{"x":1}')]
        assert second.role == "tool"

    def test_RS_05_items_as_clients_send_them(self):
        items = [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {"type": "message", "role": "assistant", "content": []},
            {"type": "function_call", "call_id": "c1", "name": "ping", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "pong"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
        ]
        assert messages(items) == [
            Message("user", "hi"),
            Message("assistant", tool_calls=[ToolCall("c1", "ping", "{}")]),
            Message("tool", [TextPart("pong")], tool_call_id="c1"),
            Message("user", [TextPart("and?")]),
        ]

    def test_errors_of_other_layers_name_the_place_among_the_items(self):
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "["}
        custom = {"type": "custom_tool_call", "call_id": "d", "name": "sh", "input": "ls"}
        result = {"type": "function_call_output", "call_id": "c", "output": [IMAGE]}
        found = decoded(instructions="i", input=[user(TEXT, IMAGE), call, custom, result])
        assert [path for path, _ in found.media()] == ["input[0].content[1]", "input[3].output[0]"]
        assert [call.path for call in found.messages[2].tool_calls] == ["input[1].arguments", "input[2].input"]

    def test_reasoning_that_nothing_follows_is_a_turn(self):
        items = [{"role": "user", "content": "hi"}, {"type": "reasoning", "content": [{"text": "hm"}]}, user(TEXT)]
        assert messages(items)[1] == Message("assistant", reasoning="hm")

    @pytest.mark.parametrize(
        ("items", "place"),
        [
            (None, "input"),
            ("", "input"),
            ([], "input"),
            (7, "input"),
            ([{"type": "function_call_output", "call_id": "c", "output": ""}], "input"),
            ([{"role": "robot", "content": "x"}], "input[0].role"),
            ([{"role": "user"}], "input[0].content"),
            ([{"role": "user", "content": ""}], "input[0].content"),
            ([{"role": "user", "content": [{"type": "input_text", "text": ""}]}], "input[0].content"),
            ([{"content": "x"}], "input[0].role"),
            (["x"], "input[0]"),
            ([{"type": "poem", "role": "user", "content": "x"}], "input[0].type"),
            ([{"role": "user", "content": [{"text": "x"}]}], "input[0].content[0]"),
            ([{"role": "user", "content": [TEXT, {"type": "video"}]}], "input[0].content[1].type"),
            ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0].image_url"),
            ([{"role": "user", "content": [{"type": "input_file"}]}], "input[0].content[0].file_data"),
            (
                [{"role": "user", "content": [{"type": "input_file", "file_data": "ä"}]}],
                "input[0].content[0].file_data",
            ),
            ([{"role": "assistant", "content": [TEXT, IMAGE]}], "input[0].content[1]"),
            ([{"role": "user", "content": "x"}, {"type": "function_call", "name": "f"}], "input[1].call_id"),
            ([{"role": "user", "content": "x"}, {"type": "function_call_output", "call_id": "c"}], "input[1].output"),
        ],
    )
    def test_what_is_wrong_is_told_with_its_place(self, items, place):
        assert refused(input=items) == (place, "invalid_value")

    @pytest.mark.parametrize(
        ("part", "place"),
        [
            ({"type": "input_image", "file_id": "f"}, "file_id"),
            ({"type": "input_file", "file_id": "f"}, "file_id"),
            ({"type": "input_file", "file_url": "https://x"}, "file_url"),
            ({"type": "input_file", "file_data": base64.b64encode(b"%PDF\x00").decode()}, "file_data"),
            ({"type": "input_file", "file_data": base64.b64encode(b"\xff\xfe").decode()}, "file_data"),
            ({"type": "input_file", "file_data": base64.b64encode(b"%PDF-1.4 of ASCII").decode()}, "file_data"),
        ],
    )
    def test_files_that_would_have_to_be_kept_or_read(self, part, place):
        assert refused(input=[user(part)]) == (f"input[0].content[0].{place}", "unsupported_parameter")

    @pytest.mark.parametrize("kind", ["web_search_call", "mcp_call", "computer_call_output", "shell_call"])
    def test_items_of_tools_that_do_not_run_here(self, kind):
        assert refused(input=[user(TEXT), {"type": kind}]) == ("input[1].type", "unsupported_tool")

    @pytest.mark.parametrize(
        ("fields", "place"),
        [
            ({"messages": [user("hi")]}, "messages"),
            ({"response_format": {"type": "json_object"}}, "response_format"),
            ({"max_tokens": 1}, "max_tokens"),
            ({"max_completion_tokens": 1}, "max_completion_tokens"),
            ({"reasoning_effort": "low"}, "reasoning_effort"),
            ({"functions": [{"name": "f"}]}, "functions"),
            ({"n": 3}, "n"),
        ],
    )
    def test_fields_of_chat_that_would_have_no_effect(self, fields, place):
        assert refused(**fields) == (place, "unsupported_parameter")

    def test_empty_fields_of_chat_ask_for_nothing(self):
        assert decoded(n=1, response_format=None, functions=[]).model == "m"

    @pytest.mark.parametrize("kind", ["item_reference", "compaction"])
    def test_items_that_stand_for_what_was_kept(self, kind):
        assert refused(input=[user(TEXT), {"type": kind, "id": "x"}]) == ("input[1].type", "unsupported_parameter")


class TestTools:
    def test_the_arguments_of_a_function_are_an_object(self):
        tools = [F, {"type": "function", "name": "g", "parameters": {"type": "array"}}]
        assert refused(tools=tools) == ("tools[1].parameters.type", "invalid_value")
        nullable = {"type": "function", "name": "g", "parameters": {"type": ["object", "null"]}}
        assert decoded(tools=[nullable]).tools[0].name == "g"

    def test_functions_and_custom_tools(self):
        grammar = {"type": "grammar", "syntax": "regex", "definition": "a+"}
        f, sh = decoded(tools=[F, SH | {"format": grammar}]).tools
        assert (f.name, f.description, f.parameters, f.kind) == ("f", "does", {"type": "object"}, "function")
        assert (sh.name, sh.kind, sh.grammar) == ("sh", "custom", ToolGrammar("regex", "a+"))

    def test_RS_04_a_grammar_in_lark(self):
        grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/"}
        (tool,) = decoded(tools=[SH | {"format": grammar}]).tools
        assert tool.grammar == ToolGrammar("lark", "start: /(.|\\n)+/")

    @pytest.mark.parametrize(
        ("choice", "wanted"),
        [
            (None, ToolChoice("auto")),
            ("auto", ToolChoice("auto")),
            ("none", ToolChoice("none")),
            ("required", ToolChoice("required")),
            ({"type": "function", "name": "g"}, ToolChoice("required", ("g",))),
            ({"type": "function", "function": {"name": "g"}}, ToolChoice("required", ("g",))),
            ({"type": "custom", "name": "sh"}, ToolChoice("required", ("sh",))),
            (
                {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
                ToolChoice("auto", ("g",)),
            ),
            (
                {"type": "allowed_tools", "mode": "required", "tools": [G, {"type": "custom", "name": "sh"}]},
                ToolChoice("required", ("g", "sh")),
            ),
        ],
    )
    def test_choices(self, choice, wanted):
        assert decoded(tools=[F, G, SH], tool_choice=choice).tool_choice == wanted

    def test_no_tools_no_choice(self):
        assert decoded().tool_choice == ToolChoice("none")
        assert decoded(tool_choice="auto").tool_choice == ToolChoice("none")

    def test_one_call_at_a_time(self):
        assert not decoded(tools=[F], parallel_tool_calls=False).tool_choice.parallel

    @pytest.mark.parametrize(
        ("fields", "place"),
        [
            ({"tools": [{"name": "f"}]}, "tools[0]"),
            ({"tools": [F, {"type": "function"}]}, "tools[1].name"),
            ({"tools": [F, {"type": "function", "name": ""}]}, "tools[1].name"),
            ({"tools": [F, {"type": "hammer"}]}, "tools[1].type"),
            ({"tools": [SH | {"format": {"type": "poem"}}]}, "tools[0].format.type"),
            ({"tools": [SH | {"format": {"type": "grammar", "syntax": "regex", "definition": "("}}]},
             "tools[0].format.definition"),
            ({"tool_choice": "required"}, "tool_choice"),
            ({"tool_choice": "maybe", "tools": [F]}, "tool_choice"),
            ({"tool_choice": {"type": "function"}, "tools": [F]}, "tool_choice.name"),
            ({"tool_choice": {"type": "function", "name": "h"}, "tools": [F]}, "tool_choice"),
            ({"tool_choice": {"type": "custom", "name": "f"}, "tools": [F]}, "tool_choice.type"),
            ({"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": [F]}, "tools": [F]},
             "tool_choice.mode"),
            ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function"}]}, "tools": [F]},
             "tool_choice.tools[0].name"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_told_with_its_place(self, fields, place):
        assert refused(**fields) == (place, "invalid_value")

    @pytest.mark.parametrize(
        "kind", ["web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation", "mcp"]
    )
    def test_tools_that_do_not_run_here(self, kind):
        assert refused(tools=[F, {"type": kind}]) == ("tools[1].type", "unsupported_tool")
        assert refused(tools=[F], tool_choice={"type": kind}) == ("tool_choice.type", "unsupported_tool")

    def test_RS_07_what_is_refused_is_not_repeated(self):
        with pytest.raises(GatewayError) as caught:
            decoded(tools=[{"type": "mcp", "server_label": "s", "authorization": "tok-123"}])
        assert "tok-123" not in caught.value.message


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


class TestTextFormat:
    def test_formats(self):
        form = {"type": "json_schema", "name": "a", "schema": SCHEMA}
        assert decoded(text={"format": form}).constraint == Constraint(
            "json_schema", json.dumps(SCHEMA).replace(" ", "")
        )
        assert decoded(text={"format": {"type": "json_object"}}).constraint == Constraint("json_object")
        assert decoded(text={"format": {"type": "text"}, "verbosity": "low"}).constraint is None

    def test_the_engines_own_constraints(self):
        assert decoded(regex="a+").constraint == Constraint("regex", "a+")
        assert refused(regex="a+", text={"format": {"type": "json_object"}})[0] == "text.format"

    @pytest.mark.parametrize(
        ("form", "place"),
        [
            ({"type": "json_schema"}, "text.format.name"),
            ({"type": "json_schema", "name": ""}, "text.format.name"),
            ({"type": "json_schema", "name": "a", "schema": 7}, "text.format.schema"),
            ({"type": "poem"}, "text.format.type"),
        ],
    )
    def test_what_is_wrong_is_told_with_its_place(self, form, place):
        assert refused(text={"format": form}) == (place, "invalid_value")

    @pytest.mark.parametrize(
        "schema", [{"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}, {"type": "not-a-type"}]
    )
    def test_SO_01_schemas_that_mean_nothing(self, schema):
        place, _ = refused(text={"format": {"type": "json_schema", "name": "a", "schema": schema}})
        assert place.startswith("text.format.schema")
        place, _ = refused(text={"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}})
        assert place.startswith("text.format.schema")


class TestFields:
    def test_sampling_stops_and_limits(self):
        found = decoded(
            temperature=0.5,
            top_p=0.9,
            top_k=5,
            min_p=0.1,
            frequency_penalty=1,
            presence_penalty=-1,
            repetition_penalty=1.1,
            seed=3,
            stop=["a", "b"],
            max_output_tokens=7.0,
            min_tokens=2,
        )
        sampling = found.sampling
        assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 5, 0.1)
        assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.repetition_penalty) == (1, -1, 1.1)
        assert (sampling.seed, found.stop.strings, found.limits) == (3, ("a", "b"), Limits(7, 2))

    @pytest.mark.parametrize("effort", ["none", "minimal", "low", "medium", "high", "xhigh", None])
    def test_effort(self, effort):
        assert decoded(reasoning={"effort": effort, "summary": "auto"}).reasoning_effort == effort

    def test_log_probabilities(self):
        include = ["message.output_text.logprobs"]
        assert decoded(include=include).logprobs == Logprobs(0)
        assert decoded(include=include, top_logprobs=3).logprobs == Logprobs(3)
        assert decoded(top_logprobs=0).logprobs is None

    def test_what_has_no_effect_here_is_tolerated(self):
        decoded(
            store=True,
            include=["reasoning.encrypted_content", "web_search_call.results"],
            max_tool_calls=3,
            metadata={"k": "v"},
            service_tier="flex",
            prompt_cache_key="k",
            prompt_cache_retention="24h",
            safety_identifier="s",
            user="u",
            background=False,
            context_management=[],
            stream=True,
            stream_options={"include_obfuscation": False},
            something_new={"a": 1},
        )

    @pytest.mark.parametrize(
        ("fields", "place"),
        [
            ({"temperature": 3}, "temperature"),
            ({"top_p": 0}, "top_p"),
            ({"top_k": 0}, "top_k"),
            ({"max_output_tokens": 0}, "max_output_tokens"),
            ({"max_tool_calls": 0}, "max_tool_calls"),
            ({"top_logprobs": 21}, "top_logprobs"),
            ({"top_logprobs": 2}, "top_logprobs"),
            ({"include": ["everything"]}, "include[0]"),
            ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
            ({"metadata": {"a": 7}}, "metadata[...]"),
            ({"truncation": "middle"}, "truncation"),
            ({"service_tier": "gold"}, "service_tier"),
            ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
            ({"text": {"verbosity": "loud"}}, "text.verbosity"),
            ({"stop": ["a"] * 5}, "stop"),
            ({"stop": ""}, "stop"),
            ({"stream_options": {"include_usage": True}}, "stream_options"),
            ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "conversation"),
        ],
    )
    def test_what_is_wrong_is_told_with_its_place(self, fields, place):
        assert refused(**fields) == (place, "invalid_value")

    @pytest.mark.parametrize(
        ("fields", "place", "code"),
        [
            ({"previous_response_id": "resp_1"}, "previous_response_id", "previous_response_not_found"),
            ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
            ({"conversation": {"id": "conv_1"}}, "conversation", "unsupported_parameter"),
            ({"background": True}, "background", "unsupported_parameter"),
            ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
            ({"context_management": [{"type": "compaction"}]}, "context_management", "unsupported_parameter"),
            ({"use_beam_search": True}, "use_beam_search", "unsupported_parameter"),
        ],
    )
    def test_what_would_need_history_or_is_not_there(self, fields, place, code):
        assert refused(**fields) == (place, code)

    def test_no_two_responses_have_one_id(self):
        first, second = decoded().options.id, decoded().options.id
        assert first != second
        assert first.startswith("resp_")
        assert len(first) == 37


def test_a_prompt_to_count_is_the_same_prompt():
    fields = {"model": "m", "input": "hi", "instructions": "i", "tools": [F], "reasoning": {"effort": "low"}}
    counted, whole = decode_prompt(json.dumps(fields).encode()), decoded(**fields)
    for name in ("messages", "tools", "tool_choice", "reasoning_effort", "template_kwargs", "constraint"):
        assert getattr(counted, name) == getattr(whole, name)
    with pytest.raises(GatewayError) as caught:
        decode_prompt(json.dumps(fields | {"previous_response_id": "resp_1"}).encode())
    assert caught.value.code == "previous_response_not_found"
