"""The bytes of chat answers: streamed chunk by chunk, and buffered."""

import json

import msgspec
import pytest

from smg._native import sse
from smg.api.dialect import Meta
from smg.api.openai_chat import OpenAIChat
from smg.api.openai_chat.decode import ChatOptions
from smg.api.sampling import UsageOptions
from smg.core.batch import TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import (
    Annotation,
    Finish,
    ReasoningDelta,
    Refusal,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from smg.core.request import GenerationRequest, Logprobs
from smg.pipeline.accumulator import Accumulator

DIALECT = OpenAIChat()
CTX = RequestContext("chatcmpl-1", endpoint="chat")
HEAD = '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":9,"model":"m","choices":['


class Bytes:
    """A vocabulary of single bytes."""

    size = 256

    def token_bytes(self, token: int) -> bytes:
        return bytes([token])

    def is_special(self, token: int) -> bool:
        return False


def meta(n=1, logprobs=None, include_usage=False, continuous_usage=False, stream_reasoning=True) -> Meta:
    options = ChatOptions(UsageOptions(include_usage, continuous_usage), stream_reasoning)
    request = GenerationRequest("openai_chat", "m", n=n, logprobs=logprobs, options=options)
    return Meta(request, "m", 9, Bytes())


def stream(events, **fields) -> bytes:
    encoder = DIALECT.encoder(CTX, meta(**fields))
    return encoder.preamble(direct=False) + encoder.events(events) + encoder.closing()


def chunks(body: bytes) -> list[dict]:
    frames = body.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def buffered(events, n=1, **fields) -> dict:
    accumulator = Accumulator(n)
    accumulator.feed(events)
    answer = DIALECT.answer(CTX, meta(n=n, **fields), accumulator.finish())
    return json.loads(msgspec.json.encode(answer))


def line(index_and_delta: str, finish: str = "null", tail: str = "") -> str:
    return f'data: {HEAD}{{{index_and_delta},"logprobs":null,"finish_reason":{finish}}}]{tail}}}\n\n'


def test_golden_stream():
    body = stream([TextDelta(0, 'a"\n'), TextDelta(0, "é"), Usage(3, 2), Finish(0, "stop"), Usage(3, 2)])
    assert body.decode() == (
        line('"index":0,"delta":{"role":"assistant","content":""}')
        + line('"index":0,"delta":{"content":"a\\"\\n"}')
        + line('"index":0,"delta":{"content":"é"}')
        + line('"index":0,"delta":{}', '"stop"')
        + "data: [DONE]\n\n"
    )


def test_golden_stream_with_usage():
    body = stream([TextDelta(0, "a"), Finish(0, "length"), Usage(3, 2, cached_tokens=1)], include_usage=True)
    null = ',"usage":null'
    assert body.decode() == (
        line('"index":0,"delta":{"role":"assistant","content":""}', tail=null)
        + line('"index":0,"delta":{"content":"a"}', tail=null)
        + line('"index":0,"delta":{}', '"length"', null)
        + f'data: {HEAD}],"usage":{{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,'
        '"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"reasoning_tokens":0}}}\n\n'
        "data: [DONE]\n\n"
    )


def test_golden_answer():
    events = [TextDelta(0, "hello"), Finish(0, "stop", "\n"), Usage(3, 2)]
    assert buffered(events) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 9,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello"},
                "logprobs": None,
                "finish_reason": "stop",
                "matched_stop": "\n",
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "total_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


@pytest.mark.parametrize("options", [{}, {"include_usage": True}])
@pytest.mark.parametrize("text", ["plain", 'quote " backslash \\ \n\t\x01', "日本語 😀 \u2028"])
def test_the_direct_path_has_the_same_bytes_as_the_events_path(options, text):
    encoder = DIALECT.encoder(CTX, meta(n=2, **options))
    for choice in range(2):
        template = encoder.template(choice)
        filled = sse.fill(template.pieces, template.holes, text, encoder.counter.value)
        assert filled == encoder.events([TextDelta(choice, text)])
        assert json.loads(filled[6:])["choices"][0] == {
            "index": choice,
            "delta": {"content": text},
            "logprobs": None,
            "finish_reason": None,
        }


def test_OA_01_every_chunk_has_finish_reason_and_each_choice_ends_once():
    events = [TextDelta(0, "a"), TextDelta(1, "b"), Finish(1, "stop"), TextDelta(0, "c"), Finish(0, "length"), Usage()]
    out = [chunk["choices"][0] for chunk in chunks(stream(events, n=2))]
    assert all("finish_reason" in choice for choice in out)
    ended = [(choice["index"], choice["finish_reason"]) for choice in out if choice["finish_reason"] is not None]
    assert ended == [(1, "stop"), (0, "length")]


def test_a_choice_without_text_still_has_its_role_chunk():
    (role, finish) = chunks(stream([Finish(0, "stop"), Usage()]))
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert finish["choices"][0]["delta"] == {}


class TestUsage:
    EVENTS = (TextDelta(0, "a"), Usage(7, 1), TextDelta(1, "b"), Usage(7, 2), Finish(0, "stop"), Finish(1, "stop"))

    def test_OA_03_no_usage_unless_asked_for(self):
        for chunk in chunks(stream([*self.EVENTS, Usage(7, 5)], n=2)):
            assert "usage" not in chunk
            assert chunk["choices"]

    def test_OA_03_one_extra_chunk_with_empty_choices(self):
        *ordinary, last = chunks(stream([*self.EVENTS, Usage(7, 5)], n=2, include_usage=True))
        assert all(chunk["usage"] is None and chunk["choices"] for chunk in ordinary)
        assert last["choices"] == []
        assert last["usage"]["total_tokens"] == 12

    def test_OA_04_running_usage_in_each_chunk(self):
        encoder = DIALECT.encoder(CTX, meta(n=2, include_usage=True, continuous_usage=True))
        assert encoder.template(0) is None
        body = encoder.preamble(direct=False)
        body += encoder.events([TextDelta(0, "a"), TextDelta(1, "b"), Usage(7, 2)])
        body += encoder.events([TextDelta(0, "c"), Finish(0, "stop"), Finish(1, "stop"), Usage(7, 5)])
        body += encoder.closing()
        counts = [(c["usage"]["prompt_tokens"], c["usage"]["completion_tokens"]) for c in chunks(body)]
        assert counts == [(0, 0), (0, 0), (7, 2), (7, 2), (7, 5), (7, 5), (7, 5), (7, 5)]

    def test_speculative_tokens_are_reported_when_there_are_any(self):
        usage = buffered([Finish(0, "stop"), Usage(3, 2, spec_accepted_tokens=4, spec_draft_tokens=6)])["usage"]
        details = usage["completion_tokens_details"]
        assert (details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]) == (4, 2)


