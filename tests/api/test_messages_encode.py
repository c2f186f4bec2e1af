"""The bytes of Messages answers: block by block, and buffered; and that both say the same."""

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg._native import sse
from smg.api.anthropic_messages import AnthropicMessages
from smg.api.anthropic_messages.options import MessagesOptions
from smg.api.dialect import Meta
from smg.core.context import RequestContext
from smg.core.errors import ContextLengthExceeded, GatewayError
from smg.core.events import (
    Finish,
    ReasoningDelta,
    Refusal,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from smg.core.request import GenerationRequest
from smg.core.stream import NoDecoder
from smg.pipeline.accumulator import Accumulator
from tests.api.messages_stream import comparable, events_of, folded

DIALECT = AnthropicMessages()
CTX = RequestContext("msg_1", endpoint="messages")
STOP = (Finish(0, "stop"), Usage(9, 5))


def meta(display="dropped", usage=None) -> Meta:
    request = GenerationRequest("anthropic_messages", "m", options=MessagesOptions(display))
    return Meta(request, "m", 5, NoDecoder(), usage or Usage(9))


def stream(*batches, display="dropped", **fields) -> bytes:
    encoder = DIALECT.encoder(CTX, meta(display, **fields))
    return encoder.preamble(direct=False) + b"".join(map(encoder.events, batches)) + encoder.closing()


def buffered(*batches, display="dropped") -> dict:
    accumulator = Accumulator()
    for batch in batches:
        accumulator.feed(batch)
    answer = DIALECT.answer(CTX, meta(display), accumulator.finish())
    return json.loads(msgspec.json.encode(answer))


def call(index, name, *arguments, complete=True, identity="x") -> list:
    deltas = [ToolCallDelta(0, index, piece) for piece in arguments]
    return [ToolCallStart(0, index, f"{identity}{index}", name), *deltas, ToolCallEnd(0, index, complete)]


def both(*events, display="dropped") -> dict:
    """What the streamed and the buffered answer have in common, which must be everything."""
    whole = comparable(buffered(events, display=display))
    assert comparable(folded(stream(events, display=display))) == whole
    return whole


def content(*events, display="dropped") -> list[dict]:
    return both(*events, display=display)["content"]


def use(name, **arguments):
    return {"type": "tool_use", "id": "toolu", "name": name, "input": arguments}


def text(said):
    return {"type": "text", "text": said}


def test_golden_stream():
    body = stream([TextDelta(0, 'a"\n')], [TextDelta(0, "é"), *STOP])
    assert body.decode() == (
        'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message",'
        '"role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,'
        '"usage":{"input_tokens":9,"output_tokens":0}}}\n\n'
        'event: ping\ndata: {"type":"ping"}\n\n'
        'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
        '"content_block":{"type":"text","text":""}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"a\\"\\n"}}\n\n'
        'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        '"delta":{"type":"text_delta","text":"é"}}\n\n'
        'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
        'event: message_delta\ndata: {"type":"message_delta",'
        '"delta":{"stop_reason":"end_turn","stop_sequence":null},'
        '"usage":{"input_tokens":9,"output_tokens":5}}\n\n'
        'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    )


def test_golden_answer():
    assert buffered([TextDelta(0, "hello"), *STOP]) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [text("hello")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 5},
    }


