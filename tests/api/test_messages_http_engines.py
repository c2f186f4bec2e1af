"""Messages on HTTP engines: passed on to those that speak it, asked as chat of those that don't."""

import json

import pytest

from smg.engine_server.mock.http import HttpFault, HttpScript, MockHttpEngine
from smg.engines.http.facts import read
from tests.api.http_world import MODEL, place
from tests.api.messages_stream import comparable, events_of, folded
from tests.api.serving import until
from tests.api.test_forward import post

PATH = "/v1/messages"
COUNT = f"{PATH}/count_tokens"
QUESTION = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": "hi there"}]}
TOOL = {"name": "run", "input_schema": {"type": "object", "properties": {"cmd": {"type": "string"}}}}


def engine(**script) -> MockHttpEngine:
    return MockHttpEngine(HttpScript(**({"texts": ("one two three",)} | script)), server="vllm")


async def both(at, **fields) -> dict:
    """What the streamed and the buffered answer of an engine that is asked for chat have in common."""
    whole = (await post(at.url, PATH, QUESTION | fields)).json()
    streamed = await post(at.url, PATH, QUESTION | fields | {"stream": True})
    answered = folded(streamed.content, counted=False)
    assert comparable(answered) | {"id": ""} == comparable(whole) | {"id": ""}
    return whole


class TestEnginesThatSpeakIt:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_the_body_goes_as_the_client_wrote_it(self, stream):
        body = {**QUESTION, "stream": stream, "service_tier": "auto", "metadata": {"user_id": "u"}, "speed": "fast"}
        sent = {"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-api-key": "of-the-gateway"}
        async with place(engine(messages=True)) as at:
            answer = await post(at.url, PATH, body, sent)
            assert answer.status_code == 200
            assert answer.headers["request-id"] == answer.headers["x-request-id"]
            seen = at.engines[0].requests[0]
            assert (seen.path, seen.json) == (PATH, body)
            assert seen.header("anthropic-version") == ["2023-06-01"]
            assert seen.header("anthropic-beta") == ["x"]
            assert seen.header("x-api-key") == []
            await until(at.idle)

    async def test_a_stream_that_breaks_ends_in_anthropics_error(self):
        async with place(engine(messages=True, faults=(HttpFault(kind="reset", after=3),))) as at:
            answer = await post(at.url, PATH, {**QUESTION, "stream": True})
            *events, (name, last) = events_of(answer.content)
            assert (name, last["error"]["type"]) == ("error", "api_error")
            assert "message_stop" not in [name for name, _ in events]
            await until(at.idle)

    async def test_tokens_are_counted_by_the_engine(self):
        async with place(engine(messages=True)) as at:
            at.world.texts.loaded = False
            for worker in at.world.fleet.workers.values():
                assert {"messages_api", "messages_count_api"} <= worker.features
            answer = await post(at.url, COUNT, QUESTION)
            assert (answer.status_code, answer.json()) == (200, {"input_tokens": 2})
            assert at.engines[0].requests[0].path == COUNT
            await until(at.idle)

    def test_engines_of_a_pair_are_asked_for_chat(self):
        listed = {"data": [{"id": "m", "owned_by": "sglang"}]}
        for mode, speaks in (("null", True), ("prefill", False), ("decode", False)):
            documents = {
                "/v1/models": listed,
                "/openapi.json": {"paths": {PATH: {}, COUNT: {}, "/v1/chat/completions": {}}},
                "/get_server_info": {"disaggregation_mode": mode},
            }
            assert ("messages_api" in read(documents).features) == speaks


