"""The bytes of responses: events of a stream and whole answers, which say the same."""

import json
import random

import msgspec
import pytest

from smg._native import sse
from smg.api.dialect import Meta
from smg.api.openai_responses import OpenAIResponses
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
from smg.pipeline.accumulator import Accumulator
from tests.api.responses_events import folded, named, parsed
from tests.api.test_chat_encode import Bytes

DIALECT = OpenAIResponses()
CTX = RequestContext("resp_1", endpoint="responses")
STOP, DONE = Finish(0, "stop"), Usage(7, 3, cached_tokens=2, reasoning_tokens=1)
CALL = (ToolCallStart(0, 0, "call_1", "f"), ToolCallDelta(0, 0, '{"a":'), ToolCallDelta(0, 0, "1}"), ToolCallEnd(0, 0))
CUSTOM = (ToolCallStart(0, 1, "call_2", "sh", "custom"), ToolCallDelta(0, 1, 'ls\n\n"x"'), ToolCallEnd(0, 1))


def meta(forwarded: bool = False, **fields) -> Meta:
    request = DIALECT.decode(json.dumps({"model": "m", "input": "hi"} | fields).encode(), {}, {}, CTX)
    return Meta(request, "m", 9, Bytes(), forwarded=forwarded)


def streamed(events, about: Meta | None = None) -> bytes:
    encoder = DIALECT.encoder(CTX, about or meta())
    return encoder.preamble(direct=False) + encoder.events(list(events)) + encoder.closing()


def buffered(events, about: Meta | None = None) -> dict:
    accumulator = Accumulator()
    accumulator.feed(events)
    return json.loads(msgspec.json.encode(DIALECT.answer(CTX, about or meta(), accumulator.finish())))


def both(events, **fields) -> dict:
    """The response that the events make, streamed and buffered."""
    about = meta(**fields)
    whole, folded_ = buffered(events, about), folded(streamed(events, about))
    whole["completed_at"] = folded_["completed_at"] = whole["completed_at"] and 10
    assert whole == folded_
    parsed(whole)
    return whole


def types(body: bytes) -> list[str]:
    return [event["type"].removeprefix("response.") for event in named(body)]


def cut(events, draw: random.Random):
    """The same output in other pieces: texts split anywhere."""
    out = []
    for event in events:
        name = "arguments" if isinstance(event, ToolCallDelta) else "text"
        text = getattr(event, name, "")
        at = draw.randrange(len(text) + 1) if text else 0
        pieces = [text[:at], text[at:]] if text and getattr(event, "logprobs", None) is None else [None]
        out += [event if piece is None else msgspec.structs.replace(event, **{name: piece}) for piece in pieces]
    return out


ROW = TokenLogprobs(97, -0.5, ((97, -0.5), (98, -1.5)))
ANSWERS = {
    "text": [TextDelta(0, "hello"), TextDelta(0, " wörld 😀")],
    "nothing": [],
    "reasoning and text": [ReasoningDelta(0, "hm"), ReasoningDelta(0, "m"), TextDelta(0, "so")],
    "reasoning only": [ReasoningDelta(0, "hm")],
    "a call behind text": [TextDelta(0, "look: "), *CALL],
    "RS-02 a call before text": [*CALL, TextDelta(0, "done")],
    "calls of both kinds": [ReasoningDelta(0, "hm"), *CALL, *CUSTOM],
    "reasoning between calls": [ReasoningDelta(0, "a"), *CALL, ReasoningDelta(0, "b"), *CUSTOM],
    "a call that is broken off": [*CALL[:2], ToolCallEnd(0, 0, complete=False)],
    "a refusal behind text": [TextDelta(0, "I"), Refusal(0, "can"), Refusal(0, "not")],
    "a citation": [TextDelta(0, "see"), Annotation(0, {"type": "file_path", "file_id": "f", "index": 1})],
    "text beside an open call": [*CALL[:2], TextDelta(0, "meanwhile"), *CALL[2:]],
    "log probabilities": [TextDelta(0, "a", (ROW,)), TextDelta(0, "", (ROW,)), *CALL],
}


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
@pytest.mark.parametrize("events", ANSWERS.values(), ids=ANSWERS)
def test_a_stream_folds_into_the_buffered_answer(events, reason):
    draw = random.Random(5)
    for pieces in (events, *(cut(events, draw) for _ in range(20))):
        response = both([*pieces, Finish(0, reason), DONE])
        status = {"stop": "completed", "length": "incomplete", "content_filter": "incomplete"}[reason]
        assert response["status"] == status
        assert response["output"]