class TestBlocks:
    def test_TP_12_text_a_call_and_text_are_three_blocks_in_that_order(self):
        events = [TextDelta(0, "Checking. "), *call(0, "ping", "{}"), TextDelta(0, "\nDone."), *STOP]
        assert content(*events) == [text("Checking. "), use("ping"), text("\nDone.")]

    def test_MS_02_parallel_calls_are_blocks_of_their_own(self):
        calls = [
            *call(0, "get_weather", '{"city":"Oslo"}'),
            *call(1, "ping", "{}"),
            *call(2, "get_weather", '{"city":', '"Rome"}'),
        ]
        made = both(*calls, Finish(0, "tool_calls"), Usage(9, 5))
        assert made["content"] == [use("get_weather", city="Oslo"), use("ping"), use("get_weather", city="Rome")]
        assert made["stop_reason"] == "tool_use"

    def test_MS_03_arguments_that_come_with_the_name_are_deltas(self):
        for pieces in (('{"', 'cmd": "ls"}'), ('{"cmd": "ls"}',)):
            assert content(*call(0, "run", *pieces), *STOP) == [use("run", cmd="ls")]

    @pytest.mark.parametrize(
        ("display", "expected"),
        [
            ("shown", [{"type": "thinking", "thinking": "r1r2", "signature": "s"}, text("answer")]),
            ("omitted", [{"type": "thinking", "thinking": "", "signature": "s"}, text("answer")]),
            ("dropped", [text("answer")]),
        ],
    )
    def test_MS_05_thinking_is_a_block_of_its_own_or_none(self, display, expected):
        events = [ReasoningDelta(0, "r1"), ReasoningDelta(0, "r2"), ReasoningDelta(0, "", "s"), TextDelta(0, "answer")]
        assert content(*events, *STOP, display=display) == expected

    def test_MS_05_the_signature_comes_last_in_its_block_and_the_message_starts_once(self):
        events = [ReasoningDelta(0, "r"), ReasoningDelta(0, "", "s"), TextDelta(0, "a"), *STOP]
        names = [name for name, _ in events_of(stream(events, display="shown"))]
        assert names == [
            "message_start",
            "ping",
            *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
            *("content_block_start", "content_block_delta", "content_block_stop"),
            *("message_delta", "message_stop"),
        ]

    def test_thinking_between_calls_is_a_block_each_time(self):
        events = [
            *(ReasoningDelta(0, "a"), ReasoningDelta(0, "", "s1")),
            *call(0, "f", "{}"),
            *(ReasoningDelta(0, "b"), ReasoningDelta(0, "", "s2")),
            *call(1, "g", "{}"),
            *STOP,
        ]
        kinds = [block["type"] for block in content(*events, display="shown")]
        assert kinds == ["thinking", "tool_use", "thinking", "tool_use"]
        assert content(*events) == [use("f"), use("g")]

    def test_text_goes_on_where_thinking_is_dropped(self):
        events = [TextDelta(0, "a"), ReasoningDelta(0, "r"), ReasoningDelta(0, "", "s"), TextDelta(0, "b"), *STOP]
        assert content(*events) == [text("ab")]
        assert [block["type"] for block in content(*events, display="omitted")] == ["text", "thinking", "text"]

    @pytest.mark.parametrize("events", [[], [ReasoningDelta(0, "r"), ReasoningDelta(0, "", "s")], [TextDelta(0, "")]])
    def test_an_answer_that_says_nothing_has_one_empty_text(self, events):
        assert content(*events, *STOP) == [text("")]

    def test_a_refusal_is_text(self):
        made = both(Refusal(0, "I "), Refusal(0, "won't."), Finish(0, "content_filter"), Usage(9, 5))
        assert (made["content"], made["stop_reason"]) == ([text("I won't.")], "refusal")

    def test_ids_of_calls_have_one_form_whatever_the_models_is(self):
        for identity in ("functions.f:", "call_", "a1b2c3d4"):
            ids = [
                block["id"] for block in buffered([*call(0, "f", identity=identity), *call(1, "f"), *STOP])["content"]
            ]
            assert all(made.startswith("toolu_") and len(made) == 30 for made in ids)
            assert len(set(ids)) == 2

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ("", {}),
            (" \n", {}),
            ('{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
            ('{"path": "a.txt", "text": "hel', {"INVALID_JSON": '{"path": "a.txt", "text": "hel'}),
            ("[1]", {"INVALID_JSON": "[1]"}),
            ("{'a': 1}", {"INVALID_JSON": "{'a': 1}"}),
        ],
    )
    def test_the_input_is_an_object_and_nothing_of_it_is_lost(self, arguments, expected):
        assert buffered([*call(0, "f", arguments), *STOP])["content"][0]["input"] == expected

    def test_OA_05_arguments_that_are_cut_off_stay_as_they_are(self):
        cut = call(0, "write_file", '{"path": "a.txt", "text": "hel', complete=False)
        made = both(*cut, Finish(0, "length"), Usage(9, 5))
        assert made["stop_reason"] == "max_tokens"
        deltas = [data["delta"] for name, data in events_of(stream([*cut, Finish(0, "length")])) if "delta" in name]
        assert deltas[0] == {"type": "input_json_delta", "partial_json": '{"path": "a.txt", "text": "hel'}


