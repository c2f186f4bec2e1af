"""OpenAI-style streams as events, however they are cut (rule SPLIT)."""

import random

import msgspec
import pytest

from smg.core.events import (
    Failure,
    Finish,
    ReasoningDelta,
    Refusal,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from smg.engines.http.chat_events import ChatEvents
from tests.splits import random_split


def stream(*chunks, done=True) -> bytes:
    data = b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks)
    return data + (b"data: [DONE]\n\n" if done else b"")


def delta(index=0, finish=None, **fields) -> dict:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


def call(place, **function) -> dict:
    return {"index": place, **({"id": f"id{place}"} if "name" in function else {}), "function": function}


def decoded(data: bytes, choices=1, pieces=None) -> list:
    events = ChatEvents(choices)
    out = []
    for piece in pieces if pieces is not None else [data]:
        out += events.feed(piece)
    return out + events.finish()


def joined(events: list) -> list:
    """The events with neighbouring deltas of one kind made one."""
    out: list = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, TextDelta | ReasoningDelta) and type(last) is type(event):
            out[-1] = type(event)(event.choice, last.text + event.text)
        elif isinstance(event, ToolCallDelta) and isinstance(last, ToolCallDelta) and last.index == event.index:
            out[-1] = ToolCallDelta(event.choice, event.index, last.arguments + event.arguments)
        else:
            out.append(event)
    return out


WHOLE = stream(
    delta(role="assistant", content=""),
    delta(reasoning_content="hm "),
    delta(reasoning="ja"),
    delta(content="grün 🙂"),
    delta(tool_calls=[call(0, name="f", arguments="")]),
    delta(tool_calls=[call(0, arguments='{"a"')]),
    delta(tool_calls=[call(0, arguments=":1}")]),
    delta(tool_calls=[call(1, name="g", arguments="{}")]),
    delta(finish="tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 1}},
)
EXPECTED = [
    ReasoningDelta(0, "hm ja"),
    TextDelta(0, "grün 🙂"),
    ToolCallStart(0, 0, "id0", "f"),
    ToolCallDelta(0, 0, '{"a":1}'),
    ToolCallEnd(0, 0),
    ToolCallStart(0, 1, "id1", "g"),
    ToolCallDelta(0, 1, "{}"),
    ToolCallEnd(0, 1),
    Finish(0, "tool_calls"),
]


def test_everything_however_it_is_cut():
    text = WHOLE.decode("latin-1")
    generator = random.Random(1)
    cuts = [[text], list(text), *([text[:at], text[at:]] for at in range(len(text)))]
    cuts += [random_split(text, generator) for _ in range(20)]
    for chunks in cuts:
        assert joined(decoded(WHOLE, pieces=[chunk.encode("latin-1") for chunk in chunks])) == EXPECTED


def test_completions_and_several_choices():
    chunks = [
        {"choices": [{"index": index, "text": text, "finish_reason": None}]} for index, text in [(1, "b"), (0, "a")]
    ]
    ends = [{"choices": [{"index": index, "text": "", "finish_reason": "length"}]} for index in (0, 1)]
    assert decoded(stream(*chunks, *ends), 2) == [
        TextDelta(1, "b"),
        TextDelta(0, "a"),
        Finish(0, "length"),
        Finish(1, "length"),
    ]


def test_OA_02_a_clean_end_without_a_reason():
    assert decoded(stream(delta(content="a"))) == [TextDelta(0, "a"), Finish(0, "stop")]
    ended = decoded(stream(delta(tool_calls=[call(0, name="f", arguments="{}")])))
    assert ended[-2:] == [ToolCallEnd(0, 0), Finish(0, "tool_calls")]


@pytest.mark.parametrize(
    ("extra", "matched"), [({"stop_reason": "END"}, "END"), ({"matched_stop": 7}, 7), ({"stop_reason": None}, None)]
)
def test_what_stopped_it(extra, matched):
    chunk = delta(content="a", finish="stop")
    chunk["choices"][0].update(extra)
    assert decoded(stream(chunk)) == [TextDelta(0, "a"), Finish(0, "stop", matched)]


def test_a_call_cut_by_the_limit_is_not_complete():
    chunks = [delta(tool_calls=[call(0, name="f", arguments='{"a')]), delta(finish="length")]
    assert decoded(stream(*chunks))[-2:] == [ToolCallEnd(0, 0, False), Finish(0, "length")]


def test_a_call_whose_id_and_name_come_late_gets_an_id():
    chunks = [delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}])]
    chunks.append(delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "}"}}]))
    start, arguments, *_ = decoded(stream(*chunks))
    assert (start.name, start.id[:5], arguments.arguments) == ("f", "call_", "{}")


def test_refusals_and_what_comes_after_the_end():
    chunks = [delta(refusal="no"), delta(finish="stop"), delta(content="more")]
    assert decoded(stream(*chunks)) == [Refusal(0, "no"), Finish(0, "stop")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (stream({"error": {"message": "out of memory"}}), "out of memory"),
        (stream({"object": "error", "message": "bad"}), "bad"),
        (stream({"error": {"message": "see /usr/lib/x/y.py"}}), "the engine gave the generation up"),
        (stream(delta(finish="abort")), "the engine gave the generation up"),
        (b"data: {no json}\n\n", "the engine sent what is not an answer"),
        (stream(delta(index=3, content="x")), "the engine sent an unknown choice"),
    ],
)
def test_failures_are_the_last_event_and_no_end_is_invented(data, message):
    assert decoded(stream(delta(content="a"), done=False) + data + stream(delta(content="b"))) == [
        TextDelta(0, "a"),
        Failure("worker_stream_failed", message, 502),
    ]
