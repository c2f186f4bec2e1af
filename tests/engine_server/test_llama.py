"""The embedded engine keeps the vLLM contract, with a real model (spec engine-contract 2.1 to 2.10)."""

import asyncio
import hashlib
import io
import zipfile

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto import vllm_engine_pb2_grpc
from smg_grpc_proto.generated import common_pb2
from tokenizers import Tokenizer

from smg.engine_server.llama import DEFAULT_NAME, LlamaEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

EOS = 2
CONTEXT = 256


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub():
    async with (
        LlamaEngine(slots=4, context_length=CONTEXT) as engine,
        grpc.aio.insecure_channel(engine.address) as channel,
    ):
        stub = vllm_engine_pb2_grpc.VllmEngineStub(channel)
        stub.channel = channel
        yield stub


@pytest.fixture
def chat(model):
    """Prompt ids of one user turn."""

    def chat(text: str) -> list[int]:
        return model.tokenize(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")

    return chat


@pytest.fixture
def running(stub):
    async def running() -> int:
        load = (await stub.GetLoads(pb.GetLoadsRequest())).loads[0]
        return load.num_total_reqs + (await stub.GetServerInfo(pb.GetServerInfoRequest())).active_requests

    return running


async def test_it_answers(stub, request_of, drain, chat, text_of):
    answer = await drain(
        stub.Generate(request_of(chat("What is the capital of France?"), temperature=0, max_tokens=20))
    )
    assert "Paris" in text_of(answer.ids())


async def test_a_stream_brings_deltas_and_complete_repeats_the_last(stub, request_of, drain, chat):
    prompt = chat("Count to ten.")
    answer = await drain(stub.Generate(request_of(prompt, seed=1, max_tokens=9)))
    chunks = answer.chunks[0]
    assert len(answer.ids()) == 9
    assert [chunk.completion_tokens for chunk in chunks] == [len(chunk.token_ids) for chunk in chunks]
    assert {chunk.prompt_tokens for chunk in chunks} == {len(prompt)}
    assert answer.complete.output_ids == chunks[-1].token_ids
    assert answer.complete.completion_tokens == len(chunks[-1].token_ids)
    assert answer.complete.finish_reason == "length"
    assert answer.complete.WhichOneof("matched_stop") is None


async def test_buffered_and_streamed_answers_are_the_same(stub, request_of, drain, chat):
    prompt = chat("Tell me about the sea.")
    streamed = await drain(stub.Generate(request_of(prompt, seed=5, max_tokens=12)))
    whole = await drain(stub.Generate(request_of(prompt, seed=5, max_tokens=12, stream=False)))
    assert whole.order == [("complete", 0)]
    assert list(whole.complete.output_ids) == streamed.ids()
    assert whole.complete.completion_tokens == 12


async def test_the_end_of_sequence_stops_and_is_kept_without_a_match(stub, request_of, drain, chat):
    prompt = chat("What is the capital of France?")
    answer = await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=60)))
    assert answer.ids()[-1] == EOS
    assert answer.complete.finish_reason == "stop"
    assert answer.complete.WhichOneof("matched_stop") is None
    count = len(answer.ids())
    longer = await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=count + 3, ignore_eos=True)))
    assert longer.ids()[:count] == answer.ids()
    assert len(longer.ids()) == count + 3
    held = await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=count + 1, min_tokens=count + 1)))
    assert EOS not in held.ids()[:count]


async def test_a_stop_id_stops_and_is_told(stub, request_of, drain, chat):
    prompt = chat("What is the capital of France?")
    free = (await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=6)))).ids()
    answer = await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=6, stop_token_ids=[free[3]])))
    assert answer.ids() == free[: free.index(free[3]) + 1]
    assert (answer.complete.finish_reason, answer.complete.matched_token_id) == ("stop", free[3])


async def test_sampling_parameters_reach_the_sampler(stub, request_of, drain, chat):
    prompt = chat("Say something.")
    biased = await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=4, logit_bias={100: 100.0})))
    assert biased.ids() == [100] * 4
    penalised = await drain(
        stub.Generate(
            request_of(prompt, temperature=0, max_tokens=4, logit_bias={100: 50.0, 101: 49.5}, presence_penalty=2.0)
        )
    )
    assert set(penalised.ids()[:2]) == {100, 101}
    greedy = await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=6)))
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        one = await drain(stub.Generate(request_of(prompt, temperature=5.0, max_tokens=6, **narrow)))
        assert one.ids() == greedy.ids(), narrow