class TestTheEnd:
    @pytest.mark.parametrize(
        ("finish", "reason", "sequence"),
        [
            (Finish(0, "stop"), "end_turn", None),
            (Finish(0, "stop", "END"), "stop_sequence", "END"),
            (Finish(0, "stop", 42), "end_turn", None),
            (Finish(0, "length"), "max_tokens", None),
            (Finish(0, "tool_calls"), "tool_use", None),
            (Finish(0, "tool_calls", "END"), "tool_use", None),
            (Finish(0, "content_filter"), "refusal", None),
        ],
    )
    def test_why_it_stopped(self, finish, reason, sequence):
        made = both(TextDelta(0, "a"), finish, Usage(9, 5))
        assert (made["stop_reason"], made["stop_sequence"]) == (reason, sequence)

    def test_MS_01_the_start_has_the_prompts_count_and_the_end_all(self):
        body = stream([TextDelta(0, "Hel"), TextDelta(0, "lo"), Finish(0, "stop"), Usage(123, 2)], usage=Usage(123))
        events = events_of(body)
        assert events[0][1]["message"]["usage"]["input_tokens"] == 123
        (change,) = [data for name, data in events if name == "message_delta"]
        assert change["usage"] == {"input_tokens": 123, "output_tokens": 2}

    def test_MS_08_what_was_cached_is_not_input_and_unknown_is_not_told(self):
        ended = (Finish(0, "stop"), Usage(100, 5, cached_tokens=64))
        counts = {
            "input_tokens": 36,
            "output_tokens": 5,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 64,
        }
        assert buffered([TextDelta(0, "a"), *ended])["usage"] == counts
        started = stream([TextDelta(0, "a"), *ended], usage=Usage(100, cached_tokens=64))
        assert folded(started)["usage"] == counts
        assert buffered([Finish(0, "stop"), Usage(100, 5)])["usage"] == {"input_tokens": 100, "output_tokens": 5}

    def test_tokens_of_thinking_are_told(self):
        made = buffered([TextDelta(0, "a"), Finish(0, "stop"), Usage(9, 5, reasoning_tokens=3)])
        assert made["usage"]["output_tokens_details"] == {"thinking_tokens": 3}


class TestTemplates:
    """What goes direct has the bytes that the events would have had."""

    TEXTS = ("plain", 'quote " backslash \\ \n\t\x01', "日本語 😀 \u2028")

    def direct(self, encoder, said, kind="text", number=0) -> bytes:
        template = encoder.template(0, kind, number)
        return sse.fill(template.pieces, template.holes, said, 0)

    @pytest.mark.parametrize("said", TEXTS)
    def test_text_from_the_beginning(self, said):
        tapped, direct = DIALECT.encoder(CTX, meta()), DIALECT.encoder(CTX, meta())
        # Asked before anything has been written, as the pipeline does it.
        template = direct.template(0)
        bodies = [
            tapped.preamble(direct=False) + tapped.events([TextDelta(0, said)]),
            direct.preamble(direct=True) + sse.fill(template.pieces, template.holes, said, 0),
        ]
        assert bodies[0] == bodies[1]
        assert tapped.events([*STOP]) + tapped.closing() == direct.events([*STOP]) + direct.closing()

    @pytest.mark.parametrize("said", TEXTS)
    @pytest.mark.parametrize(
        ("before", "kind", "number", "delta"),
        [
            ([TextDelta(0, "a")], "text", 0, lambda said: TextDelta(0, said)),
            ([ReasoningDelta(0, "a")], "reasoning", 0, lambda said: ReasoningDelta(0, said)),
            ([ToolCallStart(0, 1, "x", "f")], "arguments", 1, lambda said: ToolCallDelta(0, 1, said)),
        ],
    )
    def test_of_each_kind_once_its_block_is_open(self, before, kind, number, delta, said):
        encoder = DIALECT.encoder(CTX, meta("shown"))
        encoder.preamble(direct=False)
        assert encoder.template(0, kind, number) is None, "a block has to be opened first"
        encoder.events(before)
        assert self.direct(encoder, said, kind, number) == encoder.events([delta(said)])

    def test_a_template_belongs_to_the_block_that_is_open(self):
        encoder = DIALECT.encoder(CTX, meta("shown"))
        encoder.preamble(direct=False)
        encoder.events([ReasoningDelta(0, "a"), ReasoningDelta(0, "", "s")])
        assert encoder.template(0, "reasoning") is None, "nothing follows a signature"
        encoder.events([TextDelta(0, "b"), ToolCallStart(0, 0, "x", "f")])
        assert encoder.template(0) is None
        assert encoder.template(0, "arguments", 1) is None
        assert b'"index":2' in self.direct(encoder, "{", "arguments", 0)

    @pytest.mark.parametrize("display", ["omitted", "dropped"])
    def test_thinking_that_nobody_sees_goes_direct_without_a_byte(self, display):
        encoder = DIALECT.encoder(CTX, meta(display))
        encoder.preamble(direct=False)
        encoder.events([ReasoningDelta(0, "a")])
        assert self.direct(encoder, "secret", "reasoning") == b""


