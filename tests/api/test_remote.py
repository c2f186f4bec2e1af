"""HTTP engines asked in another dialect than the client's: events through their chat or completions API."""

import json

import pytest

from smg.engine_server.mock.http import HttpFault, HttpScript, MockHttpEngine
from tests.api.http_world import MODEL, place
from tests.api.serving import frames, send, until
from tests.api.test_forward import post

GENERATE = "/generate"
ONLY_CHAT = frozenset({"/v1/completions"})


def engine(**script) -> MockHttpEngine:
    return MockHttpEngine(HttpScript(**({"texts": ("one two three",)} | script)), server="vllm")


async def test_a_prompt_goes_to_the_completions_api():
    async with place(engine()) as at:
        params = {"max_new_tokens": 7, "temperature": 0.5, "stop": ["END"], "top_k": 3}
        answer = await post(at.url, GENERATE, {"text": "hi there", "sampling_params": params})
        body = answer.json()
        assert (answer.status_code, body["text"]) == (200, "one two three")
        assert (body["meta_info"]["prompt_tokens"], body["meta_info"]["completion_tokens"]) == (2, 3)
        seen = at.engines[0].requests[0]
        assert seen.path == "/v1/completions"
        assert seen.json == {
            "model": MODEL,
            "prompt": "hi there",
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 7,
            "temperature": 0.5,
            "top_k": 3,
            "stop": ["END"],
        }
        assert seen.header("x-request-id")[0] == answer.headers["x-request-id"]
        await until(at.idle)


@pytest.mark.parametrize("piece", [0, 1, 9])
async def test_streamed_equals_buffered(piece):
    async with place(engine(piece=piece)) as at:
        whole = (await post(at.url, GENERATE, {"text": "hi"})).json()
        *events, done = frames((await post(at.url, GENERATE, {"text": "hi", "stream": True})).content)
        assert done == "data: [DONE]"
        assert events[-1]["text"] == whole["text"] == "one two three"
        assert events[-1]["meta_info"]["completion_tokens"] == 3
        await until(at.idle)


async def test_without_completions_a_prompt_becomes_what_the_user_says():
    async with place(engine(hidden=ONLY_CHAT)) as at:
        for path, body in ((GENERATE, {"text": "hi"}), ("/v1/completions", {"prompt": "hi", "max_tokens": 9})):
            answer = await post(at.url, path, body)
            assert answer.status_code == 200
            assert "one two three" in answer.text
        first, second = at.engines[0].requests
        assert first.path == second.path == "/v1/chat/completions"
        assert second.json["messages"] == [{"role": "user", "content": "hi"}]
        assert second.json["max_tokens"] == 9


async def test_token_ids_and_lists_of_prompts_reach_the_completions_api():
    async with place(engine(texts=("a", "b"))) as at:
        assert (await post(at.url, GENERATE, {"input_ids": [1, 2]})).status_code == 200
        answer = await post(at.url, GENERATE, {"text": ["x", "y"]})
        assert at.engines[0].requests[0].json["prompt"] == [1, 2]
        assert at.engines[0].requests[1].json["prompt"] == ["x", "y"]
        assert [each["text"] for each in answer.json()] == ["a", "a"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input_ids": [1]}, "input_ids"),
        ({"text": ["a", "b"]}, "text"),
        ({"text": "a", "return_logprob": True}, "logprobs"),
        ({"text": "a", "sampling_params": {"regex": "a+"}}, "response_format"),
    ],
)
async def test_what_the_other_api_has_no_place_for_is_refused_and_not_dropped(body, param):
    async with place(engine(hidden=ONLY_CHAT)) as at:
        answer = await post(at.url, GENERATE, body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", param)
        assert at.engines[0].requests == []
        assert at.idle()


async def test_the_engines_refusal_in_its_own_words():
    async with place(engine(faults=(HttpFault(status=400, message="prompt is too long"),))) as at:
        answer = await post(at.url, GENERATE, {"text": "hi", "stream": True})
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "prompt is too long")
        await until(at.idle)


async def test_RL_03_the_next_engine_is_asked_before_the_first_byte_and_none_after():
    async with place(engine(faults=(HttpFault(kind="reset", after=0),)), engine()) as at:
        for _ in range(2):
            assert (await post(at.url, GENERATE, {"text": "hi"})).json()["text"] == "one two three"
    async with place(engine(faults=(HttpFault(kind="reset", after=2),)), engine()) as at:
        bodies = [(await post(at.url, GENERATE, {"text": "hi", "stream": True})).text for _ in range(2)]
        broken = next(body for body in bodies if "[DONE]" not in body)
        assert json.loads(broken.strip().split("\n\n")[-1].removeprefix("data: "))["error"]["code"] == (
            "worker_stream_failed"
        )
        assert [len(each.requests) for each in at.engines] == [1, 1]
        await until(at.idle)


async def test_an_error_event_of_the_engine_is_a_failure():
    async with place(engine(faults=(HttpFault(kind="error", after=1, message="out of memory"),))) as at:
        answer = await post(at.url, GENERATE, {"text": "hi"})
        assert (answer.status_code, answer.json()["error"]["message"]) == (502, "out of memory")
        await until(at.idle)


async def test_RL_04_a_client_that_leaves():
    async with place(engine(texts=("word " * 400,), delay=0.02)) as at:
        _, writer = await send(at.url, {"text": "hi", "stream": True}, GENERATE)
        await until(lambda: at.engines[0].running == 1)
        writer.close()
        await until(lambda: at.engines[0].requests[0].state == "cancelled", 1.0)
        await until(at.idle)
