"""What a Messages body means: turns, tools, thinking, limits; and what is wrong with one, by its path."""

import base64
import json

import pytest

from smg.api.anthropic_messages import AnthropicMessages
from smg.api.anthropic_messages.decode import decode_prompt
from smg.api.anthropic_messages.options import MessagesOptions
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import (
    Constraint,
    Limits,
    MediaPart,
    Message,
    ReasoningPart,
    Sampling,
    StopRules,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)

DIALECT = AnthropicMessages()
CTX = RequestContext("msg_1", endpoint="messages")
HI = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "get_weather", "description": "Now.", "input_schema": SCHEMA}
PIXEL = base64.b64encode(b"pixel").decode()


def decode(headers=None, **fields):
    body = json.dumps({"model": "m", "max_tokens": 2000, "messages": [HI]} | fields).encode()
    return DIALECT.decode(body, headers or {}, {}, CTX)


def turns(*messages, **fields) -> list[Message]:
    return decode(messages=list(messages), **fields).messages


def said(role, *blocks):
    return {"role": role, "content": list(blocks)}


def use(identity, name, **arguments):
    return {"type": "tool_use", "id": identity, "name": name, "input": arguments}


def result(identity, *content, **fields):
    return {"type": "tool_result", "tool_use_id": identity, **({"content": content[0]} if content else {}), **fields}


def text(content):
    return {"type": "text", "text": content}


def refused(**fields) -> tuple[str, str]:
    """The code of the error, and the path as a client is told it."""
    with pytest.raises(GatewayError) as caught:
        decode(**fields)
    assert caught.value.status == 400
    told = DIALECT.error(CTX, caught.value).body["error"]
    assert told["type"] == "invalid_request_error"
    assert caught.value.param is not None
    return caught.value.code, told["message"].partition(": ")[0]


