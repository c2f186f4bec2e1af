"""Calls through everything but the processes: OpenAI's client, Sanic, the real services, gRPC, the mock engine."""

import asyncio
import io
import json
import zipfile
from contextlib import asynccontextmanager

import msgspec
import openai
import pytest

from smg._native.region import STATUS, Region
from smg.config.settings import FleetSettings, ModelSettings, Settings
from smg.engine_server.mock import Fault, MockEngine, Script
from smg.engine_server.mock import tokenizer as mock
from smg.engines.transport.table import TRANSPORTS
from smg.fleet.records import STATUS_CODES, FleetSnapshot, ModelRecord, WorkerRecord
from smg.pipeline import services as pipeline
from smg.pipeline.spelled import warn
from tests.api.serving import serving, until
from tests.parsing import declared_templates
from tests.parsing.runs import STANDARD
from tests.parsing.writers import WRITERS
from tests.snapshots import blob

HI = [{"role": "user", "content": "hi"}]
CALLS = [("get_weather", {"city": "Oslo", "days": 3}), ("ping", {})]
TOOLS = [{"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in STANDARD]


@asynccontextmanager
async def gateway(tmp_path, script, transport="grpcio", config=None, **parsers):
    """A client of a gateway with one mock engine that says ``script``; ``config`` is for its tokenizer_config.json."""
    zipfile.ZipFile(io.BytesIO(mock.archive(4096))).extractall(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
    async with MockEngine() as engine:
        engine.script = script
        region = Region.create(processes=3, workers=8, series=1024, snapshot_bytes=1 << 16)
        worker = WorkerRecord("w0", 0, engine.url, runtime="vllm", models=["mock"])
        model = ModelRecord("mock", tokenizer_dir=str(tmp_path), tokenizer_key="k", eos_ids=[mock.EOS])
        region.publish(blob(FleetSnapshot(1, [worker], [model])))
        region.worker_set(0, STATUS, STATUS_CODES["ready"])
        own = Settings(model=ModelSettings(**parsers), fleet=FleetSettings(engine_transport=transport))
        built = pipeline.build(own, region, 1)
        watch = asyncio.create_task(built.watch())
        await until(lambda: built.texts.ready(model))
        async with (
            serving(built) as url,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        ):
            yield client
        watch.cancel()
        await built.close()


async def ask(client, **fields):
    """(reasoning, content, calls, finish reason), asked for whole and as a stream, which must agree."""
    fields = {"model": "mock", "messages": HI, "tools": TOOLS} | fields
    choice = (await client.chat.completions.create(**fields)).choices[0]
    message = choice.message
    calls = [(one.function.name, one.function.arguments) for one in message.tool_calls or []]
    reasoning = getattr(message, "reasoning_content", None) or ""
    whole = (reasoning, message.content or "", calls, choice.finish_reason)
    ids = [one.id for one in message.tool_calls or []]
    assert len(set(ids)) == len(ids)
    assert await _streamed(client, fields) == whole
    return whole


async def _streamed(client, fields):
    reasoning, content, reason = "", "", None
    calls: list[list[str]] = []
    async for chunk in await client.chat.completions.create(stream=True, **fields):
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            content += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for delta in choice.delta.tool_calls or []:
                if delta.id is not None:
                    assert delta.index == len(calls)
                    calls.append([delta.function.name, ""])
                calls[delta.index][1] += delta.function.arguments or ""
    return reasoning, content, [(name, arguments) for name, arguments in calls], reason


FAMILIES = (
    "qwen",
    "mistral",
    "llama",
    "pythonic",
    "deepseek31",
    "deepseek32",
    "glm45_moe",
    "kimik2",
    "qwen_xml",
    "cohere",
)


@pytest.mark.parametrize(
    ("family", "split"), [*((family, "word") for family in FAMILIES), ("qwen", "byte"), ("deepseek32", "byte")]
)
async def test_streamed_and_buffered_calls_agree(tmp_path, family, split):
    before = "" if family == "llama" else "Well. "
    script = Script.text(before + WRITERS[family](CALLS), split=split, per_chunk=3)
    async with gateway(tmp_path, script, tool_call_parser=family) as client:
        reasoning, content, calls, reason = await ask(client)
    assert [(name, json.loads(arguments)) for name, arguments in calls] == CALLS
    assert (reasoning, content, reason) == ("", before, "tool_calls")


@pytest.mark.parametrize("per_chunk", [1, 3, 1000])
@pytest.mark.parametrize("family", ["qwen", "qwen_xml", "pythonic"])
async def test_rows_that_the_engine_stream_feeds_by_itself_are_parsed_all_the_same(tmp_path, family, per_chunk):
    calls = [*CALLS, ("run", {"cmd": 'echo "a < b" # {é}'})]
    text = "<think>I look it up, in <b>two</b> places.</think>Well, {let} me see. " + WRITERS[family](calls)
    script = Script.text(text, split="byte", per_chunk=per_chunk, chunk_delay=0.0005)
    parsers = {"tool_call_parser": family, "reasoning_parser": "qwen3"}
    async with gateway(tmp_path, script, "native", **parsers) as client:
        reasoning, content, told, reason = await ask(client)
    assert [(name, json.loads(arguments)) for name, arguments in told] == calls
    assert (reasoning, reason) == ("I look it up, in <b>two</b> places.", "tool_calls")
    assert content == "Well, {let} me see. "


async def test_OA_08_reasoning_and_a_call(tmp_path):
    script = Script.text("<think>I look it up.</think>\n" + WRITERS["qwen"](CALLS))
    async with gateway(tmp_path, script, tool_call_parser="hermes", reasoning_parser="qwen3") as client:
        reasoning, content, calls, reason = await ask(client)
    assert (reasoning, content, len(calls), reason) == ("I look it up.", "", 2, "tool_calls")


@pytest.mark.parametrize("split", ["word", "byte"])
@pytest.mark.parametrize("per_chunk", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "content"),
    [("Sure.<think>a</think>b", "Sure.b"), ("\n<think>a</think>b", "b"), (" <think>a</think>b", "b")],
)
async def test_RP_02_text_before_the_opening_marker(tmp_path, text, content, split, per_chunk):
    script = Script.text(text, split=split, per_chunk=per_chunk)
    async with gateway(tmp_path, script, reasoning_parser="qwen3") as client:
        assert await ask(client, tools=openai.omit) == ("a", content, [], "stop")


async def test_RP_05_the_border_inside_one_delta(tmp_path):
    """Two events, reasoning first, in the stream; the same two texts in the buffered answer."""
    text = "A final thought.</think>Answer starts."
    async with gateway(tmp_path, Script.text(text, per_chunk=1000), reasoning_parser="deepseek_r1") as client:
        assert await ask(client, tools=openai.omit) == ("A final thought.", "Answer starts.", [], "stop")
        deltas = [
            choice.delta.model_dump(exclude_none=True)
            async for chunk in await client.chat.completions.create(model="mock", messages=HI, stream=True)
            for choice in chunk.choices
        ]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "A final thought."},
        {"content": "Answer starts."},
        {},
    ]


