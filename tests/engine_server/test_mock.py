"""The mock engine keeps the vLLM contract, its quirks included (spec engine-contract 2.1, 2.2, 2.5, 2.6, 2.10)."""

import hashlib
import io
import json
import zipfile

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st
from smg_grpc_proto import vllm_engine_pb2 as pb
from smg_grpc_proto.generated import common_pb2
from tokenizers import Tokenizer

from smg.engine_server.mock import EOS, SERVICE, Fault, MockEngine, Script, decode_ids, encode_text

PROMPT = [1, 2, 3]


async def test_chunks_bring_new_ids_and_delta_counts_and_complete_repeats_the_last_delta(connect, request_of, drain):
    script = Script(tokens=[10, 11, 12, 13, 14], per_chunk=2)
    async with MockEngine(script) as engine, connect(engine.address) as stub:
        answer = await drain(stub.Generate(request_of(PROMPT)))
    assert [list(chunk.token_ids) for chunk in answer.chunks[0]] == [[10, 11], [12, 13], [14, EOS]]
    assert [chunk.completion_tokens for chunk in answer.chunks[0]] == [2, 2, 2]
    assert list(answer.complete.output_ids) == [14, EOS]
    assert answer.complete.completion_tokens == 2
    assert answer.complete.prompt_tokens == 3
    assert answer.complete.finish_reason == "stop"
    assert answer.complete.WhichOneof("matched_stop") is None


async def test_without_stream_one_complete_has_all_ids(connect, request_of, drain):
    async with MockEngine(Script(tokens=[10, 11, 12])) as engine, connect(engine.address) as stub:
        answer = await drain(stub.Generate(request_of(PROMPT, stream=False)))
    assert answer.order == [("complete", 0)]
    assert list(answer.complete.output_ids) == [10, 11, 12, EOS]
    assert answer.complete.completion_tokens == 4


async def test_the_other_workers_quirks(connect, request_of, drain):
    script = Script(
        tokens=[10, 11],
        complete_ids="all",
        delta_counts=False,
        empty_chunks=True,
        cached_tokens=2,
        late_cached=True,
    )
    async with MockEngine(script) as engine, connect(engine.address) as stub:
        answer = await drain(stub.Generate(request_of(PROMPT)))
    assert [list(chunk.token_ids) for chunk in answer.chunks[0]] == [[], [10], [], [11], [], [EOS]]
    assert [chunk.completion_tokens for chunk in answer.chunks[0]] == [1, 1, 2, 2, 3, 3]
    assert [chunk.cached_tokens for chunk in answer.chunks[0]] == [0, 2, 2, 2, 2, 2]
    assert list(answer.complete.output_ids) == [10, 11, EOS]
    assert answer.complete.completion_tokens == 3


async def test_choices_interleave_and_end_on_their_own(connect, request_of, drain):
    script = Script(choices=[[10], [20, 21, 22]])
    async with MockEngine(script) as engine, connect(engine.address) as stub:
        answer = await drain(stub.Generate(request_of(PROMPT, n=3)))
    assert answer.ids(0) == answer.ids(2) == [10, EOS]
    assert answer.ids(1) == [20, 21, 22, EOS]
    assert answer.order[:6] == [("chunk", 0), ("chunk", 1), ("chunk", 2), ("chunk", 0), ("complete", 0), ("chunk", 1)]
    assert sorted(answer.completes) == [0, 1, 2]


@pytest.mark.parametrize(
    ("params", "ids", "reason", "matched"),
    [
        ({}, [10, 11, 12, EOS], "stop", None),
        ({"max_tokens": 2}, [10, 11], "length", None),
        ({"max_tokens": 4}, [10, 11, 12, EOS], "stop", None),
        ({"stop_token_ids": [11]}, [10, 11], "stop", 11),
        ({"stop_token_ids": [11], "max_tokens": 2}, [10, 11], "stop", 11),
        ({"stop_token_ids": [EOS]}, [10, 11, 12, EOS], "stop", None),
        ({"stop_token_ids": [10], "min_tokens": 2}, [10, 11, 12, EOS], "stop", None),
        ({"ignore_eos": True, "max_tokens": 7}, [10, 11, 12, 10, 11, 12, 10], "length", None),
    ],
)
async def test_limits_and_stops(connect, request_of, drain, params, ids, reason, matched):
    async with MockEngine(Script(tokens=[10, 11, 12])) as engine, connect(engine.address) as stub:
        streamed = await drain(stub.Generate(request_of(PROMPT, **params)))
        whole = await drain(stub.Generate(request_of(PROMPT, stream=False, **params)))
    assert streamed.ids() == list(whole.complete.output_ids) == ids
    for answer in (streamed, whole):
        assert answer.complete.finish_reason == reason
        kind = answer.complete.WhichOneof("matched_stop")
        assert (answer.complete.matched_token_id if kind else None) == matched