def test_the_order_of_events():
    assert types(streamed([ReasoningDelta(0, "hm"), TextDelta(0, "a"), TextDelta(0, "b"), *CALL, STOP, DONE])) == [
        *("created", "in_progress"),
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done"),
        *("content_part.done", "output_item.done"),
        *("output_item.added", *["function_call_arguments.delta"] * 2, "function_call_arguments.done"),
        "output_item.done",
        "completed",
    ]


def test_golden_delta():
    about = meta()
    body = streamed([TextDelta(0, 'a"\n'), STOP, DONE], about)
    item = "msg_" + about.request.options.id.removeprefix("resp_") + "0000"
    assert body.split(b"\n\n")[4].decode() == (
        "event: response.output_text.delta\n"
        'data: {"type":"response.output_text.delta","sequence_number":4,'
        f'"item_id":"{item}","output_index":0,"content_index":0,"delta":"a\\"\\n","logprobs":[]}}'
    )


def test_items():
    items = both([ReasoningDelta(0, "hm"), TextDelta(0, "so"), *CALL, *CUSTOM, Finish(0, "tool_calls"), DONE])["output"]
    tails = {item.pop("id").split("_")[1][:-4] for item in items}
    assert len(tails) == 1
    completed = {"status": "completed"}
    assert items == [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}], **completed},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "so", "annotations": [], "logprobs": []}],
            **completed,
        },
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}', **completed},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "sh", "input": 'ls\n\n"x"', **completed},
    ]


def test_MS_08_usage_has_all_counts():
    assert both([TextDelta(0, "a"), STOP, DONE])["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 10,
    }


def test_RS_02_output_indexes_are_the_places_in_the_output():
    output = both([*CALL, TextDelta(0, "done"), STOP, DONE])["output"]
    assert [item["type"] for item in output] == ["function_call", "message"]


