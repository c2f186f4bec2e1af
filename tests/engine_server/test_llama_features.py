"""Constraints, prompt scores, embeddings, cache flushes and KV events of the embedded engine, with a real model."""

import asyncio
import json
import re
from typing import Annotated, Any, Literal

import grpc
import msgspec
import numpy as np
import pytest
import pytest_asyncio
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc
from smg_grpc_proto.generated import common_pb2

from smg.engine_server.llama import LlamaEngine
from tests.engine_server.test_kv_events import Replayed

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub():
    async with (
        LlamaEngine(slots=4, context_length=512) as engine,
        grpc.aio.insecure_channel(engine.address, options=[("grpc.max_receive_message_length", -1)]) as channel,
    ):
        yield vllm_engine_pb2_grpc.VllmEngineStub(channel)


@pytest.fixture
def chat(model):
    """Prompt ids of one user turn."""

    def chat(text: str) -> list[int]:
        return model.tokenize(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")

    return chat


# -- constraints

SCHEMAS = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["a", "ü", "日本"]}, "maxItems": 3},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    },
    "shape": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "radius": {"type": "number", "minimum": 0, "maximum": 9}},
                "required": ["kind", "radius"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"kind": {"const": "box"}, "size": {"type": "array", "items": {"type": "integer"}}},
                "required": ["kind", "size"],
                "additionalProperties": False,
            },
        ]
    },
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-zäöü]{1,6}$"},
                    "left": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                },
                "required": ["name", "left"],
                "additionalProperties": False,
            }
        },
    },
    "anything": {"type": "object"},
}


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Person(Strict):
    name: Annotated[str, msgspec.Meta(max_length=12)]
    age: Annotated[int, msgspec.Meta(ge=0, le=150)]
    tags: Annotated[list[Literal["a", "ü", "日本"]], msgspec.Meta(max_length=3)]


class Circle(Strict, tag_field="kind", tag="circle"):
    radius: Annotated[float, msgspec.Meta(ge=0, le=9)]


class Box(Strict, tag_field="kind", tag="box"):
    size: list[int]


class Tree(Strict):
    name: Annotated[str, msgspec.Meta(pattern="^[a-zäöü]{1,6}$")]
    left: "Tree | None"


# The same schemas as types, so that what is valid is decided by another than the engine.
TYPES = {"person": Person, "shape": Circle | Box, "tree": Tree, "anything": dict[str, Any]}

# A small model goes on for ever where a schema lets it, so what closes a value is made likelier.
CLOSERS = {"tree": ["null", '"', "}"], "anything": ["}", '"}', '"']}


@pytest.mark.parametrize("name", SCHEMAS)
async def test_an_answer_under_a_schema_is_valid_unless_it_is_cut(stub, model, request_of, drain, chat, text_of, name):
    schema = SCHEMAS[name]
    closers = {token: 12.0 for text in CLOSERS.get(name, ()) for token in model.tokenize(text)}
    rest = {"max_tokens": 60, "json_schema": json.dumps(schema), "logit_bias": closers}
    prompt = chat("JSON, please: 日本語.")
    requests = [
        request_of(prompt, id=f"{name}-{seed}", seed=seed, temperature=heat, **rest)
        for seed, heat in ((1, 0.0), (2, 1.0), (3, 1.5), (4, 1.5))
    ]
    answers = await asyncio.gather(*(drain(stub.Generate(message)) for message in requests))
    whole = [answer for answer in answers if answer.complete.finish_reason == "stop"]
    for answer in whole:
        msgspec.json.decode(text_of(answer.ids()), type=TYPES[name])
    assert len(whole) >= 2


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        ({"regex": r"[A-Z][a-z]{2,8}, \d{4}"}, r"[A-Z][a-z]{2,8}, \d{4}"),
        ({"choice": pb.ChoiceConstraint(choices=["yes", "no", "größer"])}, "yes|no|größer"),
        ({"grammar": 'root ::= "<" [a-z]{1,5} ">" | "-"'}, "<[a-z]{1,5}>|-"),
        ({"grammar": "start: /[0-9]{2}/ | start /x/"}, "[0-9]{2}x*"),
        ({"json_object": True}, r"\{.*\}"),
    ],
    ids=["regex", "choice", "gbnf", "lark", "json_object"],
)
async def test_every_kind_of_constraint_holds(stub, request_of, drain, chat, text_of, constraint, pattern):
    for seed in range(3):
        message = request_of(chat("Go on."), seed=seed, temperature=1.5, max_tokens=30, **constraint)
        answer = await drain(stub.Generate(message))
        if answer.complete.finish_reason == "stop":
            assert re.fullmatch(pattern, text_of(answer.ids()), re.DOTALL)
        else:
            assert answer.complete.finish_reason == "length"