async def test_the_default_answer_depends_on_the_prompt_and_the_choice_only(connect, request_of, drain):
    async with MockEngine() as engine, connect(engine.address) as stub:
        first, again, other = [await drain(stub.Generate(request_of(ids, n=2))) for ids in (PROMPT, PROMPT, [4, 5])]
    assert first.ids(0) == again.ids(0) != other.ids(0)
    assert first.ids(0) != first.ids(1)
    assert len(first.ids(0)) == Script().length + 1


async def test_tokens_may_be_a_function_of_the_request(connect, request_of, drain):
    def echo(request, choice):
        return [*request.tokenized.input_ids, choice]

    async with MockEngine(Script(tokens=echo)) as engine, connect(engine.address) as stub:
        answer = await drain(stub.Generate(request_of(PROMPT, n=2)))
    assert answer.ids(1) == [1, 2, 3, 1, EOS]


async def test_logprobs_have_one_row_per_id_with_the_sampled_token_first(connect, request_of, drain):
    script = Script(tokens=[10, 11], eos=False)
    async with MockEngine(script) as engine, connect(engine.address) as stub:
        answer = await drain(stub.Generate(request_of(PROMPT, logprobs=2, prompt_logprobs=1)))
    for chunk in answer.chunks[0]:
        rows = chunk.output_logprobs
        assert list(rows.token_ids) == list(chunk.token_ids)
        assert len(rows.token_logprobs) == len(rows.top_logprobs) == 1
        assert rows.top_logprobs[0].token_ids[0] == chunk.token_ids[0]
        assert rows.top_logprobs[0].values[1] > rows.top_logprobs[0].values[0]
    prompt = answer.chunks[0][0].input_logprobs
    assert list(prompt.token_ids) == PROMPT
    assert [row.HasField("value") for row in prompt.token_logprobs] == [False, True, True]
    assert not answer.chunks[0][1].HasField("input_logprobs")


async def test_abort_ends_the_call_with_a_complete_of_reason_abort(connect, request_of, drain):
    script = Script(length=100, chunk_delay=30)
    async with MockEngine(script) as engine, connect(engine.address) as stub:
        call = stub.Generate(request_of(PROMPT, id="a-1"))
        await call.read()
        await stub.Abort(pb.AbortRequest(request_ids=["unknown", "a-1"]))
        answer = await drain(call)
        assert answer.complete.finish_reason == "abort"
        assert engine.aborted == ["unknown", "a-1"]
        assert [entry.state for entry in engine.requests] == ["aborted"]
        assert engine.running == 0


async def test_a_cancelled_call_is_recorded_and_no_longer_runs(connect, request_of, settle):
    script = Script(length=100, chunk_delay=30)
    async with MockEngine(script) as engine, connect(engine.address) as stub:
        call = stub.Generate(request_of(PROMPT), metadata=(("traceparent", "00-x"),))
        await call.read()
        assert engine.running == 1
        call.cancel()
        await settle(lambda: engine.running, 0)
        assert engine.requests[0].state == "cancelled"
        assert engine.requests[0].metadata["traceparent"] == "00-x"
        assert len(engine.requests[0].sent[0]) == 1


@pytest.mark.parametrize("field", ["top_p", "repetition_penalty", "n"])
async def test_a_forgotten_scalar_is_refused_unless_the_script_is_lenient(connect, request_of, drain, field):
    async with MockEngine() as engine, connect(engine.address) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await drain(stub.Generate(request_of(PROMPT, **{field: 0})))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field in caught.value.details()
        engine.script = Script(strict=False)
        assert (await drain(stub.Generate(request_of(PROMPT, **{field: 0})))).complete.finish_reason == "stop"