@pytest.mark.parametrize(
    ("reason", "last", "details"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_RS_03_the_end_of_a_stream_says_how_it_ended(reason, last, details):
    events = [TextDelta(0, "a"), Finish(0, reason), DONE]
    response = both(events)
    assert types(streamed(events))[-1] == last
    assert (response["status"], response["incomplete_details"], response["error"]) == (last, details, None)
    assert response["output"][-1]["status"] == last
    assert (response["completed_at"] is None) == (last != "completed")


def test_an_item_that_was_whole_before_the_limit_came_is_complete():
    first, second = both([TextDelta(0, "a"), *CALL, Finish(0, "length"), DONE])["output"]
    assert (first["status"], second["status"]) == ("completed", "completed")


class TestFailures:
    ERROR = GatewayError("worker_stream_failed", "the engine's stream broke", detail="10.0.0.1")

    def test_MS_10_what_has_come_is_closed_and_the_response_has_failed(self):
        encoder = DIALECT.encoder(CTX, meta())
        body = encoder.preamble(direct=False) + encoder.events([TextDelta(0, "Hello wor")])
        response = folded(body + encoder.failure(self.ERROR))
        assert (response["status"], response["error"]) == (
            "failed",
            {"code": "server_error", "message": "the engine's stream broke"},
        )
        assert [(item["status"], item["content"][0]["text"]) for item in response["output"]] == [
            ("incomplete", "Hello wor")
        ]

    def test_a_call_that_runs_is_incomplete(self):
        encoder = DIALECT.encoder(CTX, meta())
        body = encoder.preamble(direct=False) + encoder.events(list(CALL[:2]))
        (item,) = folded(body + encoder.failure(self.ERROR))["output"]
        assert (item["status"], item["arguments"]) == ("incomplete", '{"a":')

    def test_one_that_comes_before_anything_else_is_a_whole_stream_too(self):
        assert folded(DIALECT.encoder(CTX, meta()).failure(self.ERROR))["output"] == []

    @pytest.mark.parametrize(
        ("code", "shown"),
        [
            ("rate_limit_exceeded", "rate_limit_exceeded"),
            ("no_available_workers", "server_error"),
            ("context_length_exceeded", "context_length_exceeded"),
        ],
    )
    def test_codes(self, code, shown):
        body = DIALECT.encoder(CTX, meta()).failure(GatewayError(code, "no"))
        assert named(body)[-1]["response"]["error"]["code"] == shown

    def test_of_an_engine_s_own_stream_only_the_break_is_told(self):
        (event,) = named(DIALECT.encoder(CTX, meta(forwarded=True)).failure(self.ERROR))
        assert (event["type"], event["code"]) == ("error", "worker_stream_failed")


GIVEN = {
    "instructions": "be brief",
    "max_output_tokens": 9,
    "metadata": {"a": "b"},
    "parallel_tool_calls": False,
    "reasoning": {"effort": "low", "summary": None},
    "temperature": 0.5,
    "text": {"format": {"type": "json_object"}, "verbosity": None},
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
    "tool_choice": {"type": "function", "name": "f"},
    "top_p": 0.9,
    "truncation": "auto",
    "user": "u",
}


class TestEcho:
    def test_what_was_asked_comes_back_in_its_own_types(self):
        response = both([STOP, DONE], **GIVEN)
        assert {name: response[name] for name in GIVEN} == GIVEN

    def test_what_holds_where_nothing_was_asked(self):
        response = both([STOP, DONE])
        assert (response["tool_choice"], response["tools"], response["parallel_tool_calls"]) == ("none", [], True)
        assert (response["text"]["format"], response["truncation"]) == ({"type": "text"}, "disabled")
        assert (response["instructions"], response["metadata"], response["background"]) == (None, {}, False)

    def test_nothing_is_stored_and_it_says_so(self):
        assert both([STOP, DONE], store=True)["store"] is False

    def test_the_first_event_has_all_that_clients_need(self):
        first = named(streamed([STOP, DONE], meta(**GIVEN)))[0]["response"]
        parsed(first)
        assert (first["status"], first["output"], first["usage"]) == ("in_progress", [], None)


def test_log_probabilities_are_those_of_the_text():
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    events = [
        ReasoningDelta(0, "r", logprobs=(ROW,)),
        TextDelta(0, "a", (ROW,)),
        TextDelta(0, "é", (TokenLogprobs(0xC3, None), TokenLogprobs(0xA9, -1.0))),
        STOP,
        DONE,
    ]
    (text,) = both(events, **asked)["output"][1]["content"]
    assert [(row["token"], row["logprob"], row["bytes"]) for row in text["logprobs"]] == [
        ("a", -0.5, [97]),
        ("\ufffd", -9999.0, [0xC3]),
        ("\ufffd", -1.0, [0xA9]),
    ]
    assert [row["token"] for row in text["logprobs"][0]["top_logprobs"]] == ["a", "b"]


class TestTemplates:
    """What goes direct has the bytes that the events would have had, and is in what follows all the same."""

    def direct(self, encoder, text, kind, call=0) -> bytes:
        template = encoder.template(0, kind, call)
        filled = sse.fill(template.pieces, template.holes, text, encoder.counter.take())
        encoder.written(0, kind, call, text)
        return filled

    @pytest.mark.parametrize(
        ("before", "event", "kind"),
        [
            (TextDelta(0, "a"), TextDelta(0, 'b"\n'), "text"),
            (ReasoningDelta(0, "a"), ReasoningDelta(0, 'b"\n'), "reasoning"),
            (CALL[0], ToolCallDelta(0, 0, '{"a": "\\n'), "arguments"),
            (msgspec.structs.replace(CALL[0], kind="custom"), ToolCallDelta(0, 0, "ls\n"), "arguments"),
        ],
    )
    def test_of_each_kind(self, before, event, kind):
        about, bodies = meta(), []
        for direct in (False, True):
            encoder = DIALECT.encoder(CTX, about)
            body = encoder.preamble(direct=False) + encoder.events([before])
            text = event.arguments if kind == "arguments" else event.text
            body += self.direct(encoder, text, kind) if direct else encoder.events([event])
            bodies.append(body + encoder.events([ToolCallEnd(0, 0), STOP, DONE]) + encoder.closing())
            folded(bodies[-1])
        assert bodies[0] == bodies[1]

    def test_text_that_goes_direct_from_the_beginning(self):
        about = meta()
        encoder = DIALECT.encoder(CTX, about)
        template = encoder.template(0)
        body = encoder.preamble(direct=True)
        body += sse.fill(template.pieces, template.holes, "hi", encoder.counter.take())
        encoder.written(0, "text", 0, "hi")
        body += encoder.events([STOP, DONE]) + encoder.closing()
        assert body == streamed([TextDelta(0, "hi"), STOP, DONE], about)

    def test_what_has_to_be_opened_first_needs_python(self):
        encoder = DIALECT.encoder(CTX, meta())
        encoder.preamble(direct=False)
        assert [encoder.template(0, kind) for kind in ("text", "reasoning", "arguments")] == [None] * 3
        encoder.events([ReasoningDelta(0, "a")])
        assert encoder.template(0) is None
        encoder.events([TextDelta(0, "a")])
        assert encoder.template(0, "reasoning") is None
        encoder.events([*CALL])
        assert [encoder.template(0, kind) for kind in ("text", "reasoning", "arguments")] == [None] * 3


def test_RL_06_a_keep_alive_is_a_comment():
    assert DIALECT.encoder(CTX, meta()).keepalive() == b": keep-alive\n\n"
