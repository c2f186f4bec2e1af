"""Token counts of answers that only pass through, and server-sent events however they are cut (LM-03)."""

import pytest

from smg.core.events import Usage
from smg.engines.http.sse import MAX_EVENT, Events, data_of
from smg.engines.http.usage import MAX_BODY, BodyTap, StreamTap

USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}\n\n'
STREAMS = {
    "plain": USAGE + b"data: [DONE]\n\n",
    "crlf": (USAGE + b"data: [DONE]\n\n").replace(b"\n", b"\r\n"),
    "cr": (USAGE + b"data: [DONE]\n\n").replace(b"\n", b"\r"),
    "no-space": (USAGE + b"data: [DONE]\n\n").replace(b"data: ", b"data:"),
    "text-before": 'data: {"choices":[{"delta":{"content":"grün 🙂"}}]}\n\n'.encode() + USAGE + b"data: [DONE]\n\n",
    "comment": b": ping\n\n" + USAGE + b": bye\n\n",
    "several-lines": b'event: x\ndata: {"choices":[],\ndata: "usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n',
    "null-usage-first": b'data: {"choices":[{}],"usage":null}\n\n' + USAGE,
    "no-end": USAGE + b"data: [DONE]",
    "running-usage": b'data: {"choices":[{}],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n' + USAGE,
    "messages": b'event: message_start\ndata: {"message":{"usage":{"input_tokens":7,"output_tokens":1}}}\n\n'
    b'event: message_delta\ndata: {"usage":{"output_tokens":3}}\n\n',
    "responses": b'data: {"type":"response.completed","response":{"usage":{"input_tokens":7,"output_tokens":3}}}\n\n',
    "generate": b'data: {"text":"a","meta_info":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
    b'data: {"text":"abc","meta_info":{"prompt_tokens":7,"completion_tokens":3}}\n\n',
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_LM_03_usage_is_read_and_no_byte_changed_wherever_the_stream_is_cut(stream):
    for cut in range(len(stream) + 1):
        tap = StreamTap()
        out = tap.feed(stream[:cut]) + tap.feed(stream[cut:]) + tap.finish()
        assert (out, tap.usage) == (stream, Usage(7, 3))
    tap = StreamTap()
    assert b"".join(tap.feed(bytes([byte])) for byte in stream) + tap.finish() == stream
    assert tap.usage == Usage(7, 3)


@pytest.mark.parametrize("step", [1, 2, 3, 50, 1000])
def test_a_usage_event_that_only_the_gateway_wanted_is_taken_out(step):
    text = b'data: {"choices":[{"delta":{"content":"\\"usage\\""}}],"usage":null}\n\n'
    stream = text + USAGE + b"data: [DONE]\n\n"
    tap = StreamTap(hide=True)
    out = b"".join(tap.feed(stream[at : at + step]) for at in range(0, len(stream), step)) + tap.finish()
    assert (out, tap.usage) == (text + b"data: [DONE]\n\n", Usage(7, 3))


def test_only_whole_events_go_out():
    tap = StreamTap()
    assert tap.feed(b"data: a\n\ndata: b") == b"data: a\n\n"
    assert tap.feed(b"\n\n") == b"data: b\n\n"


def test_details_and_generations_of_several_prompts():
    tap = BodyTap()
    tap.feed(b'{"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8},')
    tap.feed(b'"completion_tokens_details":{"reasoning_tokens":2}}}')
    assert tap.finish() == b""
    assert tap.usage == Usage(9, 4, cached_tokens=8, reasoning_tokens=2)
    tap = BodyTap()
    tap.feed(b'[{"meta_info":{"prompt_tokens":1,"completion_tokens":2}},{"meta_info":{"prompt_tokens":3}}]')
    tap.finish()
    assert tap.usage == Usage(4, 2)


def test_MS_08_anthropics_input_is_without_what_was_cached():
    tap = BodyTap()
    tap.feed(
        b'{"usage":{"input_tokens":3,"cache_read_input_tokens":5,"cache_creation_input_tokens":2,"output_tokens":4}}'
    )
    tap.finish()
    assert tap.usage == Usage(10, 4, cached_tokens=5)


@pytest.mark.parametrize("body", [b"", b"no json", b"[1, null]", b'{"usage": {"prompt_tokens": "7"}}', b'{"usage": 7}'])
def test_what_has_no_counts_is_no_error(body):
    tap = BodyTap()
    assert tap.feed(body) == body
    tap.finish()
    assert tap.usage == Usage()


def test_of_a_very_long_body_nothing_is_kept():
    tap = BodyTap()
    for _ in range(MAX_BODY // (1 << 20) + 1):
        tap.feed(bytes(1 << 20))
    assert sum(map(len, tap._parts)) == 0


class TestEvents:
    def test_all_that_goes_in_comes_out(self):
        events = Events()
        parts = [*events.feed(b"\n\n: c\r\n\r\ndata: x\n\n\nda"), events.rest]
        assert b"".join(parts) == b"\n\n: c\r\n\r\ndata: x\n\n\nda"

    def test_data(self):
        assert data_of(b": c\ndata: a\ndata:b\nid: 3\n\n") == b"a\nb"
        assert data_of(b"event: ping\r\ndata: {}\r\n\r\n") == b"{}"
        assert data_of(b": only a comment\n\n") == b""

    def test_an_endless_event_is_not_held_back_for_ever(self):
        events = Events()
        out = []
        for _ in range(MAX_EVENT // (1 << 20) + 1):
            out += events.feed(bytes(1 << 20))
        assert len(out) == 1
        assert events.rest == b""


REASONED = b'data: {"choices":[{"index":0,"delta":{"reasoning":"hm","content":null}}]}\n\n'
RENAMED = b'data: {"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"hm"}}]}\n\n'


class TestReasoning:
    """OA-08: clients always find it as reasoning_content, whatever the engine calls it."""

    def test_OA_08_in_a_stream_wherever_it_is_cut(self):
        stream = REASONED + STREAMS["text-before"]
        for cut in range(len(stream)):
            tap = StreamTap(chat=True)
            out = tap.feed(stream[:cut]) + tap.feed(stream[cut:]) + tap.finish()
            assert (out, tap.usage) == (RENAMED + STREAMS["text-before"], Usage(7, 3))

    def test_OA_08_in_a_whole_answer(self):
        body = b'{"choices":[{"message":{"content":"a","reasoning":"hm"}}],"usage":{"prompt_tokens":7}}'
        for cut in range(len(body)):
            tap = BodyTap(chat=True)
            assert tap.feed(body[:cut]) + tap.feed(body[cut:]) == b""
            assert tap.finish() == body.replace(b"reasoning", b"reasoning_content")
            assert tap.usage == Usage(7)

    def test_OA_08_where_both_are_given_the_name_that_clients_read_wins(self):
        tap = BodyTap(chat=True)
        tap.feed(b'{"choices":[{"message":{"reasoning":"a","reasoning_content":"b"}}]}')
        assert tap.finish() == b'{"choices":[{"message":{"reasoning_content":"b"}}]}'

    @pytest.mark.parametrize(
        "body", [b'{"reasoning": 1}', b'["reasoning"]', b'{"choices": ["reasoning"]}', b'"reasoning" no json', b""]
    )
    def test_what_is_no_answer_stays_as_it_is(self, body):
        tap = BodyTap(chat=True)
        assert tap.feed(body) + tap.finish() == body

    def test_a_very_long_answer_goes_by(self):
        tap = BodyTap(chat=True)
        sent = b"".join(tap.feed(bytes(1 << 20)) for _ in range(MAX_BODY // (1 << 20) + 2)) + tap.finish()
        assert len(sent) == MAX_BODY + (2 << 20)
