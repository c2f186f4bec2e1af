"""Why a request failed: its status, the header, the log's records with its id and the metrics agree, for each kind."""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import grpc
import httpx
import pytest

from smg.engine_server.mock import Fault, MockEngine, Script
from tests.faults.every_dialect import QUESTION
from tests.gateway import Gateway, running_async, settings, until_async

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PATIENCE = 30.0
FLAGS = (
    *("--disable-retries", "--no-resume", "--cb-failure-threshold", "3", "--health-check-interval-secs", "0.2"),
    *("--request-timeout-secs", "1", "--max-payload-size", "100000"),
    *("--max-concurrent-requests", "2", "--queue-size", "1", "--queue-timeout-secs", "0.3"),
    *("--trust-tenant-header", "--tenant-limit", "header:small=1/0", "--log-json"),
)
STATUS = grpc.StatusCode


def failing(model: str, status: grpc.StatusCode, message: str) -> MockEngine:
    return MockEngine(Script(faults=(Fault(status=status, message=message),)), model=model)


def engines() -> list[MockEngine]:
    """One for each way to fail, called like it."""
    cut = Script(faults=(Fault(kind="eof", after_chunks=2),))
    stalls = Script(faults=(Fault(kind="stall", after_chunks=1),))
    return [
        MockEngine(model="fine", context_length=64),
        failing("busy", STATUS.RESOURCE_EXHAUSTED, "no slot"),
        failing("broken", STATUS.INTERNAL, "out of memory"),
        failing("away", STATUS.UNAVAILABLE, "connection refused"),
        failing("late", STATUS.DEADLINE_EXCEEDED, "too late"),
        failing("picky", STATUS.INVALID_ARGUMENT, "bad sampling"),
        MockEngine(cut, model="cut"),
        MockEngine(stalls, model="stalls"),
        MockEngine(Script(healthy=False, serving=False), model="down"),
    ]


class Case(NamedTuple):
    """A request for ``model`` and what comes of it; ``told`` is in a record of the log that is no access record,
    ``retry_after`` a pattern. It is ``counted`` as a failed generation, under its model where that was ``known`` then.
    """

    name: str
    model: str
    status: int
    code: str
    told: str = ""
    retry_after: str = ""
    level: str = "WARN"
    stream: bool = False
    body: bytes | None = None
    param: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    counted: bool = True
    known: bool = True


SMALL = (("x-smg-tenant-id", "small"),)
CASES = (
    Case("engine-429", "busy", 429, "rate_limit_exceeded", "no slot", "1"),
    Case("engine-500", "broken", 500, "worker_failed", "out of memory", level="ERROR"),
    Case("engine-503", "away", 503, "worker_failed", "connection refused", "1", level="ERROR"),
    Case("engine-504", "late", 504, "upstream_timeout", "too late", level="ERROR"),
    Case("engine-400", "picky", 400, "invalid_request", "bad sampling"),
    Case("cut-502", "cut", 502, "worker_stream_failed", "answer broke off", level="ERROR"),
    Case("cut-stream", "cut", 200, "worker_stream_failed", "answer broke off", stream=True),
    Case("deadline-504", "stalls", 504, "deadline_exceeded", level="ERROR"),
    Case("deadline-stream", "stalls", 200, "deadline_exceeded", stream=True),
    Case("nobody-503", "down", 503, "no_available_workers", "1 pending", "1", level="ERROR"),
    Case("breaker-1", "broken", 500, "worker_failed", level="ERROR"),
    Case("breaker-2", "broken", 500, "worker_failed", "circuit breaker is open", level="ERROR"),
    Case("breaker-503", "broken", 503, "no_available_workers", "1 breaker open", "[3-5].|60", level="ERROR"),
    Case("model-404", "unheard-of", 404, "model_not_found", "'unheard-of'", param="model", known=False),
    Case("tenant-429", "fine", 429, "tenant_rate_limit_exceeded", retry_after="[3-5].|60", headers=SMALL),
    Case("body-413", "fine", 413, "request_too_large", body=b"x" * 100_001, counted=False),
    Case("json-400", "fine", 400, "json_parse_error", body=b"{", counted=False),
    Case("field-400", "fine", 400, "invalid_value", body=b'{"model":"fine"}', param="messages", counted=False),
    Case("long-400", "fine", 400, "context_length_exceeded", body=b"long", param="messages"),
)


def asked(model: str, stream: bool = False, content: str = QUESTION) -> bytes:
    fields = {"model": model, "stream": stream, "messages": [{"role": "user", "content": content}]}
    return json.dumps(fields).encode()