class TestErrors:
    def shape(self, error) -> tuple[int, dict]:
        answer = DIALECT.error(CTX, error)
        assert (answer.body["type"], answer.body["request_id"]) == ("error", "msg_1")
        return answer.status, answer.body["error"]

    @pytest.mark.parametrize(
        ("code", "status", "kind"),
        [
            ("invalid_value", 400, "invalid_request_error"),
            ("invalid_api_key", 401, "authentication_error"),
            ("permission_denied", 403, "permission_error"),
            ("model_not_found", 404, "not_found_error"),
            ("method_not_allowed", 405, "invalid_request_error"),
            ("request_too_large", 413, "request_too_large"),
            ("unsupported_media_type", 415, "invalid_request_error"),
            ("rate_limit_exceeded", 429, "rate_limit_error"),
            ("internal_error", 500, "api_error"),
            ("worker_failed", 502, "api_error"),
            ("overloaded", 529, "overloaded_error"),
            ("deadline_exceeded", 504, "timeout_error"),
        ],
    )
    def test_each_has_its_type_and_status(self, code, status, kind):
        assert self.shape(GatewayError(code, "no")) == (status, {"type": kind, "message": "no"})

    def test_the_path_is_written_with_dots(self):
        error = GatewayError("invalid_value", "no", param="messages[3].content[1].source")
        assert self.shape(error)[1]["message"] == "messages.3.content.1.source: no"

    def test_MS_09_a_context_that_is_too_short_is_told_in_the_words_that_clients_look_for(self):
        both = ContextLengthExceeded("…", prompt=230462, output=32000, longest=262144)
        _, told = self.shape(both)
        assert told["type"] == "invalid_request_error"
        assert told["message"].startswith(
            "input length and `max_tokens` exceed context limit: 230462 + 32000 > 262144, "
        )
        for alone in (
            ContextLengthExceeded("…", prompt=300000, longest=262144),
            ContextLengthExceeded("…", prompt=300000, output=5, longest=262144),
        ):
            assert self.shape(alone)[1]["message"] == "prompt is too long: 300000 tokens > 262144 maximum"

    @pytest.mark.parametrize(
        "said",
        [
            "requested 262462 tokens: 230462 in the messages and 32000 in the completion; maximum context length is "
            "262144",
            "This model's maximum context length is 262144 tokens. However, you requested 262462 tokens (230462 in the "
            "messages, 32000 in the completion). Please reduce the length of the messages or completion.",
            "Requested token count exceeds the model's maximum context length of 262144 tokens. You requested a total "
            "of 262462 tokens: 230462 tokens from the input messages and 32000 tokens for the completion.",
        ],
    )
    def test_MS_09_also_where_the_engine_says_so(self, said):
        error = GatewayError("invalid_request", f"the engine refused the request: {said}")
        assert self.shape(error)[1]["message"].startswith(
            "input length and `max_tokens` exceed context limit: 230462 + 32000 > 262144"
        )

    def test_MS_10_in_a_stream_it_is_an_event_of_our_own(self):
        encoder = DIALECT.encoder(CTX, meta())
        body = encoder.failure(GatewayError("worker_stream_failed", "the engine's stream broke", detail="10.0.0.1"))
        ((name, data),) = events_of(body)
        assert (name, data["error"]) == ("error", {"type": "api_error", "message": "the engine's stream broke"})
        assert b"10.0.0.1" not in body


def test_RL_06_a_keep_alive_is_a_ping():
    assert events_of(DIALECT.encoder(CTX, meta()).keepalive()) == [("ping", {"type": "ping"})]


def test_a_client_s_own_request_id_gets_the_prefix():
    started = events_of(DIALECT.encoder(RequestContext("mine"), meta()).preamble(direct=False))[0][1]
    assert started["message"]["id"] == "msg_mine"


PIECES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ITEMS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.lists(PIECES, max_size=3)),
        st.tuples(st.just("reasoning"), st.lists(PIECES, max_size=3)),
        st.tuples(st.just("call"), st.lists(PIECES, max_size=3)),
    ),
    max_size=6,
)


@given(ITEMS, st.sampled_from(["shown", "omitted", "dropped"]), st.lists(st.integers(0, 40), max_size=4))
def test_SPLIT_however_events_come_the_stream_folds_to_the_buffered_answer(items, display, cuts):
    events, calls = [], 0
    for kind, pieces in items:
        if kind == "text":
            events += [TextDelta(0, piece) for piece in pieces]
        elif kind == "reasoning":
            events += [ReasoningDelta(0, piece) for piece in pieces]
            events += [ReasoningDelta(0, "", "sig")] if any(pieces) else []
        else:
            events += call(calls, "f", *(piece for piece in pieces if piece))
            calls += 1
    events += STOP
    places = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    batches = [events[start:stop] for start, stop in pairwise(places)]
    assert comparable(folded(stream(*batches, display=display))) == comparable(buffered(events, display=display))