async def test_choices_and_the_end_keep_to_the_constraint(stub, request_of, drain, chat, text_of):
    answer = await drain(
        stub.Generate(request_of(chat("A or b?"), n=3, seed=5, min_tokens=9, max_tokens=20, regex="[ab]{3}"))
    )
    for index in range(3):
        assert re.fullmatch("[ab]{3}", text_of(answer.ids(index)))
    # Nothing can follow, so neither min_tokens nor ignore_eos makes it go on.
    assert {complete.finish_reason for complete in answer.completes.values()} == {"stop"}
    endless = await drain(
        stub.Generate(request_of(chat("A or b?"), seed=5, ignore_eos=True, max_tokens=20, regex="[ab]{3}"))
    )
    assert endless.ids() == answer.ids(0)


async def test_a_constrained_request_is_the_same_alone_and_beside_others(stub, request_of, drain, chat):
    schema = json.dumps(SCHEMAS["person"])
    message = request_of(chat("Who?"), seed=3, temperature=1.5, max_tokens=20, json_schema=schema)
    free = request_of(chat("Tell me a story."), seed=4, max_tokens=15)
    alone = await drain(stub.Generate(message))
    beside, _ = await asyncio.gather(drain(stub.Generate(message)), drain(stub.Generate(free)))
    assert beside.ids() == alone.ids()


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        ({"json_schema": '{"type": "array", "uniqueItems": true}'}, "uniqueItems"),
        ({"json_schema": "{"}, "not valid JSON"),
        ({"regex": "("}, "unclosed group"),
        ({"grammar": "root ::= missing"}, "no rule 'missing'"),
        ({"choice": pb.ChoiceConstraint()}, "nothing to choose"),
    ],
)
async def test_a_constraint_that_can_not_be_compiled_is_told_apart(stub, request_of, drain, constraint, words):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(stub.Generate(request_of([5], **constraint)))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert words in caught.value.details()
    assert ("smg-constraint-failed", "engine") in list(caught.value.trailing_metadata())


# -- prompt scores


async def test_prompt_logprobs_are_what_generating_the_prompt_would_have_given(stub, request_of, drain, chat):
    prompt = chat("Count: one, two, three.")
    free = await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=6, logprobs=3)))
    whole = [*prompt, *free.ids()]
    scored = await drain(stub.Generate(request_of(whole, temperature=0, max_tokens=2, prompt_logprobs=3)))
    rows = scored.chunks[0][0].input_logprobs
    assert list(rows.token_ids) == whole
    assert not rows.token_logprobs[0].HasField("value")
    assert len(rows.top_logprobs[0].values) == 0
    values = [row.value for row in rows.token_logprobs[1:]]
    assert all(value <= 0 for value in values)
    assert [next(iter(top.token_ids)) for top in rows.top_logprobs[1:]] == whole[1:]
    # Three, and the token itself where it is none of these.
    assert {(len(top.values), top.values[0] < min(top.values[1:])) for top in rows.top_logprobs[1:]} <= {
        *((3, False), (3, True), (4, True))
    }
    generated = [value for chunk in free.chunks[0] for value in chunk.output_logprobs.token_logprobs]
    assert values[len(prompt) - 1 :] == pytest.approx(generated, abs=1e-6)
    # Once only, whatever the cache holds by now.
    assert not any(chunk.HasField("input_logprobs") for chunk in scored.chunks[0][1:])
    assert scored.complete.cached_tokens == 0
    buffered = await drain(
        stub.Generate(request_of(whole, temperature=0, max_tokens=2, prompt_logprobs=0, stream=False))
    )
    assert [row.value for row in buffered.complete.input_logprobs.token_logprobs[1:]] == values
    assert {len(top.values) for top in buffered.complete.input_logprobs.top_logprobs} == {0}


async def test_every_choice_has_the_prompt_scores(stub, request_of, drain, chat):
    answer = await drain(stub.Generate(request_of(chat("Hi"), n=2, seed=1, max_tokens=2, prompt_logprobs=1)))
    first, second = (answer.chunks[index][0].input_logprobs for index in range(2))
    assert first == second
    assert len(first.token_ids) == len(chat("Hi"))