async def send(http: httpx.AsyncClient, case: Case) -> httpx.Response:
    body = {None: asked(case.model, case.stream), b"long": asked(case.model, content=" the" * 100)}.get(case.body)
    headers = {"x-request-id": case.name, **dict(case.headers)}
    return await http.post("/v1/chat/completions", content=body or case.body, headers=headers)


def records(printed: str) -> Iterator[dict]:
    for line in printed.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


def count(page: str, name: str, **labels: str) -> float:
    """Sum of the series of a metric that have these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    lines = re.findall(rf"^{name}{{([^}}]*)}} (\S+)$", page, re.MULTILINE)
    return sum(float(value) for found, value in lines if all(one in found for one in wanted))


@contextlib.asynccontextmanager
async def serving(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        fleet = [await stack.enter_async_context(engine) for engine in engines()]
        flags = ("--worker-urls", *(engine.url for engine in fleet), *FLAGS)
        gateway = await stack.enter_async_context(running_async(settings(tmp_path, *flags)))
        await until_async(lambda: gateway.metric("smg_worker_health") == len(fleet) - 1, PATIENCE)
        yield gateway, await stack.enter_async_context(httpx.AsyncClient(base_url=gateway.url, timeout=PATIENCE))


async def waiting(http: httpx.AsyncClient, gateway: Gateway) -> dict[str, httpx.Response]:
    """Two streams take the places there are, one request waits in vain, and one more finds the queue full."""
    places = [
        asyncio.create_task(send(http, Case(f"place-{number}", "stalls", 200, "deadline_exceeded", stream=True)))
        for number in range(2)
    ]
    await until_async(lambda: gateway.metric("smg_requests_inflight") == 2, PATIENCE)
    waiter = asyncio.create_task(send(http, Case("queue-503", "fine", 503, "queue_timeout")))
    await asyncio.sleep(0.05)
    refused = await send(http, Case("queue-429", "fine", 429, "queue_full"))
    found = {"queue-503": await waiter, "queue-429": refused}
    await asyncio.gather(*places)
    return found


async def test_each_failure_says_why_wherever_an_operator_looks(tmp_path, capfd):
    async with serving(tmp_path) as (gateway, http):
        await send(http, Case("tenant-200", "fine", 200, "", headers=SMALL))
        answers = {case.name: await send(http, case) for case in CASES}
        answers |= await waiting(http, gateway)
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/v1/chat/completions", content=asked("stalls"), headers={"x-request-id": "l"}, timeout=0.2)
        await until_async(lambda: gateway.metric("smg_requests_inflight") == 0, PATIENCE)
        page = (await http.get("/metrics")).text
    logged: dict[str, list[dict]] = {}
    for record in records(capfd.readouterr().err):
        logged.setdefault(record.get("request_id", ""), []).append(record)

    queue = (
        Case("queue-503", "fine", 503, "queue_timeout", retry_after="1", level="ERROR"),
        Case("queue-429", "fine", 429, "queue_full", retry_after="1"),
    )
    for case in (*CASES, *queue):
        answer = answers[case.name]
        streamed = case.status == 200
        assert answer.status_code == case.status, case
        assert answer.headers.get("x-smg-error-code") == (None if streamed else case.code), case
        assert re.fullmatch(case.retry_after, answer.headers.get("retry-after", "")), case
        assert answer.headers["x-request-id"] == case.name
        assert case.code in answer.text
        *others, access = sorted(logged[case.name], key=lambda record: record["logger"] == "smg.access")
        assert (access["status"], access["error"], access["level"]) == (case.status, case.code, case.level), case
        assert access.get("param") == case.param, case
        assert access["client"] == "127.0.0.1"
        assert access.get("model") == (case.model if case.counted and case.known else None), case
        assert case.told in json.dumps(others), case
        status, model = str(case.status), case.model if case.known else ""
        assert count(page, "smg_http_responses_total", status_code=status, error_code=case.code) >= 1, case
        counted = count(page, "smg_router_request_errors_total", model=model, error_type=case.code)
        assert (counted >= 1) == case.counted, case

    for reason in ("queue_full", "queue_timeout", "tenant_rate_limit_exceeded"):
        assert count(page, "smg_admission_rejections_total", reason=reason) == 1
    [left] = logged["l"]
    assert (left["status"], left["error"], left["model"]) == (499, "client_disconnected", "stalls")
    assert count(page, "smg_http_responses_total", status_code="499", error_code="client_disconnected") == 1
    assert count(page, "smg_engine_aborts_total", reason="client_disconnect") == 1
    assert count(page, "smg_worker_cb_outcomes_total", outcome="backpressure") == 1
