"""Completions and generate through everything but the processes: clients, Sanic, real services, gRPC, mock engines."""

import asyncio
import json

import aiohttp
import openai
import pytest

from smg.engine_server.mock import Script
from smg.engine_server.mock import tokenizer as mock
from tests.api.conftest import idle, say
from tests.api.serving import frames, until


async def streamed(client, **fields):
    """Assemble a stream the way clients do: text, finish reason and logprobs by index, and usage."""
    texts, reasons, rows, usage = {}, {}, {}, None
    async for chunk in await client.completions.create(model="mock", stream=True, **fields):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
            if choice.logprobs:
                for name, values in choice.logprobs.to_dict().items():
                    rows.setdefault(choice.index, {}).setdefault(name, []).extend(values)
            if choice.finish_reason:
                assert choice.index not in reasons
                reasons[choice.index] = choice.finish_reason
    return texts, reasons, rows, usage


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (Script.text("hello there, world"), {"prompt": "Say"}),
        (Script.text("hello there"), {"prompt": ["Say", "Tell", "Ask"]}),
        (Script.text("one", "two and more"), {"prompt": ["Say", "Tell"], "n": 2}),
        (Script.text("naïve 😀 日本", split="byte"), {"prompt": mock.encode_text("Say"), "max_tokens": 40}),
        (Script.text("before STOP after"), {"prompt": [[1, 2], [3]], "stop": ["STOP"]}),
        (Script.text("one. two. three"), {"prompt": "Say", "stop": ["."]}),
        (Script.text("a long answer that is cut"), {"prompt": "Say", "max_tokens": 3}),
        (Script.text("an answer that is cut by the usual limit of sixteen tokens"), {"prompt": "Say"}),
        (Script.text("held to the end ##"), {"prompt": "Say", "stop": ["###"], "max_tokens": 40}),
        (Script.text(" so it is"), {"prompt": ["Say", "Tell"], "echo": True}),
        (Script.text(" so STOP it is"), {"prompt": "né 😀", "echo": True, "logprobs": 2, "stop": ["STOP"]}),
        (Script.text(" so it is"), {"prompt": ["Say", "Tell"], "n": 2, "echo": True, "logprobs": 0}),
        (Script.text("unused"), {"prompt": ["Say", "Tell"], "echo": True, "logprobs": 1, "max_tokens": 0}),
    ],
)
async def test_streamed_and_buffered_answers_agree(client, gateway, engines, script, fields):
    say(engines, script)
    whole = await client.completions.create(model="mock", **fields)
    texts, reasons, rows, usage = await streamed(client, stream_options={"include_usage": True}, **fields)
    assert texts == {choice.index: choice.text for choice in whole.choices}
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}
    assert rows == {choice.index: choice.logprobs.to_dict() for choice in whole.choices if choice.logprobs}
    assert usage == whole.usage
    await idle(gateway, engines)
    if "STOP" not in str(fields):
        # Every other end is the engine's own and must not be answered with an Abort (field case TX-07).
        assert [engine.aborted for engine in engines] == [[], []]


async def test_usage_counts_each_prompt_once(client, engines):
    say(engines, Script.text("ab", split="byte", cached_tokens=1))
    whole = await client.completions.create(model="mock", prompt=["one", "four"], n=2)
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3 + 4, 4 * 3)
    assert whole.usage.prompt_tokens_details.cached_tokens == 2


async def test_the_best_of_several(client, engines):
    say(engines, Script.text("one", "two", "three"))
    whole = await client.completions.create(model="mock", prompt="Say", n=1, best_of=3)
    assert [choice.index for choice in whole.choices] == [0]
    assert whole.choices[0].logprobs is None
    assert max(engine.requests[-1].request.sampling_params.n for engine in engines if engine.requests) == 3


async def test_only_the_prompt_is_scored_with_max_tokens_zero(client, engines):
    say(engines, Script.text("unused"))
    whole = await client.completions.create(model="mock", prompt="Say", echo=True, logprobs=1, max_tokens=0)
    (choice,) = whole.choices
    assert (choice.text, choice.finish_reason, whole.usage.completion_tokens) == ("Say", "length", 0)
    assert choice.logprobs.tokens == ["S", "a", "y"]
    assert choice.logprobs.token_logprobs == [None, -0.5, -0.5]
    assert choice.logprobs.text_offset == [0, 1, 2]


async def test_TX_07_each_choice_ends_by_itself_and_the_engine_hears_once(client, gateway, engines):
    say(engines, Script.text("one\n\nxx and so on", "two three\n\nyy and so on"))
    whole = await client.completions.create(model="mock", prompt="Say", n=2, stop=["\n\n"], max_tokens=40)
    assert [(choice.text, choice.finish_reason) for choice in whole.choices] == [("one", "stop"), ("two three", "stop")]
    # "one", two line feeds; "two", a word, two line feeds.
    assert whole.usage.completion_tokens == 5 + 3 + len(mock.encode_text(" three")) + 2
    await idle(gateway, engines)
    await until(lambda: sum(len(engine.aborted) for engine in engines) == 1)