class TestConversation:
    def test_a_text_stays_one_and_blocks_stay_a_list(self):
        assert turns(HI) == [Message("user", "hi")]
        assert turns(said("user", text("a"), text("b"))) == [Message("user", [TextPart("a"), TextPart("b")])]

    def test_a_block_without_a_type_is_text(self):
        assert turns(said("user", {"text": "a"})) == [Message("user", [TextPart("a")])]

    def test_the_system_text_comes_first(self):
        assert turns(HI, system="Be brief.")[0] == Message("system", "Be brief.")
        blocks = [text("Be brief.") | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}, text("Be kind.")]
        assert turns(HI, system=blocks)[0] == Message("system", [TextPart("Be brief."), TextPart("Be kind.")])
        for nothing in (None, "", []):
            assert turns(HI, system=nothing) == [Message("user", "hi")]

    def test_neighbours_of_one_role_are_one_turn(self):
        given = [
            HI,
            said("user", text("there")),
            {"role": "assistant", "content": "Hel"},
            said("assistant", text("lo")),
            HI,
        ]
        assert turns(*given) == [
            Message("user", [TextPart("hi"), TextPart("there")]),
            Message("assistant", [TextPart("Hel"), TextPart("lo")]),
            Message("user", "hi"),
        ]

    def test_CT_02_a_system_text_may_stand_among_the_messages(self):
        late = {"role": "system", "content": "Only BLUE."}
        assert turns(HI, late, HI) == [Message("user", "hi"), Message("system", "Only BLUE."), Message("user", "hi")]

    def test_what_an_assistant_said_thought_and_called(self):
        thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
        (_, answer, *_) = turns(HI, said("assistant", thought, text("I look."), use("toolu_1", "f", a=1, b="é")), HI)
        assert answer.content == [ReasoningPart("hm", "s"), TextPart("I look.")]
        assert answer.tool_calls == [ToolCall("toolu_1", "f", '{"a": 1, "b": "é"}')]

    def test_a_turn_of_calls_alone_has_no_content(self):
        (_, answer, _) = turns(HI, said("assistant", use("any-id", "f")), said("user", result("any-id", "ok")))
        assert (answer.content, answer.tool_calls) == (None, [ToolCall("any-id", "f", "{}")])

    def test_results_come_before_what_the_user_says_in_their_order(self):
        calls = said("assistant", use("a", "f"), use("b", "g"))
        answers = said("user", text("Look:"), result("b", "2"), result("a", [text("1"), text("!")]), text("And?"))
        assert turns(HI, calls, answers)[2:] == [
            Message("tool", "2", name="g", tool_call_id="b"),
            Message("tool", [TextPart("1\n!")], name="f", tool_call_id="a"),
            Message("user", [TextPart("Look:"), TextPart("And?")]),
        ]

    def test_texts_of_a_result_that_follow_each_other_are_lines(self):
        image = {"type": "image", "source": {"type": "url", "url": "https://h/a.png"}}
        document = {
            "type": "document",
            "title": "T",
            "source": {"type": "text", "media_type": "text/plain", "data": "d"},
        }
        blocks = [text("1"), text(""), text("2\n"), image, text("3"), document]
        (*_, answer) = turns(HI, said("assistant", use("a", "f")), said("user", result("a", blocks)))
        first, picture, last = answer.content
        assert (first, last) == (TextPart("1\n2\n"), TextPart("3\nT\n\nd"))
        assert picture.path == "messages[2].content[0].content[3]"

    def test_a_result_may_be_an_error_empty_or_an_image(self):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
        calls = said("assistant", use("a", "f"), use("b", "f"), use("c", "f"))
        answers = said("user", result("a", "no such file", is_error=True), result("b"), result("c", [image]))
        failed, empty, picture = turns(HI, calls, answers)[2:]
        assert (failed.content, failed.is_error) == ("no such file", True)
        assert (empty.content, empty.is_error) == ("", False)
        (part,) = picture.content
        assert (part.kind, bytes(part.data), part.media_type) == ("image", b"pixel", "image/png")
        assert part.path == "messages[2].content[2].content[0]"

    def test_images_by_their_bytes_and_by_their_address(self):
        blocks = [
            {"type": "image", "source": {"type": "url", "url": "https://h/a.png"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": PIXEL}},
        ]
        request = decode(system="s", messages=[HI, said("user", *blocks)])
        assert request.messages[1].content[1] == MediaPart(
            "image", url="https://h/a.png", path="messages[1].content[0]"
        )
        # Paths are those of the body, whatever became of its turns.
        assert [path for path, _ in request.media()] == ["messages[1].content[0]", "messages[1].content[1]"]

    def test_documents_are_text_under_their_title(self):
        plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Once."}}
        titled = plain | {"title": "Tale", "context": "A draft."}
        nested = {"type": "document", "title": "T", "source": {"type": "content", "content": [text("a"), text("b")]}}
        assert turns(said("user", plain))[0].content == [TextPart("Once.")]
        assert turns(said("user", titled))[0].content == [TextPart("Tale\n\nA draft.\n\nOnce.")]
        assert turns(said("user", nested))[0].content == [TextPart("T"), TextPart("a"), TextPart("b")]

    def test_an_answer_that_is_begun_is_gone_on_with(self):
        begun = {"role": "assistant", "content": "The answer is ("}
        assert decode(messages=[HI, begun]).continue_final_message
        assert not decode().continue_final_message

    @pytest.mark.parametrize(
        ("messages", "path"),
        [
            ([], "messages"),
            (None, "messages"),
            ("hi", "messages"),
            ([{"content": "x"}], "messages.0"),
            ([{"role": "tool", "content": "x"}], "messages.0.role"),
            ([{"role": "user"}], "messages.0.content"),
            ([{"role": "user", "content": 1}], "messages.0.content"),
            ([{"role": "user", "content": ""}], "messages.0.content"),
            ([{"role": "user", "content": [text("")]}], "messages.0.content"),
            ([said("user", {"type": "text"})], "messages.0.content.0.text"),
            ([HI, said("user", text("a"), {"type": "weird"})], "messages.1.content.1"),
            ([said("user", {"type": "search_result"})], "messages.0.content.0"),
            ([said("user", use("a", "f"))], "messages.0.content.0"),
            ([HI, said("assistant", {"type": "redacted_thinking", "data": "x"}), HI], "messages.1.content.0"),
            ([HI, said("assistant", {"type": "server_tool_use", "id": "x"}), HI], "messages.1.content.0"),
            ([HI, said("assistant", {"type": "image", "source": {}}), HI], "messages.1.content.0"),
            ([HI, said("assistant", use("a", "f") | {"input": "x"}), HI], "messages.1.content.0.input"),
            ([HI, HI, said("assistant", text("a"), use("a", "f"))], "messages.2"),
            ([said("user", result("a", [{"type": "tool_reference"}]))], "messages.0.content.0.content.0"),
            (
                [said("user", {"type": "image", "source": {"type": "file", "file_id": "f"}})],
                "messages.0.content.0.source",
            ),
            ([said("user", {"type": "document", "source": {"type": "base64"}})], "messages.0.content.0.source"),
            ([{"role": "system", "content": [use("a", "f")]}], "messages.0.content.0"),
        ],
    )
    def test_what_is_wrong_is_named_by_its_path(self, messages, path):
        assert refused(messages=messages)[1] == path

    def test_base64_that_is_none(self):
        for bad in ("%%%", ""):
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": bad}}
            assert refused(messages=[said("user", image)])[1] == "messages.0.content.0.source.data"


class TestTelemetryInTheSystemText:
    LINE = "x-anthropic-billing-header: cc_version=2.1.0; cch=%s;"

    def test_MS_06_it_is_left_out_of_blocks_and_of_texts(self):
        for hashed in ("aaaa1", "bbbb2"):
            line = self.LINE % hashed
            assert turns(HI, system=[text(line), text("Be kind.")])[0] == Message("system", [TextPart("Be kind.")])
            assert turns(HI, system=f"{line}\nBe kind.")[0] == Message("system", "Be kind.")
            assert turns(HI, system=[text(f"{line}\nBe"), text("kind.")])[0].content == [
                TextPart("Be"),
                TextPart("kind."),
            ]
            assert turns(HI, system=line) == turns(HI, system=[text(line)]) == [Message("user", "hi")]

    def test_MS_06_elsewhere_it_is_what_somebody_wrote(self):
        line = self.LINE % "aaaa1"
        assert turns(HI, system=f"Be kind.\n{line}")[0].content == f"Be kind.\n{line}"
        assert turns(HI, system=[text("Be kind."), text(line)])[0].content[1] == TextPart(line)
        assert turns({"role": "user", "content": line})[0].content == line


class TestTools:
    def test_tools_of_the_clients(self):
        request = decode(tools=[WEATHER, {"type": "custom", "name": "f", "input_schema": {}, "strict": True}])
        first, second = request.tools
        assert first == Tool("get_weather", "Now.", SCHEMA, raw={"input_schema": SCHEMA})
        assert (second.name, second.parameters, second.strict) == ("f", {}, True)
        assert request.tool_choice == ToolChoice("auto")
        assert decode().tool_choice == ToolChoice("none")

    @pytest.mark.parametrize(
        ("given", "choice"),
        [
            ({"type": "auto"}, ToolChoice("auto")),
            ({"type": "any"}, ToolChoice("required")),
            ({"type": "none"}, ToolChoice("none")),
            ({"type": "tool", "name": "get_weather"}, ToolChoice("required", ("get_weather",))),
            ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto", parallel=False)),
            ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required", parallel=False)),
            (
                {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
                ToolChoice("required", ("get_weather",), parallel=False),
            ),
        ],
    )
    def test_choices(self, given, choice):
        assert decode(tools=[WEATHER], tool_choice=given).tool_choice == choice

    @pytest.mark.parametrize("given", [{"type": "auto"}, {"type": "none"}, None])
    def test_without_tools_there_is_nothing_to_choose(self, given):
        assert decode(tool_choice=given).tool_choice == ToolChoice("none")

    @pytest.mark.parametrize(
        ("fields", "path"),
        [
            ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
            ({"tools": [{"name": "", "input_schema": {}}]}, "tools.0.name"),
            ({"tools": [WEATHER, {"name": "f", "input_schema": "x"}]}, "tools.1.input_schema"),
            ({"tool_choice": {"type": "any"}}, "tool_choice"),
            ({"tool_choice": {"type": "some"}, "tools": [WEATHER]}, "tool_choice.type"),
            ({"tool_choice": "any", "tools": [WEATHER]}, "tool_choice"),
            ({"tool_choice": {"type": "tool"}, "tools": [WEATHER]}, "tool_choice.name"),
            ({"tool_choice": {"type": "tool", "name": "nope"}, "tools": [WEATHER]}, "tool_choice.name"),
        ],
    )
    def test_what_is_wrong_is_named(self, fields, path):
        assert refused(**fields)[1] == path

    @pytest.mark.parametrize(
        "tool",
        [
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "bash_20250124", "name": "bash"},
            {"type": "mcp_toolset", "mcp_server_name": "s"},
            {"type": "tool_search_tool_regex_20251119", "name": "tool_search"},
        ],
    )
    def test_tools_that_nobody_runs_here_are_refused(self, tool):
        assert refused(tools=[WEATHER, tool]) == ("unsupported_parameter", "tools.1")

    @pytest.mark.parametrize("field", ["mcp_servers", "container"])
    def test_servers_and_containers_are_refused(self, field):
        assert refused(**{field: [{"type": "url", "name": "s", "url": "https://h"}]}) == (
            "unsupported_parameter",
            field,
        )
        assert decode(**{field: None}).messages


class TestThinking:
    def shown(self, thinking, **fields):
        request = decode(thinking=thinking, **fields)
        return request.thinking, request.options, request.sign_reasoning

    def test_who_does_not_ask_sees_none(self):
        assert self.shown(None) == (None, MessagesOptions("dropped"), False)
        assert self.shown({"type": "disabled"}) == (False, MessagesOptions("dropped"), False)

    @pytest.mark.parametrize(
        "thinking", [{"type": "adaptive"}, {"type": "between_tools"}, {"type": "enabled", "budget_tokens": 1024}]
    )
    def test_who_asks_sees_it_signed(self, thinking):
        assert self.shown(thinking) == (True, MessagesOptions("shown"), True)
        assert self.shown(thinking | {"display": "summarized"}) == (True, MessagesOptions("shown"), True)
        assert self.shown(thinking | {"display": "omitted"}) == (True, MessagesOptions("omitted"), True)

    def test_earlier_thinking_is_verified_whatever_is_asked_for(self):
        assert decode().verify_reasoning
        assert decode(thinking={"type": "adaptive"}).verify_reasoning

    @pytest.mark.parametrize(
        ("budget", "effort"), [(1024, "low"), (4096, "medium"), (16383, "medium"), (16384, "high")]
    )
    def test_a_budget_says_how_much_effort_is_meant(self, budget, effort):
        thinking = {"type": "enabled", "budget_tokens": budget}
        assert decode(thinking=thinking, max_tokens=20000).reasoning_effort == effort
        both = decode(thinking=thinking, max_tokens=20000, output_config={"effort": "max"})
        assert both.reasoning_effort == "max"

    def test_effort_alone(self):
        assert decode(output_config={"effort": "xhigh"}).reasoning_effort == "xhigh"
        assert decode().reasoning_effort is None

    @pytest.mark.parametrize(
        ("thinking", "path"),
        [
            ({"type": "sometimes"}, "thinking.type"),
            ({}, "thinking"),
            ("on", "thinking"),
            ({"type": "enabled"}, "thinking.budget_tokens"),
            ({"type": "enabled", "budget_tokens": 1023}, "thinking.budget_tokens"),
            ({"type": "enabled", "budget_tokens": 2000}, "thinking.budget_tokens"),
            ({"type": "adaptive", "display": "loud"}, "thinking.display"),
        ],
    )
    def test_what_is_wrong_is_named(self, thinking, path):
        assert refused(thinking=thinking)[1] == path


class TestFields:
    def test_sampling_stops_and_limits(self):
        request = decode(temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["END", "\n\n"], stream=True)
        assert request.sampling == Sampling(temperature=0.5, top_p=0.9, top_k=5)
        assert request.stop == StopRules(("END", "\n\n"))
        assert request.limits == Limits(2000)
        assert request.stream
        assert decode(top_k=0).sampling.top_k == -1
        assert decode(max_tokens=7.0).limits == Limits(7)

    def test_a_schema_by_the_name_it_had_first(self):
        form = {"type": "json_schema", "schema": {"type": "object"}}
        request = decode(output_format=form)
        assert request.constraint == decode(output_config={"format": form}).constraint is not None
        bad = {"type": "json_schema", "schema": {"type": "not-a-type"}}
        assert refused(output_format=bad)[1].startswith("output_format.schema")

    def test_the_input_of_a_tool_is_an_object(self):
        tools = [{"name": "f", "input_schema": {"type": "array"}}]
        assert refused(tools=tools) == ("invalid_value", "tools.0.input_schema.type")

    def test_an_answer_can_be_bound_to_a_schema(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        request = decode(output_config={"format": {"type": "json_schema", "schema": schema}})
        assert request.constraint == Constraint("json_schema", json.dumps(schema, separators=(",", ":")))
        bad = {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}
        assert refused(output_config=bad)[1].startswith("output_config.format.schema")

    def test_routing_hints_come_from_headers(self):
        assert decode({"x-smg-routing-key": "k"}).hints.routing_key == "k"

    @pytest.mark.parametrize(
        "fields",
        [
            {"metadata": {"user_id": "u", "more": 1}},
            {"service_tier": "auto", "inference_geo": "eu", "speed": "fast"},
            {"cache_control": {"type": "ephemeral"}, "diagnostics": {}, "context_management": {"edits": []}},
            {"user_profile_id": "p", "workspace_id": "w"},
        ],
    )
    def test_what_concerns_others_is_tolerated(self, fields):
        assert decode(**fields).messages == [Message("user", "hi")]

    @pytest.mark.parametrize(
        ("fields", "path"),
        [
            ({"max_tokens": None}, "max_tokens"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"max_tokens": 1.5}, "max_tokens"),
            ({"temperature": 1.1}, "temperature"),
            ({"temperature": "hot"}, "temperature"),
            ({"top_p": 0}, "top_p"),
            ({"top_k": -1}, "top_k"),
            ({"stop_sequences": ["a", ""]}, "stop_sequences.1"),
            ({"stop_sequences": ["a"] * 65}, "stop_sequences"),
            ({"stop_sequences": "a"}, "stop_sequences"),
            ({"metadata": "u"}, "metadata"),
            ({"metadata": {"user_id": 1}}, "metadata.user_id"),
            ({"system": [{"type": "image", "source": {}}]}, "system.0"),
            ({"stream": "yes"}, "stream"),
        ],
    )
    def test_limits_and_types(self, fields, path):
        assert refused(**fields)[1] == path


def test_a_count_needs_no_limit_and_has_the_same_prompt():
    fields = {"model": "m", "system": "S.", "messages": [HI], "tools": [WEATHER], "thinking": {"type": "adaptive"}}
    counted = decode_prompt(json.dumps(fields).encode())
    whole = decode(**fields)
    for name in (
        "messages",
        "tools",
        "tool_choice",
        "thinking",
        "reasoning_effort",
        "continue_final_message",
        "constraint",
    ):
        assert getattr(counted, name) == getattr(whole, name)