@pytest.mark.parametrize(
    "penalty", [{"presence_penalty": 2.0}, {"frequency_penalty": 2.0}, {"repetition_penalty": 1.5}]
)
async def test_each_penalty_makes_room_for_the_second_best(stub, request_of, drain, chat, penalty):
    fields = {"temperature": 0, "max_tokens": 2, "logit_bias": {100: 60.0, 101: 59.5}}
    free = await drain(stub.Generate(request_of(chat("Say something."), **fields)))
    assert len(set(free.ids())) == 1
    penalised = await drain(stub.Generate(request_of(chat("Say something."), **fields, **penalty)))
    assert set(penalised.ids()) == {100, 101}


async def test_before_min_tokens_the_model_is_kept_from_stop_ids(stub, request_of, drain, chat):
    prompt = chat("What is the capital of France?")
    free = (await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=6)))).ids()
    # An id that the model does not have cannot come, and does no harm.
    held = request_of(prompt, temperature=0, max_tokens=6, min_tokens=6, stop_token_ids=[free[3], 10**6])
    answer = await drain(stub.Generate(held))
    assert answer.ids()[:3] == free[:3]
    assert free[3] not in answer.ids()
    assert (len(answer.ids()), answer.complete.finish_reason) == (6, "length")


async def test_choices_draw_for_themselves_and_count_the_seed_up(stub, request_of, drain, chat):
    prompt = chat("Name a colour.")
    answer = await drain(stub.Generate(request_of(prompt, n=3, seed=40, max_tokens=8)))
    assert sorted(answer.completes) == [0, 1, 2]
    for index in range(3):
        alone = await drain(stub.Generate(request_of(prompt, seed=40 + index, max_tokens=8)))
        assert answer.ids(index) == alone.ids()
    assert len({tuple(answer.ids(index)) for index in range(3)}) > 1
    assert {complete.prompt_tokens for complete in answer.completes.values()} == {len(prompt)}


async def test_logprobs_have_a_row_per_id(stub, request_of, drain, chat):
    prompt = chat("Hello!")
    answer = await drain(stub.Generate(request_of(prompt, temperature=0, max_tokens=4, logprobs=3)))
    for chunk in answer.chunks[0]:
        rows = chunk.output_logprobs
        assert list(rows.token_ids) == list(chunk.token_ids)
        for token, value, top in zip(rows.token_ids, rows.token_logprobs, rows.top_logprobs, strict=True):
            assert top.token_ids[0] == token
            assert top.values[0] == value == max(top.values) < 0
            assert len(top.values) == 3
    bare = await drain(stub.Generate(request_of(prompt, max_tokens=2, logprobs=0, stream=False)))
    assert len(bare.complete.output_logprobs.token_logprobs) == 2
    assert [len(top.values) for top in bare.complete.output_logprobs.top_logprobs] == [0, 0]
    every = await drain(stub.Generate(request_of(prompt, max_tokens=1, logprobs=-1)))
    (row,) = every.complete.output_logprobs.top_logprobs
    assert sorted(row.token_ids) == list(range(49152))
    assert row.token_ids[0] == every.ids()[0]
    none = await drain(stub.Generate(request_of(prompt, max_tokens=1)))
    assert not none.complete.HasField("output_logprobs")


async def test_unset_scalars_are_neutral(stub, drain, request_of, chat):
    prompt = chat("Hi")
    bare = pb.GenerateRequest(
        tokenized=pb.TokenizedInput(input_ids=prompt),
        sampling_params=pb.SamplingParams(max_tokens=5, seed=3),
        stream=True,
    )
    explicit = request_of(prompt, max_tokens=5, seed=3)
    assert (await drain(stub.Generate(bare))).ids() == (await drain(stub.Generate(explicit))).ids()


async def test_text_can_be_the_prompt(stub, drain, model):
    text = "<|im_start|>user\nHi<|im_end|>\n"
    params = pb.SamplingParams(max_tokens=2, temperature=0)
    answer = await drain(stub.Generate(pb.GenerateRequest(text=text, sampling_params=params)))
    assert answer.complete.prompt_tokens == len(model.tokenize(text))