class TestGaps:
    TOKENS = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
    FIRST = mock.tokenizer().get_vocab_size()

    @pytest.fixture
    def model_dir(self, model_dir):
        """The same model, with the tokens for filling gaps."""
        file = model_dir / "tokenizer.json"
        tokenizer = json.loads(file.read_text())
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        tokenizer["added_tokens"] += [
            {"id": self.FIRST + number, "content": text, **plain} for number, text in enumerate(self.TOKENS)
        ]
        file.write_text(json.dumps(tokenizer))
        return model_dir

    @pytest.mark.parametrize("echo", [False, True])
    async def test_what_comes_before_and_after_is_in_the_prompt_and_only_the_gap_is_answered(
        self, client, engines, echo
    ):
        say(engines, Script.text("gap", vocab_size=self.FIRST + 3))
        whole = await client.completions.create(model="mock", prompt="def", suffix="end", echo=echo)
        (request,) = [request.request for engine in engines for request in engine.requests]
        before, after = mock.encode_text("def"), mock.encode_text("end")
        assert list(request.tokenized.input_ids) == [self.FIRST, *before, self.FIRST + 1, *after, self.FIRST + 2]
        assert whole.choices[0].text == "def" * echo + "gap"
        assert whole.usage.prompt_tokens == len(before) + len(after) + 3


@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
async def test_OA_07_half_an_emoji_is_a_400_that_names_the_field(url, path):
    field = "prompt" if path == "/v1/completions" else "text"
    async with aiohttp.ClientSession() as http:
        for stream in ("true", "false"):
            body = f'{{"{field}":"x \\ud83d","stream":{stream}}}'
            async with http.post(url + path, data=body) as response:
                error = (await response.json())["error"]
            assert (response.status, error["type"], error["param"]) == (400, "invalid_request_error", field)


async def test_errors_have_the_code_in_a_header(client):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(model="mock", prompt=["a", [1]])
    assert caught.value.response.headers["x-smg-error-code"] == "invalid_value"
    assert caught.value.param == "prompt[1]"
    with pytest.raises(openai.NotFoundError):
        await client.completions.create(model="nope", prompt=["a", "b"])


async def test_RL_04_a_client_that_leaves_stops_the_engines_of_all_prompts(client, gateway, engines):
    say(engines, Script.text("word " * 500, chunk_delay=0.01))
    stream = await client.completions.create(model="mock", prompt=["a", "b", "c"], stream=True, max_tokens=400)
    await anext(aiter(stream))
    await stream.close()
    await idle(gateway, engines)
    states = [request.state for engine in engines for request in engine.requests]
    assert len(states) == 3
    assert set(states) <= {"aborted", "cancelled"}


async def test_RL_03_an_engine_that_is_down_costs_no_prompt(client, gateway, engines):
    say(engines, Script.text("fine"))
    await engines[0].kill()
    whole = await client.completions.create(model="mock", prompt=["a", "b", "c", "d"])
    assert [choice.text for choice in whole.choices] == ["fine"] * 4


class TestGenerate:
    @pytest.mark.parametrize(
        "fields",
        [
            {"text": "Say"},
            {"text": ["Say", "Tell"]},
            {"input_ids": [[1, 2], [3]]},
            {"text": "Say", "sampling_params": {"n": 2, "max_new_tokens": 3}},
            {"text": "Say", "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2},
            {"text": "Say", "sampling_params": {"stop": ["STOP"]}, "return_logprob": True},
        ],
    )
    async def test_the_last_frame_of_each_is_the_buffered_object(self, post, gateway, engines, fields):
        say(engines, Script.text("naïve STOP 😀", split="byte", per_chunk=2))
        status, whole = await post("/generate", fields)
        assert status == 200
        status, body = await post("/generate", fields | {"stream": True})
        *parts, done = frames(body)
        assert done == "data: [DONE]"
        last, ids = {}, {}
        for part in parts:
            index = part.pop("index", 0)
            last[index] = part
            ids[index] = ids.get(index, []) + part["output_ids"]
        objects = whole if isinstance(whole, list) else [whole]
        assert len(last) == len(objects)
        for index, item in enumerate(objects):
            assert last[index]["text"] == item["text"]
            assert ids[index] == item["output_ids"]
            mine, other = last[index]["meta_info"], item["meta_info"]
            for info in (mine, other):
                del info["e2e_latency"]
                del info["id"]
            assert mine == other
        await idle(gateway, engines)

    async def test_ids_and_rows_are_as_many_as_tokens(self, post, engines):
        say(engines, Script.text("hi"))
        _, whole = await post("/generate", {"text": "Say", "return_logprob": True})
        info = whole["meta_info"]
        assert whole["output_ids"] == [*mock.encode_text("hi"), mock.EOS]
        assert info["completion_tokens"] == len(info["output_token_logprobs"]) == 3
        assert [entry[1] for entry in info["output_token_logprobs"]] == whole["output_ids"]

    async def test_text_is_whole_characters_in_every_frame(self, post, engines):
        say(engines, Script.text("日本 😀", split="byte"))
        _, body = await post("/generate", {"text": "Say", "stream": True})
        texts = [part["text"] for part in frames(body)[:-1]]
        assert texts[-1] == "日本 😀"
        assert all(texts[-1].startswith(text) for text in texts)

    async def test_an_engine_without_room_for_the_usual_limit_gets_what_fits(self, post, gateway, engines):
        prompt = "a" * 4090
        status, _ = await post("/generate", {"text": prompt})
        assert status == 200
        (request,) = [request for engine in engines for request in engine.requests]
        assert request.request.sampling_params.max_tokens == 6


async def test_many_prompts_at_once(client, gateway, engines):
    say(engines, Script.text("fine"))
    prompts = [f"number {number}" for number in range(150)]
    async with asyncio.timeout(30):
        whole = await client.completions.create(model="mock", prompt=prompts)
    assert [choice.index for choice in whole.choices] == list(range(150))
    assert {choice.text for choice in whole.choices} == {"fine"}
    await idle(gateway, engines)
