"""The bytes of completions, streamed and buffered."""

import json

import msgspec
import pytest

from smg._native import sse
from smg.api.dialect import Meta
from smg.api.openai_completions import OpenAICompletions
from smg.api.openai_completions.decode import CompletionOptions
from smg.api.openai_completions.logprobs import token_text
from smg.api.sampling import UsageOptions
from smg.core.batch import TokenLogprobs
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Finish, PromptLogprobs, TextDelta, Usage
from smg.core.request import GenerationRequest, Logprobs
from smg.engine_server.mock import tokenizer as mock
from smg.pipeline.accumulator import Accumulator
from tests.pipeline.fakes import text_model

DIALECT = OpenAICompletions()
CTX = RequestContext("cmpl-1", endpoint="/v1/completions")
DECODER = text_model().tokenizer.decoder
HEAD = '{"id":"cmpl-1","object":"text_completion","created":9,"model":"m","choices":['
ZERO = {
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def meta(n=1, keep=None, prompt=None, prompts=(), echo=False, logprobs=None, usage=(), **fields) -> Meta:
    options = CompletionOptions(keep or n, echo, logprobs is not None, UsageOptions(*usage))
    rows = None if logprobs is None else Logprobs(logprobs, prompt=echo)
    ids = prompt if isinstance(prompt, list) else None
    request = GenerationRequest(
        "openai_completions",
        "m",
        prompt_text=None if ids or prompts else prompt or "Say",
        prompt_ids=ids,
        prompts=list(prompts),
        n=n,
        logprobs=rows,
        options=options,
        **fields,
    )
    return Meta(request, "m", 9, DECODER)


def stream(pulls, **fields) -> list:
    encoder = DIALECT.encoder(CTX, meta(**fields))
    body = encoder.preamble(direct=False) + b"".join(encoder.events(events) for events in pulls) + encoder.closing()
    frames = body.decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def buffered(events, **fields) -> dict:
    told = meta(**fields)
    accumulator = Accumulator(told.request.choices)
    accumulator.feed(events)
    return json.loads(msgspec.json.encode(DIALECT.answer(CTX, told, accumulator.finish())))


def assembled(chunks) -> dict:
    """What a client builds of a stream: text and logprobs by index."""
    out: dict = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            text, rows = out.setdefault(choice["index"], ["", {}])
            out[choice["index"]][0] = text + choice["text"]
            for name, values in (choice["logprobs"] or {}).items():
                rows[name] = rows.get(name, []) + values
    return out


def row(content, value=-0.5, top=()):
    token = content if isinstance(content, int) else mock.encode_text(content)[0]
    return TokenLogprobs(token, value, tuple(top))


def test_golden_answer():
    assert buffered([TextDelta(0, "hello"), Finish(0, "stop", "\n"), Usage(3, 2)]) == {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 9,
        "model": "m",
        "choices": [{"text": "hello", "index": 0, "logprobs": None, "finish_reason": "stop", "matched_stop": "\n"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, **ZERO},
    }


def test_golden_stream():
    encoder = DIALECT.encoder(CTX, meta(usage=(True,)))
    body = encoder.preamble(direct=False) + encoder.events([TextDelta(0, 'a"'), Finish(0, "length"), Usage(3, 2)])
    body += encoder.closing()
    details = '"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}'
    assert body.decode() == (
        f'data: {HEAD}{{"index":0,"text":"a\\"","logprobs":null,"finish_reason":null}}],"usage":null}}\n\n'
        f'data: {HEAD}{{"index":0,"text":"","logprobs":null,"finish_reason":"length"}}],"usage":null}}\n\n'
        f'data: {HEAD}],"usage":{{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,{details}}}}}\n\n'
        "data: [DONE]\n\n"
    )


def test_the_direct_path_has_the_same_bytes_as_the_events_path():
    encoder = DIALECT.encoder(CTX, meta(n=2, usage=(True,)))
    for choice in range(2):
        template = encoder.template(choice)
        filled = sse.fill(template.pieces, template.holes, 'é"\n', 0)
        assert filled == encoder.events([TextDelta(choice, 'é"\n')])


def test_OA_01_every_chunk_has_finish_reason_and_each_choice_ends_once():
    events = [TextDelta(0, "a"), TextDelta(1, "b"), Finish(1, "stop"), TextDelta(0, "c"), Finish(0, "length"), Usage()]
    choices = [chunk["choices"][0] for chunk in stream([events], n=2)]
    ended = [(choice["index"], choice["finish_reason"]) for choice in choices if choice["finish_reason"]]
    assert ended == [(1, "stop"), (0, "length")]


def test_an_error_in_mid_stream_has_no_end_marker():
    body = DIALECT.encoder(CTX, meta()).failure(GatewayError("worker_stream_failed", "broke"))
    assert json.loads(body[6:])["error"]["code"] == "worker_stream_failed"
    assert b"[DONE]" not in body


class TestUsage:
    EVENTS = ([TextDelta(0, "a"), Usage(7, 1)], [Finish(0, "stop"), Usage(7, 2)])

    def test_OA_03_only_on_request_and_with_empty_choices(self):
        assert all("usage" not in chunk and chunk["choices"] for chunk in stream(self.EVENTS))
        *ordinary, last = stream(self.EVENTS, usage=(True,))
        assert all(chunk["usage"] is None and chunk["choices"] for chunk in ordinary)
        assert (last["choices"], last["usage"]["total_tokens"]) == ([], 9)

    def test_OA_04_running_usage_in_each_chunk(self):
        counts = [chunk["usage"]["completion_tokens"] for chunk in stream(self.EVENTS, usage=(True, True))]
        assert counts == [1, 2, 2]
        assert DIALECT.encoder(CTX, meta(usage=(True, True))).template(0) is None


class TestEcho:
    def test_the_prompt_is_in_front(self):
        events = [TextDelta(0, " so"), Finish(0, "stop"), Usage()]
        assert buffered(events, echo=True)["choices"][0]["text"] == "Say so"
        chunks = stream([events], echo=True)
        assert [chunk["choices"][0]["text"] for chunk in chunks] == ["Say", " so", ""]

    def test_of_every_choice_of_every_prompt(self):
        events = [Finish(choice, "stop") for choice in range(4)]
        fields = {"n": 2, "prompts": ["a", "b"], "echo": True}
        assert [choice["text"] for choice in buffered(events, **fields)["choices"]] == ["a", "a", "b", "b"]
        assert {i: text for i, (text, _) in assembled(stream([events], **fields)).items()} == {
            0: "a",
            1: "a",
            2: "b",
            3: "b",
        }

    @pytest.mark.parametrize(
        ("ids", "skip", "expected"),
        [
            (mock.encode_text("né the"), True, "né the"),
            ([mock.END_OF_TEXT, 97], True, "a"),
            ([mock.END_OF_TEXT, 97], False, "<|endoftext|>a"),
        ],
    )
    def test_a_prompt_of_ids_is_decoded_as_the_output_is(self, ids, skip, expected):
        answer = buffered([Finish(0, "stop")], prompt=ids, echo=True, skip_special_tokens=skip)
        assert answer["choices"][0]["text"] == expected


class TestLogprobs:
    def test_parallel_lists(self):
        top = [(98, -0.25), (97, -0.5)]
        events = [TextDelta(0, "a", (row("a", -0.5, top),)), TextDelta(0, " the", (row(" the", -1.5),)), Finish(0, "s")]
        expected = {
            "tokens": ["a", " the"],
            "token_logprobs": [-0.5, -1.5],
            "top_logprobs": [{"b": -0.25, "a": -0.5}, {" the": -1.5}],
            "text_offset": [0, 1],
        }
        assert buffered(events, logprobs=2)["choices"][0]["logprobs"] == expected
        assert assembled(stream([events], logprobs=2))[0] == ["a the", expected]

    def test_the_sampled_token_is_always_among_the_best(self):
        events = [TextDelta(0, "a", (row("a", -3.0, [(98, -0.25)]),)), Finish(0, "stop")]
        assert buffered(events, logprobs=1)["choices"][0]["logprobs"]["top_logprobs"] == [{"b": -0.25, "a": -3.0}]

    def test_what_the_engine_has_no_value_for_is_very_unlikely(self):
        events = [TextDelta(0, "a", (row("a", None),)), Finish(0, "stop")]
        assert buffered(events, logprobs=0)["choices"][0]["logprobs"]["token_logprobs"] == [-9999.0]

    def test_echo_brings_those_of_the_prompt_and_the_first_has_none(self):
        prompt = (TokenLogprobs(83, None), row("a", -1.0), row("y", -2.0))
        pulls = [[PromptLogprobs(0, prompt)], [TextDelta(0, " the", (row(" the"),)), Finish(0, "stop"), Usage()]]
        expected = {
            "tokens": ["S", "a", "y", " the"],
            "token_logprobs": [None, -1.0, -2.0, -0.5],
            "top_logprobs": [None, {"a": -1.0}, {"y": -2.0}, {" the": -0.5}],
            "text_offset": [0, 1, 2, 3],
        }
        fields = {"echo": True, "logprobs": 1}
        (choice,) = buffered([event for events in pulls for event in events], **fields)["choices"]
        assert (choice["text"], choice["logprobs"]) == ("Say the", expected)
        assert assembled(stream(pulls, **fields))[0] == ["Say the", expected]

    def test_an_engine_that_tells_nothing_of_the_prompt_does_not_cost_its_text(self):
        events = [TextDelta(0, "a", (row("a"),)), Finish(0, "stop"), Usage()]
        text, rows = assembled(stream([events], echo=True, logprobs=0))[0]
        assert (text, rows["text_offset"]) == ("Saya", [3])

    def test_offsets_are_characters_also_where_tokens_cut_them(self):
        ids = mock.encode_text("é😀")
        prompt = tuple(TokenLogprobs(token, -1.0) for token in ids)
        events = [PromptLogprobs(0, prompt), TextDelta(0, "x", (row("x"),)), Finish(0, "stop")]
        (choice,) = buffered(events, prompt="é😀", echo=True, logprobs=0)["choices"]
        assert choice["logprobs"]["text_offset"] == [0, 0, 1, 1, 1, 1, 2]
        assert choice["logprobs"]["tokens"][:2] == ["bytes:\\xc3", "bytes:\\xa9"]

    def test_a_bos_the_tokenizer_added_is_told_and_has_no_length(self):
        prompt = (TokenLogprobs(mock.IM_START, None), TokenLogprobs(97, -1.0))
        events = [PromptLogprobs(0, prompt), Finish(0, "stop")]
        logprobs = buffered(events, prompt="a", echo=True, logprobs=0)["choices"][0]["logprobs"]
        assert (logprobs["tokens"], logprobs["text_offset"]) == (["<|im_start|>", "a"], [0, 0])

    @pytest.mark.parametrize(
        ("token", "expected"),
        [(97, "a"), (0xE2, "bytes:\\xe2"), (mock.EOS, "<|im_end|>"), (10_000, "<token_10000>"), (-1, "<token_-1>")],
    )
    def test_every_token_has_a_text_of_its_own(self, token, expected):
        assert token_text(token, DECODER) == expected


class TestBestOf:
    def test_the_best_by_mean_log_probability_come_first(self):
        values = {0: [-1.0, -1.0], 1: [-0.1], 2: [-0.5, -0.1, -0.9]}
        events = []
        for choice, each in values.items():
            events += [TextDelta(choice, str(choice), tuple(row("a", value) for value in each))]
            events += [Finish(choice, "stop")]
        answer = buffered([*events, Usage(1, 6)], n=3, keep=2)
        assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [(0, "1"), (1, "2")]
        assert all(choice["logprobs"] is None for choice in answer["choices"])
        # What was generated was generated, whether it is returned or not.
        assert answer["usage"]["completion_tokens"] == 6

    def test_of_each_prompt_by_itself(self):
        events = []
        for choice, value in enumerate([-1.0, -2.0, -4.0, -3.0]):
            events += [TextDelta(choice, str(choice), (row("a", value),)), Finish(choice, "stop")]
        answer = buffered(events, n=2, keep=1, prompts=["a", "b"])
        assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [(0, "0"), (1, "3")]
