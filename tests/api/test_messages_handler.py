"""Messages over HTTP: a real Sanic server, real pipeline and parsers, scripted engines."""

import json

import aiohttp
import pytest

from smg.api.anthropic_messages.encode import MessageStream
from smg.config.settings import AdmissionSettings, ModelSettings, SecuritySettings, ServerSettings, Settings
from smg.core.errors import GatewayError
from smg.engine_server.mock import Script
from smg.engine_server.mock import tokenizer as mock
from tests.api.conftest import say
from tests.api.messages_stream import blocks, comparable, events_of, folded
from tests.api.serving import frames, serving
from tests.pipeline.fakes import SETTINGS, end, text, world

PATH = "/v1/messages"
TOOLS = [
    {"name": name, "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
    for name in ("ping", "get_weather")
]
CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
BROKEN = GatewayError("worker_stream_failed", "the stream broke", worker_fault=True)
THINK = {"type": "adaptive"}


@pytest.fixture
async def http():
    # Of answers to one request the bytes can be compared.
    async with aiohttp.ClientSession(headers={"x-request-id": "r"}) as session:
        yield session


class Place:
    """A gateway in front of a scripted engine."""

    def __init__(self, http, script, settings=SETTINGS, model="m", **record):
        self.model = model
        self.world = world({"w1": [script]}, settings, model, **{"context_length": 4000} | record)
        self._http = http

    async def ask(self, path=PATH, method="POST", data=None, headers=None, **fields):
        """One request; returns the response and its body, decoded when it is JSON."""
        body = {"model": self.model, "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]} | fields
        data = None if method == "GET" else data or json.dumps(body)
        async with (
            serving(self.world.services) as url,
            self._http.request(method, url + path, data=data, headers=headers) as response,
        ):
            answer = await response.read()
        assert self.world.idle()
        return response, json.loads(answer) if response.content_type == "application/json" else answer

    async def both(self, **fields):
        """What the streamed and the buffered answer have in common, which must be everything."""
        response, whole = await self.ask(**fields)
        assert response.status == 200, whole
        response, streamed = await self.ask(stream=True, **fields)
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert comparable(folded(streamed)) == comparable(whole)
        return whole


def cut(said: str, size: int) -> list:
    """Batches of ``size`` tokens, and the end."""
    ids = mock.encode_text(said)
    pieces = [mock.decode_ids(ids[at : at + size]) for at in range(0, len(ids), size)]
    return [*([text(piece)] for piece in pieces), [end()]]


def kinds(message) -> list[str]:
    return [block["type"] for block in message["content"]]


class TestAnswers:
    async def test_a_plain_answer(self, http):
        place = Place(http, [[text("hello", cached_tokens=2)], [text(" world", cached_tokens=2), end()]])
        whole = await place.both()
        assert whole["content"] == [{"type": "text", "text": "hello world"}]
        assert (whole["id"], whole["model"], whole["stop_reason"]) == ("msg_r", "m", "end_turn")
        counted = whole["usage"]
        assert (counted["cache_read_input_tokens"], counted["output_tokens"]) == (2, 6)
        prompt = len(place.world.drivers.opened[0][1].ids)
        assert counted["input_tokens"] + counted["cache_read_input_tokens"] == prompt
        assert place.world.services.seen[0].endpoint == "messages"
        assert place.world.metric("router_requests_total\0m\0messages") == 2

    @pytest.mark.parametrize("stream", [False, True])
    async def test_every_answer_names_its_request(self, http, stream):
        response, _ = await Place(http, cut("hello", 9)).ask(stream=stream)
        assert response.headers["request-id"] == response.headers["x-request-id"] == "r"

    @pytest.mark.parametrize("size", [1, 2, 3, 1000])
    async def test_SPLIT_thinking_text_calls_and_text_however_they_come(self, http, size):
        said = "<think>Hm, a < b.</think>I look." + CALL % ("ping", "{}") + CALL % ("get_weather", '{"city": "Oslo"}')
        place = Place(http, cut(said + "Done.", size), model="qwen3")
        for thinking, expected in (
            (THINK, ["thinking", "text", "tool_use", "tool_use", "text"]),
            (THINK | {"display": "omitted"}, ["thinking", "text", "tool_use", "tool_use", "text"]),
            (None, ["text", "tool_use", "tool_use", "text"]),
        ):
            whole = await place.both(tools=TOOLS, thinking=thinking)
            assert kinds(whole) == expected
            assert [block["input"] for block in whole["content"] if "input" in block] == [{}, {"city": "Oslo"}]
            assert whole["stop_reason"] == "tool_use"
            thought = [block["thinking"] for block in whole["content"] if block["type"] == "thinking"]
            assert thought == [] if thinking is None else ["" if "display" in thinking else "Hm, a < b."]

    async def test_a_stop_sequence_is_told(self, http):
        whole = await Place(http, cut("one two END three", 2)).both(stop_sequences=["END"])
        assert (whole["content"][0]["text"], whole["stop_reason"]) == ("one two ", "stop_sequence")
        assert whole["stop_sequence"] == "END"

    async def test_a_limit_is_told(self, http):
        whole = await Place(http, [[text("hello"), end(reason="length")]]).both()
        assert (whole["stop_reason"], whole["stop_sequence"]) == ("max_tokens", None)

    @pytest.mark.parametrize("model", ["m", "qwen3"])
    async def test_an_answer_that_says_nothing(self, http, model):
        whole = await Place(http, [[end()]], model=model).both()
        assert whole["content"] == [{"type": "text", "text": ""}]

    async def test_only_one_call_where_parallel_ones_are_not_wanted(self, http):
        place = Place(http, cut(CALL % ("ping", "{}") + CALL % ("ping", "{}"), 5), model="qwen3")
        choice = {"type": "auto", "disable_parallel_tool_use": True}
        assert kinds(await place.both(tools=TOOLS, tool_choice=choice)) == ["tool_use"]

    async def test_an_answer_that_is_begun_is_gone_on_with(self, http):
        place = Place(http, cut("B)", 1))
        begun = [{"role": "user", "content": "A or B?"}, {"role": "assistant", "content": "It is ("}]
        assert (await place.both(messages=begun))["content"] == [{"type": "text", "text": "B)"}]
        prompt = mock.decode_ids(place.world.drivers.opened[0][1].ids)
        assert prompt.endswith("<|im_start|>assistant\nIt is (")

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_stream_without_text_for_the_direct_path_has_the_same_bytes(self, http, monkeypatch, stream):
        place = Place(http, [[text(" the")], [text("#"), end()]])
        bodies = []
        for plain in (True, False):
            monkeypatch.setattr("smg.pipeline.choice.Choice.plain", plain)
            bodies.append((await place.ask(stream=stream))[1])
        assert bodies[0] == bodies[1]


class TestFieldCases:
    """The cases of parsing as Messages clients see them."""

    @pytest.mark.parametrize("size", [1, 1000])
    async def test_RP_03_thinking_is_disabled_and_both_calls_are_calls(self, http, size):
        said = CALL % ("ping", "{}") + "\n" + CALL % ("get_weather", '{"city": "Oslo"}')
        place = Place(http, cut(said, size), model="qwen3")
        whole = await place.both(thinking={"type": "disabled"}, tools=TOOLS)
        calls = [(block["name"], block["input"]) for block in whole["content"] if block["type"] == "tool_use"]
        assert calls == [("ping", {}), ("get_weather", {"city": "Oslo"})]
        assert "thinking" not in kinds(whole)
        assert whole["stop_reason"] == "tool_use"

    async def test_RP_05_the_border_of_thinking_inside_one_delta(self, http):
        script = [[text("<think>A final")], [text(" thought.</think>Answer starts.")], [end()]]
        place = Place(http, script, model="deepseek-r1")
        whole = await place.both(thinking=THINK)
        thought, said = whole["content"]
        assert (thought["thinking"], said["text"]) == ("A final thought.", "Answer starts.")
        events = [data for _, data in events_of((await place.ask(stream=True, thinking=THINK))[1])]
        first = next(event["delta"] for event in events if event.get("delta", {}).get("type") == "text_delta")
        assert "Answer starts.".startswith(first["text"])
        assert whole["stop_reason"] == "end_turn"

    async def test_FIX_a_model_that_thinks_unasked_is_parsed_all_the_same(self, http):
        place = Place(http, cut("<think>hm</think>Hi.", 2), model="qwen3")
        whole = await place.both()
        assert whole["content"] == [{"type": "text", "text": "Hi."}]
        assert whole["usage"]["output_tokens_details"]["thinking_tokens"] > 0

    @pytest.mark.parametrize("size", [1, 1000])
    async def test_FIX_gpt_oss_thinks_says_what_it_does_and_calls(self, http, size):
        said = (
            "<|channel|>analysis<|message|>The weather?<|end|><|start|>assistant"
            "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant"
            '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'
        )
        place = Place(http, cut(said, size), model="gpt-oss-20b")
        whole = await place.both(thinking=THINK, tools=TOOLS)
        thought, text, call = whole["content"]
        assert (thought["thinking"], text["text"]) == ("The weather?", "I look it up.")
        assert (call["name"], call["input"], whole["stop_reason"]) == ("get_weather", {"city": "Oslo"}, "tool_use")
        assert kinds(await place.both(tools=TOOLS)) == ["text", "tool_use"]

    async def test_OA_05_a_limit_inside_a_call(self, http):
        said = '<tool_call>\n{"name": "ping", "arguments": {"path": "a.txt", "text": "hel'
        place = Place(http, [*cut(said, 3)[:-1], [end(reason="length")]], model="qwen3")
        whole = await place.both(tools=TOOLS)
        assert whole["stop_reason"] == "max_tokens"
        assert whole["content"][0]["input"] == {"INVALID_JSON": '{"path": "a.txt", "text": "hel'}

    @pytest.mark.parametrize("stream", ["", ',"stream":true'])
    async def test_OA_07_half_an_emoji_is_the_clients_fault(self, http, stream):
        body = '{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x \\ud83d"}]' + stream + "}"
        response, answer = await Place(http, cut("x", 1)).ask(data=body)
        assert (response.status, answer["error"]["type"]) == (400, "invalid_request_error")
        assert answer["error"]["message"].startswith("messages.0.content: ")

    async def test_MS_06_a_hash_in_the_first_system_block_changes_no_token(self, http):
        place = Place(http, cut("hi", 1))
        for hashed in ("aaaa1", "bbbb2"):
            line = f"x-anthropic-billing-header: cc_version=2.1.0; cch={hashed};"
            await place.ask(system=[{"type": "text", "text": line}, {"type": "text", "text": "You are helpful."}])
        first, second = (list(request.ids) for _, request in place.world.drivers.opened)
        assert first == second
        assert "billing" not in mock.decode_ids(first)
        assert "You are helpful." in mock.decode_ids(first)

    async def test_MS_09_a_context_that_is_too_short(self, http):
        _, both = await Place(http, cut("hi", 1), context_length=100).ask()
        assert both["error"]["message"].startswith("input length and `max_tokens` exceed context limit: ")
        _, alone = await Place(http, cut("hi", 1), context_length=20).ask()
        assert alone["error"]["message"].startswith("prompt is too long: ")
        assert both["error"]["type"] == alone["error"]["type"] == "invalid_request_error"

    async def test_MS_10_a_stream_that_breaks_ends_in_an_error(self, http):
        place = Place(http, [[text("Hello wor")], BROKEN])
        response, body = await place.ask(stream=True)
        assert response.status == 200
        *events, (name, last) = frames(body)
        assert (name, last["error"]["type"], last["request_id"]) == ("error", "api_error", "r")
        assert "message_stop" not in [name for name, _ in events]
        said = "".join(data["delta"]["text"] for name, data in events if name == "content_block_delta")
        assert said == "Hello wor"
        assert place.world.services.seen[0].notes["error"] == "worker_stream_failed"

    async def test_MS_10_a_buffered_answer_that_breaks_is_an_error(self, http):
        response, body = await Place(http, [[text("Hello wor")], BROKEN]).ask()
        assert (response.status, body["error"]["type"]) == (502, "api_error")

    async def test_RL_06_pings_keep_a_silent_stream_open(self, http):
        silent = Settings(routing=SETTINGS.routing, server=ServerSettings(sse_keepalive_secs=0.05))
        place = Place(http, [0.2, [text("a")], 0.2, [text("b"), end()]], silent)
        _, body = await place.ask(stream=True)
        names = [name for name, _ in events_of(body)]
        assert names[0] == "ping"
        first, second = (index for index, name in enumerate(names) if name == "content_block_delta")
        assert "ping" in names[first:second]
        assert folded(body)["content"] == [{"type": "text", "text": "ab"}]


class TestThinkingThatComesBack:
    def replayed(self, block) -> list:
        calls = [{"type": "tool_use", "id": "toolu_1", "name": "ping", "input": {}}]
        results = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "pong"}]
        return [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [block, *calls]},
            {"role": "user", "content": results},
        ]

    @pytest.fixture
    def place(self, http, monkeypatch):
        place = Place(http, cut("<think>The secret is 7.</think>Hi.", 3), model="qwen3")
        # Shows the reasoning of earlier turns, as Qwen's own does.
        chat = place.world.texts.get(None).chat
        seen = []

        def looked(tools):
            found = chat(tools)
            return Looking(found, seen)

        monkeypatch.setattr(place.world.texts.get(None), "chat", looked)
        place.rendered = seen
        return place

    async def test_what_we_signed_is_shown_to_the_model_and_nothing_else(self, place):
        (block, _) = (await place.both(thinking=THINK))["content"]
        for replayed, expected in (
            (block, "The secret is 7."),
            (block | {"thinking": "The secret is 8."}, ""),
            (block | {"signature": "EqQBCkgIARABGAIiQ"}, ""),
            ({"type": "thinking", "thinking": "unsigned"}, ""),
            (block | {"thinking": ""}, ""),
        ):
            response, _ = await place.ask(messages=self.replayed(replayed), tools=TOOLS)
            assert response.status == 200
            assert place.rendered[-1] == expected


