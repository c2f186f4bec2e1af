"""Which streams cost Python per token and which are pumped: the table in docs/architecture.md, held against the code.

An engine that says one token a message, which waits until everybody has worked off the last one, and what is counted
are the batches that the pipeline gets (``Choice.feed``): nothing here is time.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.engine_server.mock import logprobs, tokenizer
from smg.engines.driver import GrpcDriver
from smg.engines.transport.grpcio_call import GrpcioCall
from smg.engines.vllm.adapter import VllmAdapter
from smg.pipeline.choice import Choice
from tests.api.responses_events import folded
from tests.api.serving import serving
from tests.pipeline.fakes import EOS, World, world

ARCHITECTURE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
WORDS = " the word" * 25
THOUGHT = f"<think>{WORDS}</think>"
ANSWER = '{"at": "' + WORDS + '"}'
CALL = '<tool_call>\n{"name": "look", "arguments": ' + ANSWER + "}\n</tool_call>"
CUSTOM = '<tool_call>\n{"name": "sh", "arguments": {"input": "' + WORDS + '"}}\n</tool_call>'
THINKING = "qwen3"

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"], "additionalProperties": False}
LOOK = {"name": "look", "parameters": SCHEMA}
CHAT = {"path": "/v1/chat/completions", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"path": "/v1/completions", "prompt": "hi"}
RESPONSE = {"path": "/v1/responses", "input": "hi"}
MESSAGE = {**CHAT, "path": "/v1/messages", "max_tokens": 2000}
GENERATE = {"path": "/generate", "text": "hi"}
CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}
JSON_FORMAT = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
THINK = {"model": THINKING, "says": THOUGHT + WORDS}
CALLS = {"model": THINKING, "says": THOUGHT + WORDS + CALL}
CALLS_CUSTOM = {"model": THINKING, "says": CUSTOM}

# By dialect and option, as the table has them: the request, and whether its tokens are pumped.
CASES: dict[tuple[str, str], tuple[dict[str, Any], bool]] = {
    ("chat", "text"): (CHAT, True),
    ("chat", "`stop`"): (CHAT | {"stop": ["never", "the end"]}, True),
    ("chat", "`n`"): (CHAT | {"n": 3}, True),
    ("chat", "`include_usage`"): (CHAT | {"stream_options": {"include_usage": True}}, True),
    ("chat", "reasoning"): (CHAT | THINK, True),
    ("chat", "tools"): (CHAT | CALLS | {"tools": [{"type": "function", "function": LOOK}]}, True),
    ("chat", "strict tools"): (
        CHAT | CALLS | {"tools": [{"type": "function", "function": LOOK | {"strict": True}}]},
        True,
    ),
    ("chat", "structured output"): (
        CHAT | {"model": THINKING, "says": THOUGHT + ANSWER, "response_format": JSON_FORMAT},
        True,
    ),
    ("chat", "`continuous_usage_stats`"): (CHAT | {"stream_options": CONTINUOUS}, False),
    ("chat", "`logprobs`"): (CHAT | {"logprobs": True}, False),
    ("chat", "`stream_reasoning: false`"): (CHAT | THINK | {"says": THOUGHT, "stream_reasoning": False}, False),
    ("chat", "input of custom tools"): (
        CHAT | CALLS_CUSTOM | {"tools": [{"type": "custom", "custom": {"name": "sh"}}]},
        False,
    ),
    ("completions", "text"): (COMPLETION, True),
    ("completions", "`echo`"): (COMPLETION | {"echo": True}, True),
    ("completions", "`n`"): (COMPLETION | {"n": 3}, True),
    ("completions", "`include_usage`"): (COMPLETION | {"stream_options": {"include_usage": True}}, True),
    ("completions", "`continuous_usage_stats`"): (COMPLETION | {"stream_options": CONTINUOUS}, False),
    ("completions", "`logprobs`"): (COMPLETION | {"logprobs": 1}, False),
    ("completions", "several prompts"): (COMPLETION | {"prompt": ["hi", "ho", "hu"]}, False),
    ("Responses", "text"): (RESPONSE, True),
    ("Responses", "reasoning"): (RESPONSE | THINK, True),
    ("Responses", "tools"): (RESPONSE | CALLS | {"tools": [{"type": "function", **LOOK, "strict": False}]}, True),
    ("Responses", "strict tools"): (RESPONSE | CALLS | {"tools": [{"type": "function", **LOOK, "strict": True}]}, True),
    ("Responses", "structured output"): (
        RESPONSE
        | {"model": THINKING, "says": THOUGHT + ANSWER}
        | {"text": {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA}}},
        True,
    ),
    ("Responses", "`logprobs`"): (RESPONSE | {"include": ["message.output_text.logprobs"]}, False),
    ("Responses", "input of custom tools"): (
        RESPONSE | CALLS_CUSTOM | {"tools": [{"type": "custom", "name": "sh"}]},
        False,
    ),
    ("Messages", "text"): (MESSAGE, True),
    ("Messages", "`stop_sequences`"): (MESSAGE | {"stop_sequences": ["never"]}, True),
    ("Messages", "reasoning that is dropped"): (MESSAGE | THINK, True),
    ("Messages", "`thinking` with signatures"): (
        MESSAGE | THINK | {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        True,
    ),
    ("Messages", "tools"): (MESSAGE | CALLS | {"tools": [{"name": "look", "input_schema": SCHEMA}]}, True),
    ("generate", "text"): (GENERATE, False),
}  # fmt: skip


class Words:
    """An engine's answer, as grpc.aio would hand it over: each id of ``says`` in a message, by turns of the choices."""

    def __init__(self, message: bytes, says: str) -> None:
        params = pb.GenerateRequest.FromString(message).sampling_params
        self._scored = params.HasField("logprobs")
        self._choices = range(max(1, params.n))
        self._ids = tokenizer.encode_text(says)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for token in self._ids:
            for index in self._choices:
                rows = logprobs.output(pb, [token], [logprobs.best_first(token, 2)]) if self._scored else None
                chunk = pb.GenerateStreamChunk(token_ids=[token], index=index, output_logprobs=rows)
                yield pb.GenerateResponse(chunk=chunk).SerializeToString()
                await self._settled()
        for index in self._choices:
            end = pb.GenerateComplete(output_ids=[EOS], index=index, finish_reason="stop")
            yield pb.GenerateResponse(complete=end).SerializeToString()

    async def _settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def cancel(self) -> None: ...


