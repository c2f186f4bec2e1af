"""One client, engines of all five contracts: the same answers, streamed or not (spec engine-contract 10.1)."""

import openai
import pytest

from smg.engine_server.mock import CONTRACTS, Script
from smg.engine_server.mock import tokenizer as mock
from tests.api.contract_fleet import engines_of_contracts, services_over
from tests.api.serving import serving, until

HI = [{"role": "user", "content": "hi"}]
TEXT = "hello there, you"


@pytest.fixture
async def engines():
    async with engines_of_contracts(Script.text(TEXT)) as engines:
        yield engines


@pytest.fixture
async def gateway(engines, tmp_path):
    async with services_over(engines, tmp_path) as built:
        yield built


@pytest.fixture
async def client(gateway):
    async with (
        serving(gateway) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


async def streamed(client, **fields):
    """Texts, finish reasons and usage of a streamed answer."""
    texts, reasons, usage = {}, {}, None
    stream = await client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **fields)
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    return texts, reasons, usage


@pytest.mark.parametrize(
    ("fields", "text", "reason", "tokens"),
    [
        ({}, TEXT, "stop", 9),
        ({"max_tokens": 2}, TEXT[:2], "length", 2),
        ({"stop": ["there"]}, "hello ", "stop", None),
        ({"stop": [" you"]}, "hello there,", "stop", None),
        ({"extra_body": {"stop_token_ids": [mock.WORD_IDS[" you"]]}}, "hello there,", "stop", None),
        (
            {"extra_body": {"stop_token_ids": [mock.WORD_IDS[" you"]], "no_stop_trim": True}},
            "hello there, you",
            "stop",
            None,
        ),
        ({"logprobs": True, "top_logprobs": 2}, TEXT, "stop", 9),
    ],
    ids=str,
)
async def test_all_contracts_give_the_same_answer(client, fields, text, reason, tokens):
    usages = set()
    for name in CONTRACTS:
        whole = await client.chat.completions.create(model=name, messages=HI, **fields)
        [choice] = whole.choices
        assert (choice.message.content, choice.finish_reason) == (text, reason), name
        assert await streamed(client, model=name, messages=HI, **fields) == ({0: text}, {0: reason}, whole.usage), name
        usages.add((whole.usage.prompt_tokens, whole.usage.completion_tokens))
        if choice.logprobs:
            rows = choice.logprobs.content
            assert {row.logprob for row in rows} == {-0.5}
            assert {len(row.top_logprobs) for row in rows} == {2}
    assert len(usages) == 1
    if tokens is not None:
        assert usages.pop()[1] == tokens


async def test_a_stop_string_in_pieces_ends_the_engines_work(client, engines):
    """Spec engine-contract 10.1, test 3: an engine that makes a byte at a time, and would go on for ever."""
    ids = [*b"one two END three", *[ord("x")] * 400]
    for name in CONTRACTS:
        engine = engines[name]
        engine.script = Script(tokens=ids, eos=False, chunk_delay=0.005)
        for stream in (False, True):
            asked = {"model": name, "messages": HI, "stop": ["END"], "max_tokens": 500}
            if stream:
                texts, reasons, _ = await streamed(client, **asked)
                assert (texts, reasons) == ({0: "one two "}, {0: "stop"})
            else:
                whole = await client.chat.completions.create(**asked)
                assert whole.choices[0].message.content == "one two "
        await until(lambda engine=engine: engine.running == 0 and len(engine.aborted) == 2)
        assert engine.aborted == [request.id for request in engine.requests]
        assert max(len(request.sent[0]) for request in engine.requests) < 200


async def test_several_choices_where_the_contract_has_them(client):
    for name in CONTRACTS:
        question = {"model": name, "messages": HI, "n": 3}
        if name == "mlx":
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(**question)
            assert (caught.value.param, caught.value.code) == ("n", "unsupported_parameter")
            continue
        whole = await client.chat.completions.create(**question)
        assert [choice.index for choice in whole.choices] == [0, 1, 2]
        texts, _, usage = await streamed(client, **question)
        assert texts == {choice.index: choice.message.content for choice in whole.choices}
        assert usage == whole.usage


async def test_what_the_engine_cannot_do_is_refused_by_name(client, engines):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    for fields, param in (
        ({"response_format": schema}, "response_format"),
        ({"extra_body": {"regex": "a+"}}, "regex"),
        ({"extra_body": {"min_tokens": 2}}, "min_tokens"),
        ({"extra_body": {"lora_path": "sql"}}, "lora_path"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model="mlx", messages=HI, **fields)
        assert caught.value.param == param
    assert engines["mlx"].requests == []
    answer = await client.chat.completions.create(model="sglang", messages=HI, extra_body={"lora_path": "sql"})
    assert answer.choices[0].message.content == TEXT
    assert engines["sglang"].requests[-1].request.lora_id == "sql"


async def test_what_does_no_harm_is_answered_with_a_warning(client):
    for name in CONTRACTS:
        for stream in (False, True):
            raw = await client.chat.completions.with_raw_response.create(model=name, messages=HI, seed=3, stream=stream)
            expected = "not supported by the engine and ignored: seed" if name == "sglang" else None
            assert raw.headers.get("x-smg-warning") == expected, name


async def test_a_bias_reaches_every_engine_in_its_own_form(client, engines):
    for name in CONTRACTS:
        await client.chat.completions.create(model=name, messages=HI, logit_bias={"5": -100})
        request = engines[name].requests[-1].request
        if name == "trtllm":
            assert len(request.embedding_bias) == mock.VOCAB_SIZE
            assert request.embedding_bias[5] == -100
        else:
            assert list(request.sampling_params.logit_bias.values()) == [-100]


async def test_an_engine_that_only_embeds_gets_no_chat(client, engines):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="bge", messages=HI)
    assert caught.value.param == "model"
    assert "makes embeddings" in caught.value.message
    assert engines["bge"].requests == []


async def test_a_prompt_beyond_what_the_engine_takes(client, engines):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="trtllm", messages=[{"role": "user", "content": "a" * 33_000}])
    assert caught.value.code == "context_length_exceeded"
    assert engines["trtllm"].requests == []


async def test_leaving_stops_the_engine_whatever_its_contract(client, engines, gateway):
    for name in CONTRACTS:
        engines[name].script = Script(length=200, chunk_delay=0.05)
        stream = await client.chat.completions.create(model=name, messages=HI, stream=True)
        await anext(aiter(stream))
        await stream.close()
    await until(lambda: not any(engine.running for engine in engines.values()))
    assert all(len(engines[name].aborted) <= 1 for name in CONTRACTS)
    await until(lambda: gateway.region.requests_total() == 0)