@pytest.mark.parametrize("split", ["word", "byte"])
async def test_RP_06_a_held_prefix_comes_before_the_finish_event(tmp_path, split):
    text = "x < y and a <th"
    async with gateway(tmp_path, Script.text(text, split=split), reasoning_parser="qwen3") as client:
        assert await ask(client, tools=openai.omit) == ("", text, [], "stop")
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="mock", messages=HI, stream=True, stream_options={"include_usage": True}
            )
        ]
    *rest, finish, usage = chunks
    assert "".join(chunk.choices[0].delta.content for chunk in rest) == text
    assert (finish.choices[0].delta.content, finish.choices[0].finish_reason) == (None, "stop")
    assert (usage.choices, usage.usage.completion_tokens > 0) == ([], True)


@pytest.mark.parametrize(
    ("text", "content", "calls", "reason"),
    [
        ("<tool_call>\n<function=ping>\n</function>\n</tool_call>", "", [("ping", "{}")], "tool_calls"),
        ("just text", "just text", [], "stop"),
    ],
)
async def test_OA_02_the_engine_names_no_reason(tmp_path, text, content, calls, reason):
    script = Script.text(text, eos=False, finish="", empty_chunks=True)
    async with gateway(tmp_path, script, tool_call_parser="qwen3_coder") as client:
        assert await ask(client) == ("", content, calls, reason)


@pytest.mark.parametrize("text", ["<tool_call>\n<function=ping>\n</function>\n</tool_call>", "just text"])
async def test_OA_02_a_stream_that_breaks_off_invents_no_reason(tmp_path, text):
    script = Script.text(text, eos=False)
    script = msgspec.structs.replace(script, faults=(Fault(kind="eof", after_chunks=len(script.tokens)),))
    async with gateway(tmp_path, script, tool_call_parser="qwen3_coder") as client:
        reasons = []

        async def read() -> None:
            async for chunk in await client.chat.completions.create(
                model="mock", messages=HI, tools=TOOLS, stream=True
            ):
                reasons.extend(choice.finish_reason for choice in chunk.choices)

        with pytest.raises(openai.APIError) as caught:
            await read()
        assert caught.value.code == "worker_stream_failed"
        assert set(reasons) == {None}


