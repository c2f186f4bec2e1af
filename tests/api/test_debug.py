"""The debug window: what is kept of a generation, where, and for whom."""

import asyncio
import json
import os
import stat

import aiohttp
import openai
import pytest
from msgspec.structs import replace

from smg.config.settings import ModelSettings, SecuritySettings, ServerSettings, TelemetrySettings
from smg.engine_server.mock import Script
from smg.engine_server.mock import tokenizer as mock
from smg.pipeline.debug import DebugRecord, DebugWindow
from tests.api.contract_fleet import SETTINGS, engines_of_contracts, services_over
from tests.api.serving import serving, until

CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "f"}}
HI = [{"role": "user", "content": "hi"}]


def record(id: str, time: float = 0.0) -> DebugRecord:
    return DebugRecord(id, time, "chat", "m", {}, "prompt", [1], None, [], [])


@pytest.fixture
async def world(tmp_path):
    """A gateway with a window of three, over engines that call a tool."""
    settings = replace(
        SETTINGS,
        server=ServerSettings(state_dir=str(tmp_path / "state")),
        telemetry=TelemetrySettings(debug_requests=3),
        model=ModelSettings(tool_call_parser="hermes"),
    )
    async with (
        engines_of_contracts(Script.text("Well. " + CALL)) as engines,
        services_over(engines, tmp_path, settings) as services,
        serving(services) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        aiohttp.ClientSession(url) as http,
    ):
        yield services, client, http


async def get(http, path):
    async with http.get(path) as answer:
        return answer.status, await answer.json()


async def kept(services, count):
    await until(lambda: len(services.debug.summaries()) == count)


async def test_a_request_can_be_looked_into(world):
    services, client, http = world
    headers = {"x-request-id": "my/own id".replace(" ", "-")}
    await client.chat.completions.create(model="vllm", messages=HI, tools=[TOOL], extra_headers=headers)
    await kept(services, 1)
    status, listed = await get(http, "/debug/requests")
    assert status == 200
    [summary] = listed["requests"]
    assert (summary["id"], summary["model"], summary["endpoint"]) == ("my/own-id", "vllm", "chat")
    assert summary["notes"]["worker"] == "vllm"
    status, found = await get(http, "/debug/requests/my%2Fown-id")
    assert status == 200
    assert found["prompt"].startswith("<|im_start|>system\n")
    assert found["prompt"].endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
    assert found["prompt_ids"] == mock.encode_text(found["prompt"])
    assert found["constraint"] is None
    [choice] = found["choices"]
    assert choice["raw_text"] == "Well. " + CALL
    assert choice["ids"] == [*mock.encode_text("Well. " + CALL), mock.EOS]
    kinds = [event["type"] for event in found["events"]]
    assert (kinds[0], kinds[-2:]) == ("TextDelta", ["ToolCallEnd", "Finish"])
    assert "ToolCallStart" in kinds


async def test_a_direct_stream_and_a_constraint(world):
    services, client, http = world
    stream = await client.chat.completions.create(
        model="vllm", messages=HI, stream=True, response_format={"type": "json_object"}
    )
    assert [chunk async for chunk in stream]
    await kept(services, 1)
    _, listed = await get(http, "/debug/requests")
    _, found = await get(http, f"/debug/requests/{listed['requests'][0]['id']}")
    assert found["constraint"]["kind"] == "json_object"
    assert found["choices"][0]["raw_text"] == "Well. " + CALL
    assert found["notes"]["invalid"] == "engine"


async def test_the_oldest_make_room(world):
    services, client, http = world
    for number in range(5):
        await client.chat.completions.create(
            model="vllm", messages=HI, extra_headers={"x-request-id": f"request-{number}"}
        )
        await until(lambda: services.debug.summaries()[:1] and services.debug.summaries()[0].id == f"request-{number}")  # noqa: B023
    _, listed = await get(http, "/debug/requests")
    assert [each["id"] for each in listed["requests"]] == ["request-4", "request-3", "request-2"]
    status, error = await get(http, "/debug/requests/request-0")
    assert (status, error["error"]["code"]) == (404, "not_found")


async def test_it_is_off_by_default(tmp_path):
    settings = replace(SETTINGS, server=ServerSettings(state_dir=str(tmp_path / "state")))
    async with (
        engines_of_contracts(Script.text("hi")) as engines,
        services_over(engines, tmp_path, settings) as services,
        serving(services) as url,
        aiohttp.ClientSession(url) as http,
    ):
        assert services.debug is None
        status, error = await get(http, "/debug/requests")
        assert status == 404
        assert "--debug-requests" in error["error"]["message"]
        body = {"model": "vllm", "messages": HI}
        async with http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
        await asyncio.sleep(0)
        assert not (tmp_path / "state").exists()