async def refusal(stub, drain, message) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(stub.Generate(message))
    return caught.value.code(), caught.value.details()


@pytest.mark.parametrize(
    ("prompt", "params", "words"),
    [
        ([], {}, "empty"),
        ([5] * CONTEXT, {}, "no room in the context of 256"),
        ([49152], {}, "outside the vocabulary"),
        ([5], {"max_tokens": 0}, "max_tokens"),
        ([5], {"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
        ([5], {"temperature": -1}, "temperature"),
        ([5], {"temperature": float("nan")}, "temperature"),
        ([5], {"top_p": 1.5}, "top_p"),
        ([5], {"n": 65}, "n must"),
        ([5], {"logprobs": 21}, "logprobs"),
        ([5], {"logprobs": -2}, "logprobs"),
        ([5], {"prompt_logprobs": 21}, "prompt_logprobs"),
        ([5], {"logit_bias": {49152: 1.0}}, "logit_bias"),
        ([5], {"logit_bias": {-1: 1.0}}, "logit_bias"),
    ],
)
async def test_wrong_values_are_refused_by_name(stub, drain, request_of, prompt, params, words):
    code, message = await refusal(stub, drain, request_of(prompt, **params))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert words in message


@pytest.mark.parametrize(
    ("params", "fields", "words"),
    [
        ({"stop": ["x"]}, {}, "stop strings"),
        ({}, {"mm_inputs": pb.MultimodalInputs()}, "multimodal"),
        ({}, {"kv_transfer_params_json": "{}"}, "KV transfer"),
    ],
)
async def test_what_it_cannot_do_is_never_silently_ignored(stub, drain, request_of, params, fields, words):
    message = request_of([5], **params)
    message.MergeFrom(pb.GenerateRequest(**fields))
    code, text = await refusal(stub, drain, message)
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert words in text


async def test_a_prompt_goes_on_from_what_is_cached(stub, drain, request_of, chat):
    prompt = chat("A quite particular question about prefixes, long enough to matter here and everywhere?")
    first = await drain(stub.Generate(request_of(prompt, seed=9, max_tokens=5)))
    again = await drain(stub.Generate(request_of(prompt, seed=9, max_tokens=5)))
    assert first.complete.cached_tokens < len(prompt) // 2
    assert again.complete.cached_tokens == len(prompt) - 1
    assert {chunk.cached_tokens for chunk in again.chunks[0]} == {len(prompt) - 1}
    assert again.ids() == first.ids()
    next_turn = [*prompt, *first.ids(), 2, 198]
    longer = await drain(stub.Generate(request_of(next_turn, max_tokens=1)))
    # The last token of the first answer was sampled but never decoded.
    assert longer.complete.cached_tokens == len(prompt) + 4


async def test_a_running_neighbours_prefix_is_copied(stub, drain, request_of, chat):
    prompt = chat(
        "Tell a story of a fisherman, his wife, their house by the sea and the fish that could speak to them."
    )
    call = stub.Generate(request_of(prompt, seed=1, max_tokens=200, ignore_eos=True))
    await call.read()
    beside = await drain(stub.Generate(request_of(prompt, seed=2, max_tokens=6)))
    call.cancel()
    assert beside.complete.cached_tokens == len(prompt) - 1
    alone = await drain(stub.Generate(request_of(prompt, seed=2, max_tokens=6)))
    assert beside.ids() == alone.ids()


async def test_a_generation_ends_with_its_context(stub, drain, request_of):
    prompt = [5] * (CONTEXT - 3)
    answer = await drain(stub.Generate(request_of(prompt, seed=1, ignore_eos=True)))
    assert len(answer.ids()) == 3
    assert answer.complete.finish_reason == "length"


async def test_seeded_requests_are_the_same_alone_and_in_a_batch(stub, request_of, drain, chat):
    topics = ["sea", "moon", "bread", "a very long walk through an old town in the rain " * 3]
    prompts = [chat(f"Write about {topics[number % 4]} ({number}).") for number in range(16)]
    requests = [
        request_of(prompt, id=f"s-{number}", seed=number, temperature=0.9, top_p=0.95, max_tokens=6 + number % 5)
        for number, prompt in enumerate(prompts)
    ]
    together = await asyncio.gather(*(drain(stub.Generate(message)) for message in requests))
    alone = [await drain(stub.Generate(message)) for message in requests]
    assert [answer.ids() for answer in together] == [answer.ids() for answer in alone]


async def test_abort_ends_with_a_complete_and_frees_the_slot(stub, request_of, drain, chat, running, settle):
    call = stub.Generate(request_of(chat("Go on forever."), id="a-1", ignore_eos=True))
    await call.read()
    assert await running() == 2
    await stub.Abort(pb.AbortRequest(request_ids=["unknown", "a-1"]))
    answer = await drain(call)
    assert answer.complete.finish_reason == "abort"
    await settle(running, 0)


async def test_a_cancelled_call_stops_decoding_even_while_it_waits(stub, request_of, chat, running, settle):
    calls = [stub.Generate(request_of(chat(f"Go on, {number}."), n=2, ignore_eos=True)) for number in range(4)]
    await calls[0].read()
    await settle(running, 8 + 4)
    for call in calls:
        call.cancel()
    await settle(running, 0)


async def test_a_line_that_is_too_long_is_refused(stub, request_of, drain, chat, running, settle, monkeypatch):
    monkeypatch.setattr("smg.engine_server.llama.servicer.MAX_WAITING", 1)

    async def decoding() -> int:
        return (await stub.GetLoads(pb.GetLoadsRequest())).loads[0].num_running_reqs

    calls = [stub.Generate(request_of(chat("Go on."), n=4, ignore_eos=True))]
    await settle(decoding, 4)
    calls.append(stub.Generate(request_of(chat("Go on."), ignore_eos=True)))
    await settle(running, 5 + 2)
    code, message = await refusal(stub, drain, request_of(chat("Me too.")))
    assert (code, message) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "1 requests are waiting already")
    for call in calls:
        call.cancel()
    await settle(running, 0)


async def test_reports(stub, request_of, drain, chat, model):
    await drain(stub.Generate(request_of(chat("Hi"), max_tokens=2)))
    info = await stub.GetModelInfo(pb.GetModelInfoRequest())
    assert info.served_model_name == DEFAULT_NAME
    assert (info.max_context_length, info.max_req_input_len, info.vocab_size) == (CONTEXT, CONTEXT - 1, 49152)
    assert info.eos_token_ids[0] == EOS
    assert (info.model_type, list(info.architectures), info.is_generation) == ("llama", ["LlamaForCausalLM"], True)
    server = await stub.GetServerInfo(pb.GetServerInfoRequest())
    assert (server.server_type, server.max_num_seqs, server.active_requests) == ("vllm-grpc", 4, 0)
    assert server.last_receive_timestamp > 0
    load = (await stub.GetLoads(pb.GetLoadsRequest(include=["core"]))).loads[0]
    assert (load.max_total_num_tokens, load.max_running_requests) == (4 * CONTEXT, 4)
    assert load.gen_throughput > 0
    assert 0 < load.cache_hit_rate < 1
    assert not (await stub.GetLoads(pb.GetLoadsRequest(dp_rank=1))).loads


async def test_health(stub):
    assert (await stub.HealthCheck(pb.HealthCheckRequest())).healthy
    for service in ("", "vllm.grpc.engine.VllmEngine"):
        check = health_pb2_grpc.HealthStub(stub.channel).Check(health_pb2.HealthCheckRequest(service=service))
        assert (await check).status == health_pb2.HealthCheckResponse.SERVING


async def test_the_tokenizer_bundle_matches_the_engine(stub, model):
    chunks = [chunk async for chunk in stub.GetTokenizer(common_pb2.GetTokenizerRequest())]
    archive = b"".join(chunk.data for chunk in chunks)
    assert max(len(chunk.data) for chunk in chunks) == 64 << 10
    assert [chunk.sha256 for chunk in chunks] == [""] * (len(chunks) - 1) + [hashlib.sha256(archive).hexdigest()]
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        tokenizer = Tokenizer.from_str(files.read("tokenizer.json").decode())
    text = "<|im_start|>user\nWas kostet das? 12€<|im_end|>\n"
    assert tokenizer.encode(text).ids == model.tokenize(text)


async def test_only_profiling_is_left_out(stub):
    for call in (
        stub.StartProfile(common_pb2.StartProfileRequest()),
        stub.StopProfile(common_pb2.StopProfileRequest()),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.StartProfile(common_pb2.StartProfileRequest(num_steps=3))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