class Looking:
    """A chat template that notes the reasoning of the second turn."""

    def __init__(self, chat, seen) -> None:
        self._chat = chat
        self._seen = seen
        self.shows_tools = True

    def render(self, request):
        from smg.text.messages import reasoning_text

        self._seen.append(reasoning_text(request.messages[1]) if len(request.messages) > 1 else "")
        return self._chat.render(request)


LOCKED = Settings(security=SecuritySettings(api_key=("key",)))
SMALL = Settings(server=ServerSettings(max_payload_size=64))


class TestErrors:
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("settings", "method", "path", "fields", "status", "kind"),
        [
            (SETTINGS, "POST", PATH, {"messages": []}, 400, "invalid_request_error"),
            (SETTINGS, "POST", PATH, {"mcp_servers": [{"name": "s"}]}, 400, "invalid_request_error"),
            (LOCKED, "POST", PATH, {}, 401, "authentication_error"),
            (LOCKED, "POST", f"{PATH}/count_tokens", {}, 401, "authentication_error"),
            (SETTINGS, "POST", PATH, {"model": "nope"}, 404, "not_found_error"),
            (SETTINGS, "POST", f"{PATH}/count_tokens", {"model": "nope"}, 404, "not_found_error"),
            (SETTINGS, "POST", f"{PATH}/batches", {}, 404, "not_found_error"),
            (SETTINGS, "GET", PATH, {}, 405, "invalid_request_error"),
            (SMALL, "POST", PATH, {}, 413, "request_too_large"),
        ],
    )
    async def test_they_have_anthropics_shape_wherever_they_come_from(
        self, http, settings, method, path, fields, status, kind, stream
    ):
        response, body = await Place(http, cut("hi", 1), settings).ask(path, method, stream=stream, **fields)
        assert response.status == status
        assert set(body) == {"type", "error", "request_id"}
        assert (body["type"], body["error"]["type"], body["request_id"]) == ("error", kind, "r")
        assert response.headers["request-id"] == "r"
        assert response.headers["x-smg-error-code"]

    @pytest.mark.parametrize("stream", [False, True])
    async def test_no_room_is_a_529_that_says_when_to_come_back(self, http, stream):
        place = Place(http, cut("hi", 1))
        place.world.fleet.set("w1", "not_ready")
        response, body = await place.ask(stream=stream)
        assert (response.status, body["error"]["type"]) == (529, "overloaded_error")
        assert response.headers["retry-after"] == "1"
        assert response.headers["x-smg-error-code"] == "no_available_workers"

    async def test_a_full_queue_is_a_429_that_says_when_to_come_back(self, http, monkeypatch):
        def full(*_):
            raise GatewayError("queue_full", "too many requests wait")

        monkeypatch.setattr("smg.routing.admission.Admission.at_once", full)
        response, body = await Place(http, cut("hi", 1)).ask()
        assert (response.status, body["error"]["type"]) == (429, "rate_limit_error")
        assert response.headers["retry-after"] == "1"

    async def test_our_own_mistakes_tell_the_client_nothing(self, http, monkeypatch):
        monkeypatch.setattr("smg.pipeline.preparing.share_out", lambda *_: {}["secret"])
        response, body = await Place(http, cut("hi", 1)).ask()
        assert (response.status, body["error"]["type"]) == (500, "api_error")
        assert "secret" not in str(body)