class TestEnginesThatSpeakChat:
    async def test_what_they_are_asked(self):
        fields = {
            "system": "Be brief.",
            "stop_sequences": ["END"],
            "temperature": 0.5,
            "thinking": {"type": "disabled"},
            "tools": [TOOL],
            "tool_choice": {"type": "tool", "name": "run", "disable_parallel_tool_use": True},
        }
        async with place(engine()) as at:
            assert (await post(at.url, PATH, QUESTION | fields)).status_code == 200
            seen = at.engines[0].requests[0]
            function = {"name": "run", "parameters": TOOL["input_schema"]}
            assert (seen.path, seen.json) == (
                "/v1/chat/completions",
                {
                    "model": MODEL,
                    "stream": True,
                    "stream_options": {"include_usage": True},
                    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi there"}],
                    "max_tokens": 50,
                    "temperature": 0.5,
                    "stop": ["END"],
                    "tools": [{"type": "function", "function": function}],
                    "tool_choice": {"type": "function", "function": {"name": "run"}},
                    "parallel_tool_calls": False,
                    "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
                },
            )

    @pytest.mark.parametrize("piece", [0, 1, 9])
    async def test_MS_05_their_answers_in_blocks(self, piece):
        async with place(engine(piece=piece, reasoning="I think so", calls=(("run", '{"cmd": "ls"}'),))) as at:
            whole = await both(at, thinking={"type": "adaptive"}, tools=[TOOL])
            kinds = [block["type"] for block in whole["content"]]
            assert kinds == ["thinking", "tool_use", "text"]
            assert whole["content"][0]["thinking"] == "I think so"
            assert whole["content"][0]["signature"]
            assert whole["content"][1]["input"] == {"cmd": "ls"}
            assert whole["stop_reason"] == "tool_use"
            await until(at.idle)

    async def test_MS_02_three_calls_are_three_blocks(self):
        calls = (("get_weather", '{"city":"Oslo"}'), ("ping", "{}"), ("get_weather", '{"city":"Rome"}'))
        async with place(engine(calls=calls, texts=("",))) as at:
            tools = [TOOL | {"name": "ping"}, TOOL | {"name": "get_weather"}]
            whole = await both(at, tools=tools)
            made = [(block["name"], json.dumps(block["input"], separators=(",", ":"))) for block in whole["content"]]
            assert tuple(made) == calls

    @pytest.mark.parametrize("loaded", [True, False])
    async def test_MS_01_the_gateway_counts_the_prompt_where_the_engine_tells_it_last(self, loaded):
        async with place(engine()) as at:
            at.world.texts.loaded = loaded
            body = (await post(at.url, PATH, {**QUESTION, "stream": True})).content
            events = [data for _, data in events_of(body)]
            started = events[0]["message"]["usage"]["input_tokens"]
            assert started > 0 if loaded else started == 0
            changes = [event for event in events if event["type"] == "message_delta"]
            assert [change["usage"]["input_tokens"] for change in changes] == [2]
            if loaded:
                counted = await post(at.url, COUNT, QUESTION)
                assert counted.json() == {"input_tokens": started}

    async def test_MS_04_an_empty_list_of_calls_beside_text_is_no_call(self):
        deltas = [
            {"role": "assistant", "content": "", "tool_calls": []},
            {"content": "Hi", "tool_calls": []},
            {"content": " there", "tool_calls": []},
        ]
        chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        raw = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
        async with place(engine(raw=raw)) as at:
            at.world.texts.loaded = False
            streamed = (await post(at.url, PATH, {**QUESTION, "stream": True})).content
            names = [name for name, _ in events_of(streamed)]
            assert names.count("content_block_delta") == 2
            assert folded(streamed)["content"] == [{"type": "text", "text": "Hi there"}]

    async def test_RL_01_a_refusal_has_anthropics_shape_and_the_engines_words(self):
        refusal = "This model's maximum context length is 100 tokens. However, you requested 130 tokens (80 in the "
        refusal += "messages, 50 in the completion)."
        async with place(engine(faults=(HttpFault(status=400, message=refusal),))) as at:
            for stream in (False, True):
                answer = await post(at.url, PATH, {**QUESTION, "stream": stream})
                assert answer.status_code == 400
                error = answer.json()["error"]
                assert error["type"] == "invalid_request_error"
                assert error["message"].startswith("input length and `max_tokens` exceed context limit: 80 + 50 > 100")
            assert at.world.metric("worker_retries") == 0
            await until(at.idle)
