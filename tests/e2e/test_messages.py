"""Anthropic's Messages through the official client: on a real model, and signed thinking over processes and time."""

import base64
import json
from pathlib import Path

import anthropic
import pytest

from smg.engine_server.mock import tokenizer as mock
from tests.engines_for_tests import mock_process
from tests.gateway import MODEL, Gateway, running, settings

pytestmark = pytest.mark.e2e

ASK = [{"role": "user", "content": "What is the capital of France?"}]
TOOLS = [
    {
        "name": "get_weather",
        "description": "The weather in a city.",
        "input_schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 12},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city", "days"],
        },
    }
]


def connect(gateway: Gateway) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> anthropic.Anthropic:
    return connect(gateway)


def both(client: anthropic.Anthropic, **fields: object) -> anthropic.types.Message:
    """The answer that the client folds a stream into, and the buffered one: they agree in all but their ids."""
    # The client has no argument for it any more.
    greedy = {"temperature": 0}
    asked = {"model": MODEL, "max_tokens": 40, "messages": ASK, "extra_body": greedy, **fields}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    ours, theirs = whole.model_dump(), streamed.model_dump()
    for message in (ours, theirs):
        assert message.pop("id").startswith("msg_")
        # What the engine had in its cache is another matter each time.
        message["usage"] = (message["usage"]["output_tokens"], total(message["usage"]))
        for block in message["content"]:
            # The client's own notes on the way.
            for extra in ("parsed_output", "caller"):
                block.pop(extra, None)
            if block["type"] == "tool_use":
                assert block.pop("id").startswith("toolu_")
        message.pop("parsed_output", None)
    assert ours == theirs
    return whole


def total(usage: dict[str, int | None]) -> int:
    """All tokens of a prompt."""
    return (usage["input_tokens"] or 0) + (usage["cache_read_input_tokens"] or 0)


def test_streamed_equals_buffered_and_the_count_is_the_usage(client: anthropic.Anthropic):
    whole = both(client, system="Answer briefly.")
    assert whole.content[0].text.strip()
    assert whole.stop_reason in ("end_turn", "max_tokens")
    assert 0 < whole.usage.output_tokens <= 40
    counted = client.messages.count_tokens(model=MODEL, messages=ASK, system="Answer briefly.")
    assert counted.input_tokens == total(whole.usage.model_dump())
    more = client.messages.count_tokens(model=MODEL, messages=ASK, system="Answer briefly.", tools=TOOLS)
    assert more.input_tokens >= counted.input_tokens


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_call_that_is_forced_comes_with_the_input_that_was_described(client: anthropic.Anthropic, choice: dict):
    whole = both(client, tools=TOOLS, tool_choice=choice, max_tokens=100)
    (call,) = [block for block in whole.content if block.type == "tool_use"]
    assert (whole.stop_reason, call.name, set(call.input)) == ("tool_use", "get_weather", {"city", "days"})
    assert 1 <= call.input["days"] <= 9
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Sunny."}]}
    turns = [*ASK, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    after = client.messages.create(model=MODEL, max_tokens=10, messages=turns, tools=TOOLS)
    assert after.usage.output_tokens > 0


def test_an_answer_that_is_bound_to_a_schema_has_its_form(client: anthropic.Anthropic):
    schema = {"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"]}
    schema["additionalProperties"] = False
    bound = {"format": {"type": "json_schema", "schema": schema}}
    whole = client.messages.create(model=MODEL, max_tokens=60, messages=ASK, output_config=bound)
    assert json.loads(whole.content[0].text)["mood"] in ("good", "bad")


def test_a_stop_sequence_ends_the_answer_and_is_told(client: anthropic.Anthropic):
    full = both(client).content[0].text
    stop = full.split()[2]
    whole = both(client, stop_sequences=[stop])
    assert (whole.stop_reason, whole.stop_sequence) == ("stop_sequence", stop)
    assert whole.content[0].text == full[: full.index(stop)]


def test_an_answer_that_is_begun_is_gone_on_with(client: anthropic.Anthropic):
    begun = {"role": "assistant", "content": "The capital of France is"}
    whole = both(client, messages=[*ASK, begun], max_tokens=8)
    assert "The capital of France is" not in whole.content[0].text


def test_what_a_client_does_wrong_is_told_in_its_own_terms(client: anthropic.Anthropic):
    pixel = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"none").decode()}
    image = [{"role": "user", "content": [{"type": "text", "text": "?"}, {"type": "image", "source": pixel}]}]
    with pytest.raises(anthropic.BadRequestError) as blind:
        client.messages.create(model=MODEL, max_tokens=5, messages=image)
    assert "messages.0.content.1" in blind.value.message
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="nope", max_tokens=5, messages=ASK)
    assert missing.value.request_id
    assert missing.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as long:
        client.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": "word " * 20_000}])
    assert "prompt is too long: " in long.value.message
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model=MODEL, max_tokens=5, messages=ASK, tools=[{"type": "web_search_20250305"}])


def test_a_signature_holds_in_every_process_and_after_a_restart(tmp_path: Path):
    template = tmp_path / "thinking.jinja"
    shown = "{%- for message in messages %}{{ message.reasoning_content or '' }}{% endfor %}"
    template.write_text(shown + mock.CHAT_TEMPLATE)
    flags = ("--reasoning-parser", "qwen3", "--chat-template", str(template), "--workers", "2")
    with mock_process("--text", "<think>So it is.</think>Yes.", "--model", "mock") as address:
        for start in range(2):
            with running(settings(tmp_path / "state", *flags, "--worker-urls", f"grpc://{address}")) as gateway:
                if not start:
                    asked = {"model": "mock", "max_tokens": 60, "messages": ASK, "thinking": {"type": "adaptive"}}
                    with connect(gateway) as client, client.messages.stream(**asked) as stream:
                        thought, said = stream.get_final_message().content
                    assert (thought.thinking, said.text) == ("So it is.", "Yes.")
                # Each connection may reach another process.
                longer = count(gateway, None) + len(mock.encode_text(thought.thinking))
                assert {count(gateway, thought.to_dict()) for _ in range(6)} == {longer}
                forged = thought.to_dict() | {"thinking": "So it was"}
                assert count(gateway, forged) == count(gateway, None)


def count(gateway: Gateway, thought: dict | None) -> int:
    """The tokens of a conversation in which ``thought`` was thought."""
    said = [*([thought] if thought else []), {"type": "text", "text": "Yes."}]
    turns = [*ASK, {"role": "assistant", "content": said}, {"role": "user", "content": "Why?"}]
    with connect(gateway) as client:
        return client.messages.count_tokens(model="mock", messages=turns).input_tokens