async def test_scores_of_the_whole_vocabulary_have_a_limit(stub, request_of, drain):
    answer = await drain(stub.Generate(request_of([5, 6, 7], max_tokens=1, prompt_logprobs=-1)))
    assert [len(top.values) for top in answer.chunks[0][0].input_logprobs.top_logprobs] == [0, 49152, 49152]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(stub.Generate(request_of([5] * 400, max_tokens=1, prompt_logprobs=-1)))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "at most 341 tokens" in caught.value.details()


# -- embeddings


async def test_embeddings_are_of_length_one_and_near_for_near_texts(stub, model):
    async def embed(text):
        message = pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=model.tokenize(text)))
        answer = await stub.Embed(message)
        assert answer.prompt_tokens == len(model.tokenize(text))
        assert answer.embedding_dim == len(answer.embedding) == 576
        return np.array(answer.embedding)

    cat, kitten, stocks = [
        await embed(text)
        for text in (
            "The cat sleeps on the warm sofa.",
            "A kitten is napping on the couch.",
            "Share prices fell sharply in Tokyo on Monday after the central bank raised its rates.",
        )
    ]
    for vector in (cat, kitten, stocks):
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert cat @ kitten > cat @ stocks
    assert (await embed("The cat sleeps on the warm sofa.")).tolist() == cat.tolist()


async def test_a_long_text_is_embedded_in_parts_and_beside_a_generation(stub, request_of, drain, chat):
    ids = list(range(300, 300 + 130))
    generation = asyncio.ensure_future(drain(stub.Generate(request_of(chat("Hi"), seed=1, max_tokens=10))))
    beside = await stub.Embed(pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=ids)))
    await generation
    alone = await stub.Embed(pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=ids)))
    assert beside == alone


@pytest.mark.parametrize(("ids", "words"), [([], "empty"), ([49152], "vocabulary"), ([5] * 512, "context of 512")])
async def test_what_can_not_be_embedded_is_refused(stub, ids, words):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Embed(pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=ids)))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in caught.value.details()


# -- the cache


async def test_a_flush_empties_the_cache_and_never_preempts(stub, request_of, drain, chat):
    prompt = chat("A question whose prefix is cached by the first of two equal requests.")
    await drain(stub.Generate(request_of(prompt, max_tokens=1)))
    assert (await stub.FlushCache(common_pb2.FlushCacheRequest())).success
    again = await drain(stub.Generate(request_of(prompt, max_tokens=1)))
    assert again.complete.cached_tokens == 0
    call = stub.Generate(request_of(prompt, ignore_eos=True))
    await call.read()
    refused = await stub.FlushCache(common_pb2.FlushCacheRequest())
    assert (refused.success, refused.message) == (False, "requests are running")
    waiting = stub.FlushCache(common_pb2.FlushCacheRequest(timeout_s=30))
    call.cancel()
    assert (await waiting).success
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.FlushCache(common_pb2.FlushCacheRequest(timeout_s=-1))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_kv_events_follow_what_is_cached(stub, request_of, drain, chat):
    assert (await stub.GetServerInfo(pb.GetServerInfoRequest())).block_size == 16
    assert (await stub.FlushCache(common_pb2.FlushCacheRequest(timeout_s=30))).success
    events = stub.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest())
    await events.initial_metadata()
    replayed = Replayed()
    replayed.apply(await events.read())
    assert not +replayed.copies
    prompt = list(range(1000, 1040))
    answer = await drain(stub.Generate(request_of(prompt, seed=1, max_tokens=30, ignore_eos=True)))
    # 40 prompt and 29 output tokens were decoded: the last one was only sampled.
    while sum((+replayed.copies).values()) < 69 // 16:
        replayed.apply(await events.read())
    assert replayed.stored[-1] == tuple([*prompt, *answer.ids()][48:64])
    late = stub.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest())
    snapshot = Replayed()
    snapshot.apply(await late.read())
    assert (snapshot.cursor, +snapshot.copies) == (replayed.cursor, +replayed.copies)
    resumed = stub.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest(start_sequence_number=replayed.cursor))
    assert (await resumed.read()).sequence_number == replayed.cursor
    for call in (events, late, resumed):
        call.cancel()
    ahead = stub.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest(start_sequence_number=10**9))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ahead.read()
    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
