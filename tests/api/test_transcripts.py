"""The words of a transcription, and how they are streamed (spec agentic-apis 9)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smg.api.audio.stream import TranscriptStream
from smg.api.audio.words import Words, words_of
from smg.core.errors import GatewayError
from smg.core.events import Finish, TextDelta, Usage
from tests.splits import splits

LONG = "language " + "x" * 40
OUTPUTS = {
    "language English<asr_text>Hello there.": "Hello there.",
    "language None<asr_text>": "",
    "<asr_text>Hello.": "Hello.",
    " language German<asr_text> Guten \n Tag. \n": "Guten \n Tag.",
    # A language that was given stands in the prompt, and the output is the words alone.
    "Hello there.": "Hello there.",
    "language is what we speak": "language is what we speak",
    "language": "language",
    "langu": "langu",
    "<asr_te": "<asr_te",
    "": "",
    " \n ": "",
    "a < b": "a < b",
    # Only the first mark is one, and only behind a name.
    "language English<asr_text>say <asr_text> twice": "say <asr_text> twice",
    "we said <asr_text> aloud": "we said <asr_text> aloud",
    "language of\npoets<asr_text>": "language of\npoets<asr_text>",
    LONG + "<asr_text>ok": "ok",
    LONG + "y<asr_text>ok": LONG + "y<asr_text>ok",
    LONG + "<asr_tex of it": LONG + "<asr_tex of it",
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_the_language_is_no_part_of_the_words_however_they_come(output):
    for chunks in splits([output]):
        words = Words()
        assert "".join([*map(words.feed, chunks), words.finish()]) == OUTPUTS[output]
    assert words_of(output) == OUTPUTS[output]


@given(st.lists(st.sampled_from(["language ", "lang", "<asr_text>", "<asr_", "text>", "\n", " ", "x" * 20, "ü"])))
def test_any_output_is_read_as_when_it_comes_at_once(chunks):
    words = Words()
    assert "".join([*map(words.feed, chunks), words.finish()]) == words_of("".join(chunks))


def test_what_is_certainly_speech_is_not_held_back():
    words = Words()
    assert [words.feed(text) for text in ("Hel", "lo ", "there", ". ")] == ["Hel", "lo", " there", "."]


def said(data):
    """The objects of a stream's events, and whether its end marker is there."""
    *events, last = data.decode().split("\n\n")
    assert last == ""
    objects = [event.removeprefix("data: ") for event in events]
    return [json.loads(one) for one in objects if one != "[DONE]"], objects[-1] == "[DONE]"


class TestStream:
    def test_deltas_are_the_whole_text(self):
        stream = TranscriptStream(Usage(prompt_tokens=30))
        first = stream.preamble(direct=False) + stream.events([TextDelta(0, "language Eng"), TextDelta(0, "lish<asr")])
        assert first == b""
        data = stream.events([TextDelta(0, '_text>He said "h'), TextDelta(0, "i ")])
        data += stream.events([TextDelta(0, "ü"), Finish(0, "stop"), Usage(31, 9)])
        events, whole = said(data + stream.closing())
        assert whole
        assert events == [
            {"type": "transcript.text.delta", "delta": 'He said "h'},
            {"type": "transcript.text.delta", "delta": "i"},
            {"type": "transcript.text.delta", "delta": " ü"},
            {
                "type": "transcript.text.done",
                "text": 'He said "hi ü',
                "usage": {"type": "tokens", "input_tokens": 31, "output_tokens": 9, "total_tokens": 40},
            },
        ]

    def test_what_was_held_back_comes_last(self):
        stream = TranscriptStream(Usage())
        assert stream.events([TextDelta(0, "language")]) == b""
        events, _ = said(stream.closing())
        assert [event.get("delta") or event["text"] for event in events] == ["language", "language"]

    def test_silence_is_an_empty_text(self):
        stream = TranscriptStream(Usage())
        assert stream.events([TextDelta(0, "language None<asr_text>")]) == b""
        events, whole = said(stream.closing())
        assert ([event["type"] for event in events], events[0]["text"], whole) == (["transcript.text.done"], "", True)

    def test_a_broken_stream_ends_in_an_error_without_an_end_marker(self):
        stream = TranscriptStream(Usage())
        events, whole = said(stream.failure(GatewayError("media_undecodable", "no sound", param="file[0]")))
        assert not whole
        assert events == [
            {
                "error": {
                    "message": "no sound",
                    "type": "invalid_request_error",
                    "param": "file",
                    "code": "media_undecodable",
                }
            }
        ]
