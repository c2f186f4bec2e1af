"""Bodies for engines: a client's own, patched member by member, and those made of a canonical request."""

import msgspec
import pytest

from smg.core.errors import GatewayError
from smg.core.request import (
    Constraint,
    GenerationRequest,
    Limits,
    MediaPart,
    Message,
    RawPart,
    ReasoningPart,
    Sampling,
    StopRules,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from smg.engines.http.address import HttpAddress, parse, split_rank
from smg.engines.http.chat_body import chat_body, completions_body
from smg.engines.http.errors import message_of, seconds
from smg.engines.http.fields import Fields


def made(*messages, **fields) -> dict:
    return chat_body(GenerationRequest("x", "m", messages=list(messages), **fields))


class TestFields:
    def test_what_is_not_patched_keeps_its_bytes(self):
        body = b'{"a": 1.00, "model":"x" , "s":"\\u00fc"}'
        fields = Fields(body)
        assert fields.body() is body
        fields.put("model", "y")
        assert fields.body() == b'{"a":1.00,"model":"y","s":"\\u00fc"}'
        fields.put("new", {"k": True})
        assert fields.body().endswith(b',"new":{"k":true}}')

    def test_reading(self):
        fields = Fields(b'{"model":"x","n":null,"list":[1,2],"bad":"\xff"}')
        assert (fields.text("model"), fields.text("list"), fields.text("none")) == ("x", "", "")
        assert (fields.get("list"), fields.get("n"), fields.get("none")) == ([1, 2], None, None)
        assert (fields.view("list"), fields.view("n"), fields.view("none")) == (b"[1,2]", b"", b"")

    @pytest.mark.parametrize("body", [b"", b"[1]", b"{", b'"x"', b"null"])
    def test_what_is_no_object(self, body):
        with pytest.raises(GatewayError, match="not a JSON object"):
            Fields(body)


class TestChat:
    def test_everything_a_conversation_can_have(self):
        body = made(
            Message("system", "s"),
            Message("user", [TextPart("look"), MediaPart("image", url="http://i", options={"detail": "low"})]),
            Message("user", [MediaPart("image", data=b"ab", media_type="image/png"), RawPart("own", {"type": "own"})]),
            Message("assistant", None, reasoning="hm", tool_calls=[ToolCall("c1", "f", '{"a":1}')]),
            Message("tool", "4", tool_call_id="c1"),
            Message("assistant", [ReasoningPart("so"), TextPart("four")], name="bot"),
            tools=[Tool("f", "does", {"type": "object"}, strict=True)],
            tool_choice=ToolChoice("required", ("f",), parallel=False),
            reasoning_effort="low",
            template_kwargs={"k": 1},
        )
        assert body["messages"] == [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"detail": "low", "url": "http://i"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWI="}},
                    {"type": "own"},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
            },
            {"role": "tool", "content": "4", "tool_call_id": "c1"},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "four"}],
                "name": "bot",
                "reasoning_content": "so",
            },
        ]
        function = {"name": "f", "description": "does", "parameters": {"type": "object"}, "strict": True}
        assert body["tools"] == [{"type": "function", "function": function}]
        assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
        assert (body["parallel_tool_calls"], body["reasoning_effort"]) == (False, "low")
        assert body["chat_template_kwargs"] == {"k": 1}

    def test_sampling_limits_stops_and_format(self):
        body = made(
            Message("user", "x"),
            sampling=Sampling(temperature=0.5, seed=3, logit_bias={7: -1.0}),
            limits=Limits(9, 2),
            stop=StopRules(("END",), (5,), visible=True, ignore_eos=True),
            constraint=Constraint("json_schema", '{"type":"object"}'),
            n=2,
            skip_special_tokens=False,
        )
        assert {name: value for name, value in body.items() if name not in ("messages", "model")} == {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.5,
            "seed": 3,
            "logit_bias": {"7": -1.0},
            "max_tokens": 9,
            "min_tokens": 2,
            "n": 2,
            "stop": ["END"],
            "stop_token_ids": [5],
            "include_stop_str_in_output": True,
            "no_stop_trim": True,
            "ignore_eos": True,
            "skip_special_tokens": False,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": {"type": "object"}},
            },
        }
        assert made(Message("user", "x"), constraint=Constraint("json_object"))["response_format"] == {
            "type": "json_object"
        }

    def test_a_choice_among_some_tools_offers_only_those(self):
        tools = [Tool("a"), Tool("b"), Tool("c")]
        body = made(Message("user", "x"), tools=tools, tool_choice=ToolChoice("required", ("a", "c")))
        assert [tool["function"]["name"] for tool in body["tools"]] == ["a", "c"]
        assert body["tool_choice"] == "required"

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"tools": [Tool("f", kind="custom")]}, "tools"),
            ({"messages": [Message("user", [MediaPart("file", url="x")])]}, "messages"),
            ({"suffix": "x"}, "suffix"),
            ({"lora": "x"}, "lora_path"),
            ({"prompt_ids": [1], "prompt_path": "input_ids"}, "input_ids"),
            ({"constraint": Constraint("regex", "a")}, "response_format"),
        ],
    )
    def test_what_has_no_place_is_refused_by_name(self, fields, param):
        with pytest.raises(GatewayError) as caught:
            chat_body(GenerationRequest("x", "m", **fields))
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", param)


def test_completions_take_any_prompt():
    def prompt(**fields) -> object:
        return completions_body(GenerationRequest("x", "m", **fields))["prompt"]

    assert prompt(prompt_text="a") == "a"
    assert prompt(prompt_ids=[1, 2]) == [1, 2]
    assert prompt(prompts=["a", "b"]) == ["a", "b"]
    body = completions_body(GenerationRequest("x", "m", prompt_text="a", suffix="b", add_special_tokens=False))
    assert (body["suffix"], body["add_special_tokens"]) == ("b", False)
    assert msgspec.json.encode(body)


class TestAddresses:
    @pytest.mark.parametrize(
        ("url", "expected", "authority"),
        [
            ("http://a:8000", HttpAddress("a", 8000, False), "a:8000"),
            ("https://a/deep/", HttpAddress("a", 443, True, "/deep"), "a"),
            ("http://[::1]:80", HttpAddress("::1", 80, False), "[::1]"),
            ("a:8000@7", HttpAddress("a", 8000, False, rank=7), "a:8000"),
        ],
    )
    def test_parts(self, url, expected, authority):
        assert parse(url) == expected
        assert parse(url).authority == authority

    @pytest.mark.parametrize("url", ["ftp://a", "http://", "http://u:p@a:1", "http://a:99999", "http://a/?q=1"])
    def test_what_is_none(self, url):
        with pytest.raises(ValueError, match="http"):
            parse(url)

    def test_ranks(self):
        assert split_rank("http://a:1@3") == ("http://a:1", 3)
        assert split_rank("http://a:1") == ("http://a:1", None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error":{"message":"m","code":1}}', "m"),
        (b'{"error":"m"}', "m"),
        (b'{"object":"error","message":"m"}', "m"),
        (b'{"detail":"m"}', "m"),
        (b'{"detail":[{"loc":["x"]}]}', '{"detail":[{"loc":["x"]}]}'),
        (b"plain", "plain"),
    ],
)
def test_what_an_error_says(body, said):
    assert message_of(body) == said


def test_retry_after():
    assert (seconds("3"), seconds(" 0 "), seconds("soon"), seconds("")) == (3.0, 0.0, None, None)
    assert seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