async def test_OA_05_the_token_limit_inside_a_call(tmp_path):
    text = '<tool_call>\n{"name": "run", "arguments": {"cmd": "list every file'
    async with gateway(tmp_path, Script.text(text, eos=False, finish="length"), tool_call_parser="hermes") as client:
        assert await ask(client) == ("", "", [("run", '{"cmd": "list every file')], "length")


@pytest.mark.parametrize(
    ("fields", "count", "content", "reason"),
    [
        ({}, 2, "", "tool_calls"),
        ({"parallel_tool_calls": False}, 1, "", "tool_calls"),
        ({"tool_choice": "required"}, 2, "", "tool_calls"),
        ({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}, 2, "", "tool_calls"),
        ({"tool_choice": "none"}, 0, None, "stop"),
    ],
)
async def test_OA_09_tool_choice(tmp_path, fields, count, content, reason):
    text = WRITERS["qwen"](CALLS)
    async with gateway(tmp_path, Script.text(text), tool_call_parser="qwen") as client:
        _, said, calls, finish = await ask(client, **fields)
    assert (len(calls), said, finish) == (count, text if content is None else content, reason)


async def test_TP_07_the_prompt_shows_kimi_its_own_ids(tmp_path):
    template = tmp_path / "ids.jinja"
    template.write_text(
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }} {% endfor %}"
        "{{ m.tool_call_id }}|{% endfor %}"
    )
    call = {"id": "functionsping4", "type": "function", "function": {"name": "ping", "arguments": "{}"}}
    turns = [
        *HI,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "x"},
    ]
    script = Script(tokens=lambda request, choice: list(request.tokenized.input_ids))
    for parser, shown in (("kimi_k2", "functions.ping:4"), ("qwen", "functionsping4")):
        async with gateway(tmp_path, script, tool_call_parser=parser, chat_template=str(template)) as client:
            answer = await client.chat.completions.create(model="mock", messages=turns)
            assert answer.choices[0].message.content == f"|{shown} |{shown}|"


async def test_OA_09_none_without_tools(tmp_path):
    async with gateway(tmp_path, Script.text("fine"), tool_call_parser="qwen") as client:
        assert await ask(client, tools=openai.omit, tool_choice="none") == ("", "fine", [], "stop")


async def test_OA_06_logprobs_of_all_tokens(tmp_path):
    script = Script.text("<think>a</think>" + WRITERS["qwen"](CALLS) + " done")
    tokens = [*script.tokens]
    async with gateway(tmp_path, script, tool_call_parser="qwen", reasoning_parser="qwen3") as client:
        fields = {"model": "mock", "messages": HI, "tools": TOOLS, "logprobs": True}
        whole = await client.chat.completions.create(**fields)
        entries = []
        async for chunk in await client.chat.completions.create(stream=True, **fields):
            for choice in chunk.choices:
                entries += choice.logprobs.content if choice.logprobs else []
    assert len(whole.choices[0].logprobs.content) == len(entries) == len(tokens)
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == mock.decode_ids(tokens)


@pytest.mark.parametrize("per_chunk", [1, 7])
async def test_reasoning_tokens_are_counted_where_the_engine_does_not(tmp_path, per_chunk):
    """The spec's fix of streamed usage: the same number whole and streamed, markers left out."""
    thought = " well then"
    script = Script.text(f"<think>{thought}</think> done", per_chunk=per_chunk)
    async with gateway(tmp_path, script, reasoning_parser="qwen3") as client:
        fields = {"model": "mock", "messages": HI, "n": 2}
        whole = await client.chat.completions.create(**fields)
        stream = await client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **fields)
        usages = [whole.usage, *[chunk.usage async for chunk in stream if chunk.usage]]
    counts = [usage.completion_tokens_details.reasoning_tokens for usage in usages]
    assert counts == [2 * len(mock.encode_text(thought))] * 2