@pytest.mark.parametrize("prompt", [[], [100_000], [1] * 50])
async def test_bad_prompts_are_refused(connect, request_of, drain, prompt):
    async with MockEngine(context_length=50) as engine, connect(engine.address) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await drain(stub.Generate(request_of(prompt)))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_model_server_and_load_reports(connect, request_of):
    engine = MockEngine(Script(chunk_delay=30, waiting=4, token_usage=0.5), model="m", default_sampling={"top_k": 20})
    async with engine, connect(engine.address) as stub:
        info = await stub.GetModelInfo(pb.GetModelInfoRequest())
        assert (info.served_model_name, info.is_generation, list(info.eos_token_ids)) == ("m", True, [EOS])
        assert json.loads(info.default_sampling_params_json) == {"top_k": 20}
        call = stub.Generate(request_of(PROMPT))
        await call.read()
        assert (await stub.GetServerInfo(pb.GetServerInfoRequest())).active_requests == 1
        load = (await stub.GetLoads(pb.GetLoadsRequest(include=["core"]))).loads[0]
        assert (load.num_running_reqs, load.num_waiting_reqs, load.num_total_reqs) == (1, 4, 5)
        assert (load.num_used_tokens, load.token_usage) == (3, 0.5)


async def bundle_of(stub) -> tuple[bytes, list[str]]:
    chunks = [chunk async for chunk in stub.GetTokenizer(common_pb2.GetTokenizerRequest())]
    return b"".join(chunk.data for chunk in chunks), [chunk.sha256 for chunk in chunks]


async def test_the_tokenizer_bundle_is_a_zip_with_its_digest_on_the_last_chunk(connect):
    async with MockEngine(Script(bundle_chunk=1000)) as engine, connect(engine.address) as stub:
        archive, digests = await bundle_of(stub)
    assert len(digests) > 1
    assert set(digests[:-1]) == {""}
    assert digests[-1] == hashlib.sha256(archive).hexdigest()
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        tokenizer = Tokenizer.from_str(files.read("tokenizer.json").decode())
        config = json.loads(files.read("tokenizer_config.json"))
        assert json.loads(files.read("generation_config.json"))["eos_token_id"] == EOS
    assert config["eos_token"] == "<|im_end|>"
    assert "<|im_start|>" in config["chat_template"]
    text = "<|im_start|>user\nHello there, ça va? 🙂<|im_end|>"
    assert tokenizer.encode(text, add_special_tokens=False).ids == encode_text(text)


async def test_a_bundle_can_lie(connect):
    async with (
        MockEngine(Script(bundle=b"not a zip", bundle_digest="0" * 64)) as engine,
        connect(engine.address) as stub,
    ):
        assert await bundle_of(stub) == (b"not a zip", ["0" * 64])


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["byte", "word"]))
def test_any_text_can_be_scripted(text, split):
    ids = encode_text(text, split)
    assert decode_ids(ids) == text
    if split == "byte" and "<" not in text:
        assert len(ids) == len(text.encode())


def test_words_and_special_tokens_are_single_ids():
    assert len(encode_text(" the way we work")) == 4
    assert len(encode_text("<think> well</think>", "word")) == 3
    assert len(encode_text("<think>well</think>", "byte")) == 6


async def test_what_it_does_not_serve_is_unimplemented(connect):
    async with MockEngine() as engine, connect(engine.address) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest()).read()
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


# -- faults


@pytest.mark.parametrize(
    ("after", "chunks", "early_headers"), [(None, 0, False), (0, 0, True), (2, 2, True)], ids=["before", "early", "mid"]
)
async def test_a_status_before_headers_after_them_or_in_the_middle(connect, request_of, after, chunks, early_headers):
    trailers = (("smg-constraint-failed", "engine"),)
    fault = Fault(status=grpc.StatusCode.FAILED_PRECONDITION, message="no", after_chunks=after, trailers=trailers)
    async with MockEngine(Script(faults=(fault,))) as engine, connect(engine.address) as stub:
        call = stub.Generate(request_of(PROMPT))
        for _ in range(chunks):
            assert (await call.read()).chunk.token_ids
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == "no"
        assert ("smg-constraint-failed", "engine") in list(caught.value.trailing_metadata())
        assert engine.requests[0].state == "failed"