class Said:
    """A transport whose engine answers everything with ``says``."""

    def __init__(self, says: str) -> None:
        self._says = says

    async def unary(self, path, message, timeout, metadata=None) -> bytes:
        return b""

    def stream(self, path, message, timeout, metadata=None) -> GrpcioCall:
        return GrpcioCall(Words(message, self._says), lambda error: None)

    def generate(self, path, message, timeout, metadata=None, *, layout) -> GrpcioCall:
        return GrpcioCall(Words(message, self._says), lambda error: None, layout)

    async def close(self) -> None: ...


async def streamed(path: str, says: str = WORDS, model: str = "m", **fields: Any) -> tuple[bytes, World]:
    """The stream that answers a request, where the model says ``says``, and where that was."""
    place = world({"w1": []}, model=model, context_length=4096)
    drivers: dict[str, GrpcDriver] = {}

    def get(worker: Any) -> GrpcDriver:
        return drivers.setdefault(worker.id, GrpcDriver("grpc://w1:1", VllmAdapter(), Said(says)))

    place.services.drivers = SimpleNamespace(get=get)
    body = json.dumps({"model": model, "stream": True} | fields)
    async with (
        serving(place.services) as url,
        aiohttp.ClientSession() as http,
        http.post(url + path, data=body) as answer,
    ):
        data = await answer.read()
        assert answer.status == 200, data
    assert place.idle()
    return data, place


@pytest.fixture
def batches(monkeypatch) -> list[int]:
    """How many ids each batch had that the pipeline got."""
    seen: list[int] = []
    feed = Choice.feed

    def counted(self, batch):
        seen.append(len(batch.ids))
        return feed(self, batch)

    monkeypatch.setattr(Choice, "feed", counted)
    return seen


@pytest.mark.parametrize("case", CASES, ids="-".join)
async def test_tokens_are_pumped_as_the_table_says(case, batches):
    fields, pumped = CASES[case]
    data, _ = await streamed(**fields)
    said = fields.get("says", WORDS)
    count = len(tokenizer.encode_text(said)) * fields.get("n", 1)
    hidden = THOUGHT.count("word") if fields["path"] == MESSAGE["path"] and "thinking" not in fields else 0
    assert data.count(b"word") >= said.count("word") - (hidden if THOUGHT in said else 0), "nothing was lost"
    if fields["path"] == RESPONSE["path"]:
        # What its last events repeat is what went by without Python.
        folded(data)
    # What is left for Python are beginnings, markers and ends.
    assert (len(batches) < count / 2) is pumped, f"{len(batches)} batches for {count} tokens"


@pytest.mark.parametrize("path", [CHAT, COMPLETION, RESPONSE, MESSAGE, GENERATE], ids=lambda fields: fields["path"])
async def test_buffered_answers_are_pumped_in_every_dialect(path, batches):
    data, _ = await streamed(**path | {"stream": False})
    assert b"word" in data
    assert len(batches) <= 3


@pytest.mark.parametrize("said", [ANSWER, ANSWER[:-1] + ', "more": 1}'], ids=["kept", "broken"])
@pytest.mark.parametrize("case", ["structured output", "strict tools"])
@pytest.mark.parametrize("dialect", ["chat", "Responses"])
async def test_answers_are_held_against_their_schema_although_nobody_saw_them_pass(dialect, case, said, batches):
    fields, _ = CASES[dialect, case]
    says = fields["says"].replace(ANSWER, said)
    _, place = await streamed(**fields | {"says": says})
    assert len(batches) < len(tokenizer.encode_text(says)) / 2
    assert place.metric("structured_output_invalid") == (said != ANSWER)


def test_the_table_has_these_cases():
    table = {}
    for dialect, *columns in re.findall(r"^\| (\w+) \| (.*) \| (.*) \|$", _section(), re.MULTILINE):
        for options, pumped in zip(columns, (True, False), strict=True):
            table |= {(dialect, option): pumped for option in options.split(", ") if option}
    assert table == {case: pumped for case, (_, pumped) in CASES.items()}


def _section() -> str:
    """The table of the documentation, without its head."""
    _, rest = ARCHITECTURE.read_text("utf-8").split("| stream | pumped | Python per batch |\n| --- | --- | --- |\n")
    return rest.split("\n\n")[0]
