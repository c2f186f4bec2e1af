"""Responses through the whole application over a scripted pipeline: streamed and buffered, direct and tapped."""

import json
import re

import aiohttp
import pytest

from smg.api.openai_responses.encode import ResponsesStream
from smg.config.settings import ModelSettings, ServerSettings, Settings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from tests.api.responses_events import folded, parsed, without_ids
from tests.api.serving import send, serving, until
from tests.pipeline.fakes import EOS, FOREVER, SETTINGS, TokenBatch, end, limited, text, world

PATH = "/v1/responses"
ANSWER = [[text("hello", cached_tokens=2)], [text(" wor", cached_tokens=2)], [text("ld"), end()]]
# The scripted tokens spell markers letter by letter.
SPELLED = Settings(routing=SETTINGS.routing, model=ModelSettings(marker_match="text"))
BROKEN = GatewayError("worker_stream_failed", "the stream broke", worker_fault=True)
WRONG = (400, "invalid_value")
TOOLS = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}},
    {"type": "custom", "name": "sh"},
]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "x\\n<y", "b": [1, 2]}}\n</tool_call>'
CUSTOM = '<tool_call>\n{"name": "sh", "arguments": {"input": "ls\\n\\n\\"x\\""}}\n</tool_call>'
SPOKEN = f"<think>hm\nm</think>he<llo{CALL}\n{CUSTOM}"

HARMONY = (
    "<|channel|>analysis<|message|>I think.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
    '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "x"}<|call|>'
)


def letters(output: str) -> list:
    """A script that says ``output`` one character at a time."""
    return [*([text(char)] for char in output), [TokenBatch(0, [EOS], finish="stop")]]


def without_call_ids(body: bytes) -> bytes:
    return re.sub(rb"call_[0-9a-f]{24}", b"call_-", body)


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def settled(monkeypatch):
    """Every response has the same id and time."""
    monkeypatch.setattr("smg.api.openai_responses.decode.response_id", lambda: "resp_" + "0" * 32)
    monkeypatch.setattr("smg.core.clock.created", lambda: 9)


class Place:
    """The application in front of a scripted engine."""

    def __init__(self, http, script, settings=SPELLED, model="m", **record):
        self.model = model
        self.world = world({"w1": [script]}, settings, model, **{"context_length": 4096} | record)
        self._http = http

    async def ask(self, path=PATH, method="POST", **fields):
        """Status and body of one request, decoded when it is JSON."""
        data = None if method != "POST" else json.dumps({"model": self.model, "input": "hi"} | fields)
        async with (
            serving(self.world.services) as url,
            self._http.request(method, url + path, data=data) as response,
        ):
            body = await response.read()
        assert self.world.idle()
        return response.status, json.loads(body) if response.content_type == "application/json" else body


ANSWERS = {
    "text": ("m", {}, ANSWER, ["message"]),
    "a stop string": ("m", {"stop": ["o w"]}, ANSWER, ["message"]),
    "nothing": ("m", {}, [[end()]], ["message"]),
    "reasoning": ("qwen3", {}, letters("<think>hm</think>so"), ["reasoning", "message"]),
    "reasoning that the limit cut": ("qwen3", {}, [[text("<think>h"), end(reason="length")]], ["reasoning"]),
    "everything": (
        "qwen3",
        {"tools": TOOLS},
        letters(SPOKEN),
        ["reasoning", "message", "function_call", "custom_tool_call"],
    ),
    "Harmony": ("gpt-oss-20b", {"tools": TOOLS}, letters(HARMONY), ["reasoning", "message", "function_call"]),
    "a call that the limit cut": (
        "qwen3",
        {"tools": TOOLS},
        [*letters("</think>" + CALL[:60])[:-1], [end(reason="length")]],
        ["function_call"],
    ),
}


@pytest.mark.parametrize(("model", "fields", "script", "kinds"), ANSWERS.values(), ids=ANSWERS)
async def test_streamed_and_buffered_answers_agree(http, model, fields, script, kinds):
    place = Place(http, script, model=model)
    _, whole = await place.ask(**fields)
    _, streamed = await place.ask(stream=True, **fields)
    last = folded(streamed)
    assert without_ids(last) == without_ids(whole)
    assert [item["type"] for item in whole["output"]] == kinds
    parsed(whole)


