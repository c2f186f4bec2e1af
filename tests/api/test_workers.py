"""The workers API over HTTP (spec api-and-ops 1.11); what control does with it is tried in tests/control."""

from urllib.parse import quote

import aiohttp
import pytest

from smg.core.errors import GatewayError
from tests.api.serving import serving
from tests.pipeline.fakes import world

ID = "01941f29-0000-7000-8000-000000000001"
WORKER = {"id": ID, "url": "grpc://e:1", "status": "pending"}


class Recorder:
    """A control process that answers everything with WORKER, or fails."""

    def __init__(self, error: GatewayError | None = None) -> None:
        self.calls: list[tuple[str, dict]] = []
        self.error = error

    async def call(self, op, **arguments):
        self.calls.append((op, arguments))
        if self.error is not None:
            raise self.error
        return WORKER


@pytest.fixture
def control():
    return Recorder()


async def send(control, method, path, body=None):
    place = world({"w1": [[]]})
    place.services.control = control
    async with (
        serving(place.services) as url,
        aiohttp.ClientSession() as http,
        http.request(method, url + path, json=body) as response,
    ):
        return response.status, response.headers, await response.json()


async def test_create(control):
    body = {
        "url": "grpc://e:1",
        "runtime_type": "vllm",
        "models": ["qwen", {"id": "llama", "aliases": ["big"]}],
        "labels": {"zone": "x"},
        "priority": 80,
        "cost": 2,
    }
    status, headers, answer = await send(control, "POST", "/workers", body)
    assert (status, headers["location"]) == (202, f"/workers/{ID}")
    assert answer == {
        "status": "accepted",
        "worker_id": ID,
        "url": "grpc://e:1",
        "location": f"/workers/{ID}",
        "message": "the worker is being added",
    }
    [(op, arguments)] = control.calls
    spec = arguments["spec"]
    assert op == "create"
    assert (spec["runtime"], spec["labels"], spec["priority"], spec["cost"]) == ("vllm", {"zone": "x"}, 80, 2.0)
    assert len(spec["models"]) == 2


async def test_roles_and_their_ports_become_labels_and_keys_go_to_control_alone(control):
    body = {
        "url": "http://e:1",
        "worker_type": "prefill",
        "bootstrap_port": 8998,
        "multimodal_tensor_transport": "shm",
        "multimodal_shm_min_bytes": 1024,
        "labels": {"zone": "x"},
        "api_key": "k",
    }
    status, _, answer = await send(control, "POST", "/workers", body)
    [(_, arguments)] = control.calls
    assert status == 202
    assert arguments["spec"]["labels"] == {
        "zone": "x",
        "worker_type": "prefill",
        "bootstrap_port": "8998",
        "multimodal_tensor_transport": "shm",
        "multimodal_shm_min_bytes": "1024",
    }
    assert arguments["spec"]["api_key"] == "k"
    assert "api_key" not in answer


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "url"),
        ({"url": 1}, "url"),
        ({"url": "grpc://e:1", "color": "red"}, None),
        ({"url": "grpc://e:1", "runtime_type": "abacus"}, "runtime_type"),
        ({"url": "grpc://e:1", "cost": -1}, "cost"),
        ({"url": "grpc://e:1", "priority": 10**30}, "priority"),
        ({"url": "grpc://e:1", "worker_type": "queen"}, "worker_type"),
        ({"url": "grpc://e:1", "bootstrap_port": 0}, "bootstrap_port"),
        ({"url": "grpc://e:1", "multimodal_tensor_transport": "rdma"}, "multimodal_tensor_transport"),
        ({"url": "grpc://e:1", "multimodal_shm_min_bytes": -1}, "multimodal_shm_min_bytes"),
        ({"url": "grpc://e:1", "health": {"failure_threshold": 10**30}}, "health.failure_threshold"),
        ({"url": "grpc://e:1", "labels": {"a": 1}}, "labels[...]"),
    ],
)
async def test_a_body_that_is_wrong_is_a_400_that_names_the_place(control, body, param):
    status, _, answer = await send(control, "POST", "/workers", body)
    assert (status, answer["error"]["param"]) == (400, param)
    assert control.calls == []


async def test_a_body_beyond_all_measure_is_a_413(control):
    body = {"url": "grpc://e:1", "labels": {"a": "x" * 70_000}}
    assert (await send(control, "POST", "/workers", body))[0] == 413


@pytest.mark.parametrize(
    ("method", "op", "body", "arguments"),
    [
        ("PUT", "replace", {"url": "grpc://e:1"}, {"spec": {"url": "grpc://e:1", "runtime": "", "models": []}}),
        (
            "PATCH",
            "patch",
            {"labels": {"zone": None}, "priority": 7},
            {"patch": {"priority": 7, "labels": {"zone": None}}},
        ),
        ("DELETE", "delete", None, {}),
    ],
)
@pytest.mark.parametrize("name", [ID, "grpc://e:1"])
async def test_changes_name_a_worker_by_id_or_url(control, name, method, op, body, arguments):
    status, _, answer = await send(control, method, f"/workers/{quote(name, safe='')}", body)
    assert (status, answer["worker_id"]) == (202, ID)
    assert control.calls == [(op, {"id": name, **arguments})]


async def test_get(control):
    assert (await send(control, "GET", f"/workers/{ID}"))[::2] == (200, WORKER)
    assert control.calls == [("get", {"id": ID})]


@pytest.mark.parametrize(
    ("code", "status"), [("worker_not_found", 404), ("worker_already_exists", 409), ("overloaded", 503)]
)
async def test_control_s_errors_have_the_one_shape(code, status):
    found, headers, answer = await send(Recorder(GatewayError(code, "no")), "GET", "/workers/x")
    assert (found, headers["x-smg-error-code"], answer["error"]["code"]) == (status, code, code)
