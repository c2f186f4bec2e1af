"""A caller's trace context on its way to an HTTP engine (case OB-01; for engines over gRPC: tests/e2e/test_traces)."""

import re

import httpx
import pytest

from smg.engine_server.mock.http import HttpScript, MockHttpEngine
from tests.api.http_world import MODEL, place

TRACE, SPAN = "3dac15ca145787138ee68247fda9258b", "892bf5320fe1ac06"
PATHS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
    # The engine does not speak this one: it is asked in another dialect.
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}


async def told(path: str, stream: bool, headers: dict[str, str]) -> dict[str, list[str]]:
    """Which headers of a trace the engine got."""
    async with place(MockHttpEngine(HttpScript(texts=("one two",)))) as at, httpx.AsyncClient(timeout=20) as client:
        answer = await client.post(
            at.url + path,
            json={"model": MODEL, "stream": stream, **PATHS[path]},
            headers={"x-request-id": "req-7", **headers},
        )
        assert (answer.status_code, answer.headers["x-request-id"]) == (200, "req-7")
        (seen,) = at.engines[0].requests
        return {name: seen.header(name) for name in ("traceparent", "tracestate", "x-request-id")}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
async def test_OB_01_the_trace_goes_on_under_the_gateways_span(path, stream):
    for flag in ("01", "00"):
        seen = await told(path, stream, {"traceparent": f"00-{TRACE}-{SPAN}-{flag}", "tracestate": "x=1"})
        (parent,) = seen["traceparent"]
        version, trace, span, sampled = parent.split("-")
        assert (version, trace, sampled) == ("00", TRACE, flag)
        assert re.fullmatch("[0-9a-f]{16}", span)
        assert span != SPAN
        assert seen["tracestate"] == ["x=1"]
        assert seen["x-request-id"] == ["req-7"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("header", ["00-xyz", f"00-{'0' * 32}-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01"])
async def test_OB_01_a_malformed_one_is_not_handed_on(path, header):
    seen = await told(path, True, {"traceparent": header, "tracestate": "x=1"})
    assert (seen["traceparent"], seen["tracestate"]) == ([], [])


async def test_OB_01_a_state_that_engines_refuse_is_left_out():
    path = "/v1/chat/completions"
    seen = await told(path, False, {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "x=" + "1" * 600})
    assert len(seen["traceparent"]) == 1
    assert seen["tracestate"] == []
