"""A caller's trace context on its way through the gateway (case OB-01)."""

import json
import re

import httpx
import pytest

from smg.engine_server.mock import MockEngine, Script
from tests.gateway import body, running_async, settings

pytestmark = pytest.mark.e2e

TRACE, SPAN = "3dac15ca145787138ee68247fda9258b", "892bf5320fe1ac06"


@pytest.mark.parametrize("transport", ["grpcio", "native"])
async def test_OB_01_ingress_gateway_and_engine_meet_in_one_trace(transport, tmp_path, capfd):
    flags = ("--engine-transport", transport, "--log-json")
    async with (
        MockEngine(Script.text("hello there")) as engine,
        running_async(settings(tmp_path, "--worker-urls", engine.url, *flags)) as gateway,
        httpx.AsyncClient(base_url=gateway.url, timeout=20) as client,
    ):

        async def ask(**headers: str) -> dict[str, str | bytes]:
            """The metadata the engine got."""
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            answer = await client.post("/v1/chat/completions", content=body(model="mock-model"), headers=named)
            assert answer.status_code == 200
            assert answer.headers["x-request-id"] == headers["x_request_id"]
            return engine.requests[-1].metadata

        sampled = await ask(traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="x=1", x_request_id="req-7")
        quiet = await ask(traceparent=f"00-{TRACE}-{SPAN}-00", x_request_id="req-8")
        malformed = await ask(traceparent="00-xyz", tracestate="x=1", x_request_id="req-9")

    version, trace, span, flag = sampled["traceparent"].split("-")
    assert (version, trace, flag) == ("00", TRACE, "01")
    assert re.fullmatch("[0-9a-f]{16}", span)
    assert span != SPAN
    assert sampled["tracestate"] == "x=1"
    assert quiet["traceparent"].endswith("-00")
    assert "tracestate" not in quiet
    assert "traceparent" not in malformed
    assert "tracestate" not in malformed
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    log = {line["request_id"]: line for line in lines if line["logger"] == "smg.access"}
    assert (log["req-7"]["trace_id"], log["req-7"]["span_id"], log["req-7"]["parent_span_id"]) == (TRACE, span, SPAN)
    assert "trace_id" not in log["req-9"]