class TestLogprobs:
    ROW = TokenLogprobs(0xC3, -0.5, ((0xC3, -0.5), (97, -1.5)))

    def test_bytes_are_exact_also_for_half_a_character(self):
        events = [TextDelta(0, "", (self.ROW,)), TextDelta(0, "é", (TokenLogprobs(0xA9, -0.25),)), Finish(0, "stop")]
        content = buffered(events, logprobs=Logprobs(2))["choices"][0]["logprobs"]["content"]
        assert content == [
            {
                "token": "\ufffd",
                "logprob": -0.5,
                "bytes": [0xC3],
                "top_logprobs": [
                    {"token": "\ufffd", "logprob": -0.5, "bytes": [0xC3]},
                    {"token": "a", "logprob": -1.5, "bytes": [97]},
                ],
            },
            {"token": "\ufffd", "logprob": -0.25, "bytes": [0xA9], "top_logprobs": []},
        ]
        streamed = chunks(stream([*events, Usage()], logprobs=Logprobs(2)))
        rows = [chunk["choices"][0]["logprobs"] for chunk in streamed]
        assert [row for item in rows if item for row in item["content"]] == content

    def test_OA_06_reasoning_and_calls_carry_theirs(self):
        row = (TokenLogprobs(97, -1.0),)
        events = [
            ReasoningDelta(0, "r", logprobs=row),
            ToolCallStart(0, 0, "c1", "f", logprobs=row),
            ToolCallDelta(0, 0, "{}", logprobs=row),
            Finish(0, "tool_calls"),
        ]
        streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks(stream(events, logprobs=Logprobs(0)))]
        assert sum(len(item["content"]) for item in streamed if item) == 3
        assert len(buffered(events, logprobs=Logprobs(0))["choices"][0]["logprobs"]["content"]) == 3

    def test_an_id_outside_the_vocabulary_and_a_missing_value(self):
        rows = (TokenLogprobs(999, None),)
        answer = buffered([TextDelta(0, "x", rows), Finish(0, "stop")], logprobs=Logprobs(0))
        (entry,) = answer["choices"][0]["logprobs"]["content"]
        assert (entry["token"], entry["logprob"]) == ("<token_999>", -9999.0)


class TestReasoningAndCalls:
    EVENTS = (
        ReasoningDelta(0, "hm"),
        TextDelta(0, "calling"),
        ToolCallStart(0, 0, "c1", "f"),
        ToolCallDelta(0, 0, '{"a":'),
        ToolCallDelta(0, 0, "1}"),
        ToolCallEnd(0, 0),
        ToolCallStart(0, 1, "c2", "sh", kind="custom"),
        ToolCallDelta(0, 1, 'ls "x"'),
        ToolCallEnd(0, 1),
        Finish(0, "tool_calls"),
        Usage(),
    )

    def test_streamed(self):
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks(stream(list(self.EVENTS)))]
        assert deltas[1:-1] == [
            {"reasoning_content": "hm"},
            {"content": "calling"},
            {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
            {"tool_calls": [{"index": 1, "id": "c2", "type": "custom", "custom": {"name": "sh", "input": ""}}]},
            {"tool_calls": [{"index": 1, "custom": {"input": 'ls "x"'}}]},
        ]

    def test_buffered(self):
        assert buffered(self.EVENTS)["choices"][0]["message"] == {
            "role": "assistant",
            "content": "calling",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "custom", "custom": {"name": "sh", "input": 'ls "x"'}},
            ],
        }

    def test_content_is_null_only_next_to_calls_or_a_refusal(self):
        calls = [event for event in self.EVENTS if not isinstance(event, TextDelta | ReasoningDelta)]
        assert buffered(calls)["choices"][0]["message"]["content"] is None
        refusal = buffered([Refusal(0, "no"), Finish(0, "stop")])["choices"][0]["message"]
        assert refusal == {"role": "assistant", "content": None, "refusal": "no"}
        assert buffered([Finish(0, "stop")])["choices"][0]["message"] == {"role": "assistant", "content": ""}

    def test_annotations(self):
        events = [TextDelta(0, "x"), Annotation(0, {"type": "url_citation"}), Refusal(0, "r"), Finish(0, "stop")]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks(stream([*events, Usage()]))]
        assert deltas[2:4] == [{"annotations": [{"type": "url_citation"}]}, {"refusal": "r"}]
        assert buffered(events)["choices"][0]["message"]["annotations"] == [{"type": "url_citation"}]