async def test_a_stop_string_in_a_call_closes_nothing(tmp_path):
    text = "<tool_call>\n<function=run>\n<parameter=cmd>\nls\n</parameter>\nSTOP</function>\n</tool_call>"
    async with gateway(tmp_path, Script.text(text), tool_call_parser="qwen_xml") as client:
        _, _, calls, reason = await ask(client, stop=["STOP"])
    # Not tool_calls: nobody may run a call whose arguments are cut off.
    assert (calls, reason) == ([("run", '{"cmd": "ls"')], "stop")


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_OA_09_the_engine_is_told_to_stop_where_a_second_call_begins(tmp_path, transport):
    calls = [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Bergen"})]
    script = Script.text(WRITERS["qwen"](calls) + " and so on" * 200, per_chunk=1)
    for fields in ({}, {"tool_choice": "required"}):
        async with gateway(tmp_path, script, transport, tool_call_parser="hermes") as client:
            answer = await ask(client, parallel_tool_calls=False, **fields)
            assert answer == ("", "", [("get_weather", '{"city": "Oslo"}')], "tool_calls")
            whole = await client.chat.completions.create(
                model="mock", messages=HI, tools=TOOLS, parallel_tool_calls=False, **fields
            )
            assert whole.usage.completion_tokens < len(mock.encode_text(WRITERS["qwen"](calls)))


def spelled(text: str) -> list[int]:
    """Ids of ``text``: a marker between ``@`` is its token, one written out is spelled in bytes."""
    ids: list[int] = []
    for number, piece in enumerate(text.split("@")):
        ids += [mock.SPECIAL_IDS[piece]] if number % 2 else piece.encode()
    return ids


QUOTING = (
    "@<think>@It ends at </think>.@</think>@Write <tool_call> first: "
    '@<tool_call>@{"name": "run", "arguments": {"cmd": "echo </tool_call>"}}@</tool_call>@'
)


@pytest.mark.parametrize("transport", ["grpcio", "native"])
@pytest.mark.parametrize("per_chunk", [1, 7, 1000])
async def test_markers_that_the_model_spells_in_pieces_are_its_text(tmp_path, per_chunk, transport):
    script = Script(tokens=spelled(QUOTING), per_chunk=per_chunk)
    parsers = {"tool_call_parser": "qwen", "reasoning_parser": "qwen3"}
    async with gateway(tmp_path, script, transport, **parsers) as client:
        reasoning, content, calls, reason = await ask(client)
    assert (reasoning, content) == ("It ends at </think>.", "Write <tool_call> first: ")
    assert ([(name, json.loads(text)) for name, text in calls], reason) == (
        [("run", {"cmd": "echo </tool_call>"})],
        "tool_calls",
    )


async def test_unless_the_setting_says_that_they_are_markers(tmp_path):
    script = Script(tokens=spelled("<think>a</think>" + WRITERS["qwen"](CALLS)))
    parsers = {"tool_call_parser": "qwen", "reasoning_parser": "qwen3"}
    async with gateway(tmp_path, script, marker_match="text", **parsers) as client:
        reasoning, _, calls, _ = await ask(client)
    assert (reasoning, len(calls)) == ("a", 2)


async def test_a_grammar_may_spell_the_markers_of_forced_calls(tmp_path):
    script = Script(tokens=spelled(WRITERS["qwen"](CALLS)))
    async with gateway(tmp_path, script, tool_call_parser="qwen") as client:
        _, content, calls, _ = await ask(client, tool_choice="required")
    assert (content, len(calls)) == ("", 2)


@pytest.mark.parametrize("transport", ["grpcio", "native"])
async def test_an_operator_learns_of_markers_that_are_spelled(tmp_path, caplog, transport):
    """Calls of a fine-tune that spells its markers are text, which must not stay unnoticed."""
    warn.cache_clear()
    script = Script(tokens=spelled("@<think>@a@</think>@" + WRITERS["qwen"](CALLS)))
    parsers = {"tool_call_parser": "qwen", "reasoning_parser": "qwen3"}
    async with gateway(tmp_path, script, transport, **parsers) as client:
        reasoning, content, calls, _ = await ask(client)
    assert (reasoning, content, calls) == ("a", WRITERS["qwen"](CALLS), [])
    # One line for each marker, however many answers there are; its token has not come, as those of reasoning have.
    told = [record.args[:2] for record in caplog.records if record.name == "smg.pipeline.spelled"]
    assert sorted(told) == [("mock", "</tool_call>"), ("mock", "<tool_call>")]


async def test_quotations_beside_the_token_are_not_reported(tmp_path, caplog):
    warn.cache_clear()
    async with gateway(
        tmp_path, Script(tokens=spelled(QUOTING)), tool_call_parser="qwen", reasoning_parser="qwen3"
    ) as client:
        await ask(client)
    assert [record for record in caplog.records if record.name == "smg.pipeline.spelled"] == []


@pytest.mark.parametrize("transport", ["grpcio", "native"])
@pytest.mark.parametrize("per_chunk", [1, 7, 1000])
async def test_a_response_template_of_the_checkpoint_is_used(tmp_path, per_chunk, transport):
    """The formats of a model that no table knows."""
    text = "<think>\nI call.\n</think>\n\nWell.\n" + WRITERS["qwen"](CALLS)
    config = {"response_template": declared_templates.JSON}
    async with gateway(tmp_path, Script.text(text, per_chunk=per_chunk), transport, config) as client:
        reasoning, content, calls, reason = await ask(client)
    assert (reasoning, content, reason) == ("I call.", "Well.", "tool_calls")
    assert [(name, json.loads(arguments)) for name, arguments in calls] == CALLS


@pytest.mark.parametrize("transport", ["grpcio", "native"])
@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_is_counted_where_its_markers_are_several_tokens(tmp_path, transport, stream):
    thought, answer = "I add 2 and 2.", " It is 4."
    script = Script(tokens=[*f"Here is my thought process:{thought}Here is my response:{answer}".encode()], per_chunk=3)
    async with gateway(tmp_path, script, transport, reasoning_parser="granite") as client:
        fields = {"model": "mock", "messages": HI}
        if stream:
            chunks = await client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **fields)
            usage = [chunk async for chunk in chunks][-1].usage
        else:
            usage = (await client.chat.completions.create(**fields)).usage
    assert usage.completion_tokens_details.reasoning_tokens == len(thought)