PROMPT = {
    "system": "S.",
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"a": {}}}}],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "o"}]},
    ],
}


class TestCounting:
    async def test_MS_07_it_is_what_the_answer_counts_as_input(self, http):
        place = Place(http, cut("k", 1))
        response, counted = await place.ask(f"{PATH}/count_tokens?beta=true", **PROMPT)
        assert response.status == 200
        assert place.world.drivers.opened == []
        _, whole = await place.ask(**PROMPT)
        assert counted == {"input_tokens": whole["usage"]["input_tokens"]}
        _, bare = await place.ask(f"{PATH}/count_tokens", messages=PROMPT["messages"])
        assert counted["input_tokens"] > bare["input_tokens"]

    async def test_MS_07_nobody_is_admitted_for_it(self, http, monkeypatch):
        monkeypatch.setattr("smg.routing.admission.Admission.at_once", lambda *_: pytest.fail("a slot was taken"))
        full = Settings(routing=SETTINGS.routing, admission=AdmissionSettings(1, 0))
        place = Place(http, cut("k", 1), full)
        place.world.fleet.set("w1", "not_ready")
        response, _ = await place.ask(f"{PATH}/count_tokens")
        assert response.status == 200

    async def test_a_prompt_that_is_too_long_is_counted_too(self, http):
        place = Place(http, cut("k", 1), context_length=10)
        response, counted = await place.ask(f"{PATH}/count_tokens", messages=[{"role": "user", "content": "x" * 3000}])
        assert response.status == 200
        assert counted["input_tokens"] > 3000

    async def test_what_is_wrong_is_told_as_for_an_answer(self, http):
        response, body = await Place(http, cut("k", 1)).ask(f"{PATH}/count_tokens", messages=[])
        assert (response.status, body["error"]["message"].partition(":")[0]) == (400, "messages")