def test_matched_stop_is_told_with_the_finish():
    finish = chunks(stream([Finish(0, "stop", 42), Usage()]))[-1]["choices"][0]
    assert (finish["finish_reason"], finish["matched_stop"]) == ("stop", 42)


def test_MS_10_a_failure_is_an_error_object_of_our_own():
    encoder = DIALECT.encoder(CTX, meta())
    frame = encoder.failure(GatewayError("worker_stream_failed", "the engine's stream broke", detail="10.0.0.1"))
    assert json.loads(frame.removeprefix(b"data: ")) == {
        "error": {
            "message": "the engine's stream broke",
            "type": "server_error",
            "param": None,
            "code": "worker_stream_failed",
        }
    }


def test_RL_06_a_keep_alive_is_a_comment():
    assert DIALECT.encoder(CTX, meta()).keepalive() == b": ping\n\n"


def test_a_client_s_own_request_id_gets_the_prefix():
    encoder = DIALECT.encoder(RequestContext("mine"), meta())
    assert json.loads(encoder.preamble(direct=False)[6:])["id"] == "chatcmpl-mine"


class TestTemplates:
    """What goes direct has the bytes that the events would have had."""

    CALL = ToolCallStart(1, 2, "call_1", "f")

    def direct(self, encoder, text, *which) -> bytes:
        template = encoder.template(*which)
        return sse.fill(template.pieces, template.holes, text, 0)

    @pytest.mark.parametrize("include_usage", [False, True])
    @pytest.mark.parametrize(
        ("event", "kind", "call"),
        [
            (TextDelta(1, 'a"\n'), "text", 0),
            (ReasoningDelta(1, 'a"\n'), "reasoning", 0),
            (ToolCallDelta(1, 2, '{"a": "\\n'), "arguments", 2),
        ],
    )
    def test_of_each_kind(self, event, kind, call, include_usage):
        encoder = DIALECT.encoder(CTX, meta(n=2, include_usage=include_usage))
        encoder.events([self.CALL])
        text = event.arguments if kind == "arguments" else event.text
        assert self.direct(encoder, text, 1, kind, call) == encoder.events([event])

    def test_of_a_custom_tool(self):
        encoder = DIALECT.encoder(CTX, meta(n=2))
        encoder.events([msgspec.structs.replace(self.CALL, kind="custom")])
        assert self.direct(encoder, "ls", 1, "arguments", 2) == encoder.events([ToolCallDelta(1, 2, "ls")])

    def test_running_usage_needs_python(self):
        encoder = DIALECT.encoder(CTX, meta(include_usage=True, continuous_usage=True))
        assert [encoder.template(0, kind) for kind in ("text", "reasoning", "arguments")] == [None, None, None]

    def test_reasoning_that_is_sent_in_one_piece_is_written_by_nobody_and_comes_before_what_follows(self):
        encoder = DIALECT.encoder(CTX, meta(stream_reasoning=False))
        for _ in range(2):
            assert self.direct(encoder, "so", 0, "reasoning") == b""
            encoder.written(0, "reasoning", 0, "so ")
            encoder.events([ReasoningDelta(0, "it is")])
            assert encoder.template(0) is None, "the text would come before it"
            whole = encoder.events([TextDelta(0, "a")])
            plain = DIALECT.encoder(CTX, meta())
            assert whole == plain.events([ReasoningDelta(0, "so it is"), TextDelta(0, "a")])
            assert encoder.template(0) is not None

    def test_reasoning_that_was_held_when_the_stream_broke_comes_before_the_error(self):
        encoder, plain = (DIALECT.encoder(CTX, meta(stream_reasoning=whole)) for whole in (False, True))
        encoder.written(0, "reasoning", 0, "so")
        error = GatewayError("worker_stream_failed", "broken")
        assert encoder.failure(error) == plain.events([ReasoningDelta(0, "so")]) + plain.failure(error)

    def test_running_usage_counts_reasoning_in_one_piece_as_well(self):
        encoder = DIALECT.encoder(CTX, meta(include_usage=True, continuous_usage=True, stream_reasoning=False))
        assert encoder.template(0, "reasoning") is None