async def test_a_fault_can_be_limited_to_the_first_calls(connect, request_of, drain):
    async with MockEngine(Script(faults=(Fault(first=2),))) as engine, connect(engine.address) as stub:
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError):
                await drain(stub.Generate(request_of(PROMPT)))
        assert (await drain(stub.Generate(request_of(PROMPT)))).complete.finish_reason == "stop"
        assert [entry.state for entry in engine.requests] == ["failed", "failed", "done"]


async def test_a_stall_lasts_until_the_client_gives_up(connect, request_of, settle):
    fault = Fault(kind="stall", after_chunks=1)
    async with MockEngine(Script(faults=(fault,))) as engine, connect(engine.address) as stub:
        call = stub.Generate(request_of(PROMPT), timeout=0.2)
        await call.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await settle(lambda: engine.running, 0)
        assert engine.requests[0].state == "cancelled"


async def test_eof_without_complete(connect, request_of, drain):
    fault = Fault(kind="eof", after_chunks=2)
    async with MockEngine(Script(faults=(fault,))) as engine, connect(engine.address) as stub:
        answer = await drain(stub.Generate(request_of(PROMPT)))
        assert len(answer.ids()) == 2
        assert answer.completes == {}
        assert engine.requests[0].state == "failed"


@pytest.mark.parametrize("reason", ["abort", "error", ""])
async def test_any_finish_reason_can_be_scripted(connect, request_of, drain, reason):
    async with MockEngine(Script(finish=reason, matched_stop="END")) as engine, connect(engine.address) as stub:
        answer = await drain(stub.Generate(request_of(PROMPT)))
    assert answer.complete.finish_reason == reason
    assert answer.complete.matched_stop_str == "END"


async def test_other_calls_can_fail_too(connect):
    fault = Fault(rpc="GetModelInfo", status=grpc.StatusCode.INTERNAL, first=1)
    async with MockEngine(Script(faults=(fault,))) as engine, connect(engine.address) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetModelInfo(pb.GetModelInfoRequest())
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert (await stub.GetModelInfo(pb.GetModelInfoRequest())).vocab_size > 256


async def health_of(address: str, service: str = "") -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


async def test_health_follows_the_script(connect):
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    async with MockEngine() as engine, connect(engine.address) as stub:
        assert (await stub.HealthCheck(pb.HealthCheckRequest())).healthy
        assert await health_of(engine.address) == await health_of(engine.address, SERVICE) == serving
        engine.script = Script(healthy=False)
        assert not (await stub.HealthCheck(pb.HealthCheckRequest())).healthy
        assert await health_of(engine.address, SERVICE) == not_serving


async def test_a_slow_start_is_unready_first(connect, request_of, drain, settle):
    async with MockEngine(Script(startup_delay=0.3)) as engine, connect(engine.address) as stub:
        assert not (await stub.HealthCheck(pb.HealthCheckRequest())).healthy
        assert await health_of(engine.address) == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetModelInfo(pb.GetModelInfoRequest())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await settle(lambda: health_of(engine.address), health_pb2.HealthCheckResponse.SERVING)
        assert (await drain(stub.Generate(request_of(PROMPT)))).complete.finish_reason == "stop"


async def test_kill_cuts_streams_and_the_engine_can_come_back_on_its_port(connect, request_of, drain, settle):
    engine = MockEngine(Script(length=100, chunk_delay=30))
    address = await engine.start()
    async with connect(address) as stub:
        call = stub.Generate(request_of(PROMPT))
        await call.read()
        await engine.kill()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await drain(call)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await settle(lambda: engine.running, 0)
    assert await engine.start() == address
    engine.script = Script()
    async with connect(address) as stub:
        assert (await drain(stub.Generate(request_of(PROMPT)))).complete.finish_reason == "stop"
    await engine.stop()