@pytest.fixture(params=["grpcio", "native"])
def engine_transport(request):
    return request.param


@pytest.fixture
def model_settings():
    return ModelSettings(reasoning_parser="qwen3", tool_call_parser="qwen")


@pytest.mark.parametrize("thinking", [None, {"type": "adaptive"}, {"type": "adaptive", "display": "omitted"}])
async def test_a_parser_that_waits_changes_no_byte_on_either_transport(
    url, engines, http, monkeypatch, thinking, gateway, tmp_path
):
    """What goes past the parser, natively or not, has the bytes of what Python encodes event by event."""
    said = "<think>Let me <b>see</b>.</think>So <i>it</i> is." + CALL % ("get_weather", '{"city": "Oslo"}')
    say(engines, Script(tokens=mock.encode_text(said, "byte")))
    monkeypatch.setattr("smg.api.anthropic_messages.calls.random_id", lambda: "0" * 24)
    body = {"model": "mock", "max_tokens": 500, "stream": True, "tools": TOOLS, "thinking": thinking}
    bodies, direct, template = [], [], MessageStream.template

    def counting(self, choice, kind="text", call=0):
        found = template(self, choice, kind, call)
        direct.append((kind, found is not None))
        return found

    for answer in (counting, lambda *_: None):
        monkeypatch.setattr(MessageStream, "template", answer)
        async with http.post(url + PATH, json=body | {"messages": [{"role": "user", "content": "hi"}]}) as response:
            assert response.status == 200
            bodies.append(await response.read())
    assert bodies[0] == bodies[1]
    assert {(kind, True) for kind in ("text", "reasoning", "arguments")} <= set(direct)
    events = [data for _, data in events_of(bodies[0])]
    found = [block["type"] for block in blocks([event for event in events if "block" in event["type"]])]
    assert found == (["text", "tool_use"] if thinking is None else ["thinking", "text", "tool_use"])
