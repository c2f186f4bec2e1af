"""``/v1/tokenizers`` over HTTP: against the jobs themselves, then against a whole gateway."""

import time

import aiohttp
import httpx
import pytest
from yarl import URL

from smg._native.region import Region
from smg.control.prepared_tokenizers import PreparedTokenizers
from smg.control.tokenizer_jobs import TokenizerJobs
from smg.fleet.records import ModelRecord
from smg.fleet.registry import Registry
from smg.text.mapped.folder import Folder
from tests.api.serving import serving
from tests.control.test_tokenizer_jobs import settled
from tests.engines_for_tests import mock_process
from tests.gateway import running, settings
from tests.pipeline.fakes import world
from tests.text.makers import chat_model

UNKNOWN = {"message": "there is no tokenizer 'org/nope'", "type": "not_found_error", "param": None, "code": "not_found"}


class JobsControl:
    """The control process, without a process."""

    def __init__(self, region: Region, cache) -> None:
        self.registry = Registry(region)
        self.prepared = PreparedTokenizers(Folder(cache / "prepared"))
        self.jobs = TokenizerJobs(self.registry, lambda model: None, cache, self.prepared.prepare)

    async def call(self, op, **arguments):
        return await self.jobs.operations()[op](arguments)


@pytest.fixture
async def place(tmp_path):
    """A gateway's HTTP side that serves one model, with its own tokenizer."""
    place = world({"w1": [[]]}, model="served")
    region = Region.create(3, workers=8)
    place.control = place.services.control = JobsControl(region, tmp_path)
    place.control.registry._models["served"] = ModelRecord("served", tokenizer_dir="/models/served")
    async with serving(place.services) as url, aiohttp.ClientSession() as http:
        place.url, place.http = url, http
        yield place
    await place.control.jobs.close()
    await place.control.prepared.close()
    region.close()


async def ask(place, method, path="", **fields):
    async with place.http.request(method, f"{place.url}/v1/tokenizers{path}", **fields) as response:
        return response.status, await response.json()


async def test_life_of_a_tokenizer(place, tmp_path):
    source = str(chat_model(tmp_path / "m"))
    status, accepted = await ask(place, "POST", json={"name": "org/mine", "source": source})
    assert (status, accepted["status"]) == (202, "pending")
    assert accepted["message"] == "the tokenizer 'org/mine' is being loaded"
    [record] = place.control.registry.tokenizers
    await settled(record)
    assert await ask(place, "GET", f"/{accepted['id']}/status") == (
        200,
        {"id": accepted["id"], "name": "org/mine", "status": "completed", "message": ""},
    )
    info = {
        "id": accepted["id"],
        "name": "org/mine",
        "source": source,
        "vocab_size": record.vocab_size,
        "origin": "added",
    }
    assert await ask(place, "GET", f"/{accepted['id']}") == (200, info)
    status, listed = await ask(place, "GET")
    assert (status, listed["tokenizers"][0]) == (200, info)
    brought = listed["tokenizers"][1]
    assert (brought["name"], brought["origin"], brought["source"]) == ("served", "model", "/models/served")
    assert brought["vocab_size"] == place.texts.get(None).tokenizer.size
    status, conflict = await ask(place, "POST", json={"name": "org/mine", "source": source})
    assert (status, conflict["error"]["code"]) == (409, "conflict")
    assert await ask(place, "DELETE", f"/{accepted['id']}") == (
        200,
        {"success": True, "message": "the tokenizer 'org/mine' has been removed"},
    )
    assert [one["name"] for one in (await ask(place, "GET"))[1]["tokenizers"]] == ["served"]


async def test_a_name_with_a_slash_is_escaped(place):
    url = f"{place.url}/v1/tokenizers/org%2Fnope"
    for method, path in (("GET", ""), ("GET", "/status"), ("DELETE", "")):
        async with place.http.request(method, URL(url + path, encoded=True)) as response:
            assert (response.status, (await response.json())["error"]) == (404, UNKNOWN)


async def test_a_failure_can_be_asked_for_but_is_no_tokenizer(place):
    _, accepted = await ask(place, "POST", json={"name": "bad", "source": "/nowhere"})
    await settled(place.control.registry.tokenizers[0])
    status, told = await ask(place, "GET", f"/{accepted['id']}/status")
    assert (status, told["status"]) == (200, "failed")
    assert told["message"].startswith("source: /nowhere is no directory")
    assert (await ask(place, "GET", "/bad"))[0] == 404
    assert [one["name"] for one in (await ask(place, "GET"))[1]["tokenizers"]] == ["served"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"source": "x"}, "name"),
        ({"name": "x"}, "source"),
        ({"name": "", "source": "x"}, "name"),
        ({"name": 3, "source": "x"}, "name"),
        ({"name": "x", "source": "y", "chat_template_path": "/nowhere"}, "chat_template_path"),
    ],
)
async def test_a_bad_body(place, body, param):
    status, answer = await ask(place, "POST", json=body)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_what_a_model_brought_stays(place):
    status, answer = await ask(place, "DELETE", "/served")
    assert (status, answer["error"]["code"]) == (409, "conflict")


async def test_without_control_it_is_a_503(place):
    place.services.control = None
    for method, fields in (("GET", {}), ("POST", {"json": {"name": "x", "source": "y"}})):
        status, answer = await ask(place, method, **fields)
        assert (status, answer["error"]["code"]) == (503, "overloaded")


@pytest.mark.e2e
def test_an_added_tokenizer_serves_requests_of_all_processes(tmp_path):
    source = str(chat_model(tmp_path / "m"))
    with (
        mock_process("--text", "hi") as address,
        running(settings(tmp_path / "state", "--worker-urls", f"grpc://{address}", "--workers", "2")) as gateway,
    ):
        url = f"{gateway.url}/v1/tokenizers"
        accepted = httpx.post(url, json={"name": "mine", "source": source}).json()
        end = time.monotonic() + 30
        while httpx.get(f"{url}/{accepted['id']}/status").json()["status"] != "completed":
            assert time.monotonic() < end
            time.sleep(0.05)
        found = {one["name"]: one["origin"] for one in httpx.get(url).json()["tokenizers"]}
        assert found == {"mine": "added", "mock-model": "model"}
        counts = set()
        for _ in range(6):
            while (answer := gateway_tokenize(gateway, "mine")).status_code != 200:
                assert time.monotonic() < end
                time.sleep(0.05)
            counts.add(answer.json()["count"])
        assert len(counts) == 1
        assert httpx.delete(f"{url}/mine").json()["success"] is True
        while gateway_tokenize(gateway, "mine").status_code != 400:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert gateway_tokenize(gateway, "mock-model").status_code == 200


def gateway_tokenize(gateway, model):
    return httpx.post(f"{gateway.url}/v1/tokenize", json={"model": model, "prompt": "hello world"})