async def test_the_items_of_an_answer_with_everything(http):
    _, whole = await Place(http, letters(SPOKEN), model="qwen3").ask(tools=TOOLS)
    thought, said, call, custom = whole["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "hm\nm"}]
    assert said["content"][0]["text"] == "he<llo"
    assert json.loads(call["arguments"]) == {"a": "x\n<y", "b": [1, 2]}
    assert custom["input"] == 'ls\n\n"x"'
    assert (whole["status"], [item["status"] for item in whole["output"]]) == ("completed", ["completed"] * 4)


async def test_channels_of_harmony_are_items(http):
    place = Place(http, letters(HARMONY), model="gpt-oss-20b")
    thought, preamble, call = (await place.ask(tools=TOOLS))[1]["output"]
    assert thought["content"][0]["text"] == "I think."
    assert preamble["content"][0]["text"] == "I look."
    assert (call["name"], call["arguments"]) == ("f", '{"a": "x"}')
    final = "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>"
    _, answer = (await Place(http, letters(final), model="gpt-oss-20b").ask())[1]["output"]
    assert answer["content"][0]["text"] == "So."


@pytest.mark.parametrize("stop", [[], ["lo"], ["zzz"]])
async def test_direct_and_tapped_streams_are_the_same_bytes(http, monkeypatch, settled, stop):
    # One token per batch: a tapped row writes an event for each batch, a direct one for each token.
    place = Place(http, [[text(" the")], [text("#"), end()]])
    bodies = []
    for plain in (True, False):
        monkeypatch.setattr("smg.pipeline.choice.Choice.plain", plain)
        bodies.append((await place.ask(stream=True, stop=stop))[1])
        folded(bodies[-1])
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("output", [SPOKEN, f"</think>{CALL}then</", f"<think>a</think>{CUSTOM}{CALL}"])
async def test_a_parser_that_waits_changes_no_byte(http, monkeypatch, settled, output):
    place, bodies, direct = Place(http, letters(output), model="qwen3"), [], []
    template = ResponsesStream.template

    def counting(*which):
        found = template(*which)
        direct.append(found is not None)
        return found

    for answer in (counting, lambda *_: None):
        monkeypatch.setattr(ResponsesStream, "template", answer)
        bodies.append(without_call_ids((await place.ask(stream=True, tools=TOOLS))[1]))
        folded(bodies[-1])
    assert bodies[0] == bodies[1]
    assert sum(direct) > 1


@pytest.mark.parametrize("family", ["qwen3-coder", "mistral-small-3.1", "llama-4", "glm-4.5", "deepseek-v3.1"])
async def test_arguments_of_other_forms_are_whole_in_the_end_too(http, monkeypatch, settled, family):
    said = {
        "qwen3-coder": "<tool_call>\n<function=f>\n<parameter=a>\nx\n\"y\"\n</parameter>\n</function>\n</tool_call>",
        "mistral-small-3.1": '[TOOL_CALLS] [{"name": "f", "arguments": {"a": "x\\n"}}]',
        "llama-4": '[f(a="x", b=1)]',
        "glm-4.5": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x \"y\"</arg_value>\n</tool_call>",
        "deepseek-v3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": \"x\"}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
    }[family]  # fmt: skip
    tool = TOOLS[0] | {"parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
    place = Place(http, letters(said), model=family)
    _, whole = await place.ask(tools=[tool])
    last = folded((await place.ask(tools=[tool], stream=True))[1])
    assert without_ids(last) == without_ids(whole)
    calls = [item for item in whole["output"] if item["type"] == "function_call"]
    assert [json.loads(call["arguments"])["a"].strip()[0] for call in calls] == ["x"]


class TestEnds:
    async def test_RS_03_a_limit(self, http):
        place = Place(http, [[text("a"), end(reason="length")]])
        _, body = await place.ask(stream=True)
        last = folded(body)
        assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert without_ids((await place.ask())[1]) == without_ids(last)

    @pytest.mark.parametrize("model", ["m", "qwen3"])
    async def test_RS_03_MS_10_a_worker_that_dies_in_mid_stream(self, http, model):
        place = Place(http, [[text("</think>Hello")], [text(" wor")], BROKEN], model=model)
        status, body = await place.ask(stream=True)
        last = folded(body)
        assert (status, last["status"], last["error"]["code"]) == (200, "failed", "server_error")
        assert last["output"][-1]["content"][0]["text"].endswith("Hello wor")
        assert place.world.metric(f"router_request_errors_total\0{model}\0responses\0worker_stream_failed") == 1
        assert place.world.metric("http_responses_total\0/v1/responses\x00200\0worker_stream_failed") == 1

    async def test_RS_03_no_worker_before_the_first_token(self, http):
        for stream in (False, True):
            failing = GatewayError("no_available_workers", "no worker is ready")
            status, body = await Place(http, failing).ask(stream=stream)
            assert (status, body["error"]["code"]) == (503, "no_available_workers")

    async def test_a_failure_after_a_sign_of_life_is_a_whole_stream(self, http):
        silent = Settings(routing=SETTINGS.routing, server=ServerSettings(sse_keepalive_secs=0.05))
        status, body = await Place(http, [0.2, BROKEN], silent).ask(stream=True)
        assert (status, folded(body)["status"]) == (200, "failed")
        assert body.startswith(b": keep-alive\n\n")

    async def test_a_client_that_leaves_stops_the_engine(self):
        place = world({"w1": [[[text("a")], FOREVER]]})
        async with serving(place.services) as url:
            reader, writer = await send(url, {"model": "m", "input": "hi", "stream": True}, PATH)
            await reader.readuntil(b'"delta":"a"')
            writer.close()
            await until(lambda: place.drivers.cancelled)
            await until(place.idle)


class TestOtherRoutes:
    async def test_the_length_of_a_prompt_is_that_of_the_request(self, http):
        place = Place(http, ANSWER)
        fields = {"instructions": "be brief", "input": [{"role": "user", "content": "hello there"}]}
        status, counted = await place.ask(f"{PATH}/input_tokens", **fields)
        assert place.world.drivers.opened == []
        _, whole = await place.ask(**fields)
        assert (status, counted["object"]) == (200, "response.input_tokens")
        assert counted["input_tokens"] == whole["usage"]["input_tokens"] > 2

    async def test_counting_takes_no_place_of_a_request(self, http):
        place = Place(http, ANSWER, limited(1))
        held = await place.world.services.admission.acquire(RequestContext("other"))
        async with serving(place.world.services) as url:
            body = {"model": "m", "input": "hi"}
            async with http.post(f"{url}{PATH}/input_tokens", json=body) as response:
                assert response.status == 200
        held.release()

    @pytest.mark.parametrize(
        ("fields", "status", "code"),
        [
            ({"input": ""}, 400, "invalid_value"),
            ({"model": "nope"}, 404, "model_not_found"),
            ({"previous_response_id": "resp_1"}, 400, "previous_response_not_found"),
        ],
    )
    async def test_what_cannot_be_counted(self, http, fields, status, code):
        found, body = await Place(http, ANSWER).ask(f"{PATH}/input_tokens", **fields)
        assert (found, body["error"]["code"]) == (status, code)

    @pytest.mark.parametrize(
        ("method", "path"),
        [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")],
    )
    async def test_no_response_is_kept(self, http, method, path):
        status, body = await Place(http, ANSWER).ask(f"{PATH}/resp_1{path}", method)
        assert (status, body["error"]["code"], body["error"]["type"]) == (404, "not_found", "not_found_error")
        assert "resp_1" in body["error"]["message"]

    async def test_a_path_below_that_there_is_not(self, http):
        status, body = await Place(http, ANSWER).ask(f"{PATH}/resp_1/poem")
        assert (status, body["error"]["code"]) == (404, "not_found")


class TestErrors:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("fields", "status", "code", "param"),
        [
            ({"input": [{"role": "user", "content": [{"type": "x"}]}]}, *WRONG, "input[0].content[0].type"),
            ({"max_output_tokens": 99999}, 400, "context_length_exceeded", "max_output_tokens"),
            ({"model": "nope"}, 404, "model_not_found", "model"),
            ({"tools": [{"type": "web_search"}]}, 400, "unsupported_tool", "tools[0].type"),
            ({"store": "yes"}, *WRONG, "store"),
        ],
    )
    async def test_before_the_first_byte_they_are_openai_s(self, http, stream, fields, status, code, param):
        found, body = await Place(http, ANSWER).ask(stream=stream, **fields)
        assert (found, body["error"]["code"], body["error"]["param"]) == (status, code, param)

    async def test_an_image_is_told_with_its_place_among_the_items(self, http):
        items = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yes?"},
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
        ]
        status, body = await Place(http, ANSWER).ask(instructions="i", input=items)
        assert (status, body["error"]["param"]) == (400, "input[2].content[0]")


async def test_requests_are_counted_under_a_label_of_their_own(http):
    place = Place(http, ANSWER)
    await place.ask()
    assert place.world.services.seen[0].request_id.startswith("resp_")
    assert place.world.metric("router_requests_total\0m\0responses") == 1