# As templates with a toggle close the block in the prompt when thinking is off.
TOGGLED = mock.CHAT_TEMPLATE + (
    "{%- if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif -%}"
)


@pytest.mark.parametrize(
    "fields",
    [{"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}, {"reasoning_effort": "none"}],
    ids=["by the template's word", "by effort"],
)
async def test_RP_03_thinking_switched_off_in_the_request(tmp_path, fields):
    script = Script.text(WRITERS["qwen"](CALLS), per_chunk=2)
    parsers = {"tool_call_parser": "hermes", "reasoning_parser": "qwen3_thinking"}
    async with gateway(tmp_path, script, config={"chat_template": TOGGLED}, **parsers) as client:
        reasoning, content, calls, reason = await ask(client, **fields)
    assert (reasoning, content, len(calls), reason) == ("", "", 2, "tool_calls")


async def test_a_template_that_always_opens_reasoning(tmp_path):
    """Without a toggle the end of the prompt tells it: the model's name says nothing of the kind."""
    opened = mock.CHAT_TEMPLATE + "{%- if add_generation_prompt %}{{ '<think>\\n' }}{% endif -%}"
    script = Script.text("hm</think>Hi", per_chunk=2)
    async with gateway(tmp_path, script, config={"chat_template": opened}, reasoning_parser="qwen3") as client:
        assert await ask(client) == ("hm", "Hi", [], "stop")


@pytest.mark.parametrize("transport", ["grpcio", "native"])
async def test_each_choice_has_parsers_of_its_own(tmp_path, transport):
    """Their texts come by turns, a few bytes at a time, and never mix."""
    texts = [f"<think>{name}</think>" + WRITERS["qwen"]([("run", {"cmd": name * 9})]) for name in ("a", "b", "c")]
    script = Script(choices=[mock.encode_text(text, "byte") for text in texts], per_chunk=1)
    async with gateway(tmp_path, script, transport, tool_call_parser="qwen", reasoning_parser="qwen3") as client:
        fields = {"model": "mock", "messages": HI, "tools": TOOLS, "n": 3}
        whole = (await client.chat.completions.create(**fields)).choices
        streamed = {index: ["", ""] for index in range(3)}
        async for chunk in await client.chat.completions.create(stream=True, **fields):
            for choice in chunk.choices:
                streamed[choice.index][0] += getattr(choice.delta, "reasoning_content", None) or ""
                for delta in choice.delta.tool_calls or []:
                    streamed[choice.index][1] += delta.function.arguments or ""
    for index, name in enumerate("abc"):
        message = whole[index].message
        [call] = message.tool_calls
        assert (message.reasoning_content, json.loads(call.function.arguments)) == (name, {"cmd": name * 9})
        assert streamed[index] == [name, call.function.arguments]