def test_only_the_owner_may_read_the_files(tmp_path):
    window = DebugWindow(tmp_path / "debug", 1, 2)
    window.keep(record("a"))
    [path] = (tmp_path / "debug").iterdir()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700


def test_processes_see_each_other_s_records_and_clear_their_own(tmp_path):
    first, second = DebugWindow(tmp_path, 1, 2), DebugWindow(tmp_path, 2, 2)
    for number in range(3):
        first.keep(record(f"a{number}", number))
    second.keep(record("b", 1.5))
    assert [summary.id for summary in second.summaries()] == ["a2", "b", "a1"]
    assert first.record("b") is not None
    assert first.record("a0") is None
    again = DebugWindow(tmp_path, 1, 2)
    assert [summary.id for summary in again.summaries()] == ["b"]


ASK = {"x-smg-debug": "1"}
BODY = {"model": "vllm", "messages": HI, "tools": [TOOL]}
EVERYONE = {"telemetry": TelemetrySettings(debug_header=True)}
KEYS = {"security": SecuritySettings(api_key=("data-key",), admin_key=("admin-key",))}


class TestShownWithTheAnswer:
    """The header x-smg-debug: a request's own record comes with its answer, however it is delivered."""

    @staticmethod
    def checked(found):
        assert found["prompt"].endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
        assert found["prompt_ids"] == mock.encode_text(found["prompt"])
        [choice] = found["choices"]
        assert choice["raw_text"] == "Well. " + CALL
        assert choice["ids"] == [*mock.encode_text("Well. " + CALL), mock.EOS]
        kinds = [event["type"] for event in found["events"]]
        assert ("ToolCallStart" in kinds, kinds[-1]) == (True, "Finish")
        return True

    @pytest.fixture
    async def place(self, tmp_path, request):
        """A gateway with ``request.param`` as its settings of telemetry and security, and no window."""
        settings = replace(SETTINGS, model=ModelSettings(tool_call_parser="hermes"), **request.param)
        async with (
            engines_of_contracts(Script.text("Well. " + CALL)) as engines,
            services_over(engines, tmp_path, settings) as services,
            serving(services) as url,
            aiohttp.ClientSession(url) as http,
        ):
            yield services, http, url

    @pytest.mark.parametrize("place", [EVERYONE], indirect=True)
    async def test_a_buffered_answer_has_a_member_more(self, place):
        services, http, _ = place
        async with http.post("/v1/chat/completions", json=BODY, headers=ASK) as answer:
            body = await answer.json()
        assert body["choices"][0]["message"]["content"] == "Well. "
        assert [self.checked(record) for record in body["smg_debug"]] == [True]
        async with http.post("/v1/chat/completions", json=BODY) as answer:
            assert "smg_debug" not in await answer.json()
        assert services.debug is None

    @pytest.mark.parametrize("place", [EVERYONE], indirect=True)
    async def test_a_stream_has_a_comment_that_clients_do_not_see(self, place):
        services, http, url = place
        body = {**BODY, "stream": True}
        async with http.post("/v1/chat/completions", json=body, headers=ASK) as answer:
            *events, comment, done, rest = (await answer.text()).split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        assert all(event.startswith("data: {") for event in events)
        [record] = json.loads(comment.removeprefix(": smg-debug "))
        assert self.checked(record)
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        async with client:
            stream = await client.chat.completions.create(**body, extra_headers=ASK)
            text = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
        assert "".join(text) == "Well. "
        await until(lambda: len(services.table) == 0)

    @pytest.mark.parametrize("place", [EVERYONE], indirect=True)
    async def test_each_prompt_of_a_request_has_its_record(self, place):
        _, http, _ = place
        body = {"model": "vllm", "prompt": ["a", "b"]}
        async with http.post("/v1/completions", json=body, headers=ASK) as answer:
            records = (await answer.json())["smg_debug"]
        assert sorted(record["prompt"] for record in records) == ["a", "b"]
        async with http.post("/v1/completions", json={**body, "stream": True}, headers=ASK) as answer:
            assert (await answer.text()).count(": smg-debug ") == 1

    @pytest.mark.parametrize("place", [KEYS], indirect=True)
    async def test_without_the_flag_only_admins_may_ask(self, place):
        _, http, _ = place
        for key, status in (("data-key", 403), ("admin-key", 200)):
            headers = {**ASK, "authorization": f"Bearer {key}"}
            async with http.post("/v1/chat/completions", json=BODY, headers=headers) as answer:
                body = await answer.json()
            assert answer.status == status
            assert ("smg_debug" in body) is (status == 200)

    @pytest.mark.parametrize("place", [EVERYONE], indirect=True)
    @pytest.mark.parametrize("value", ["0", "", "no"])
    async def test_any_other_value_asks_for_nothing(self, place, value):
        _, http, _ = place
        async with http.post("/v1/chat/completions", json=BODY, headers={"x-smg-debug": value}) as answer:
            assert "smg_debug" not in await answer.json()
