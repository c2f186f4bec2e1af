"""What a request's context takes from its headers (spec api-and-ops 2.1, case OB-01)."""

import re

import pytest

from smg.config.settings import ServerSettings
from smg.server.identity import context_of, trace_parent

TRACE, SPAN = "3dac15ca145787138ee68247fda9258b", "892bf5320fe1ac06"


def test_OB_01_the_trace_of_the_caller_goes_on():
    trace = trace_parent({"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "x=1"})
    assert (trace.trace_id, trace.parent, trace.flags, trace.state) == (TRACE, SPAN, "01", "x=1")
    assert trace.header() == f"00-{TRACE}-{trace.span_id}-01"
    assert re.fullmatch("[0-9a-f]{16}", trace.span_id)
    assert trace.span_id not in (SPAN, "0" * 16)
    assert trace_parent({"traceparent": trace.header()}).span_id != trace.span_id
    assert trace_parent({"traceparent": f"00-{TRACE}-{SPAN}-00"}).flags == "00"


def test_OB_01_a_later_version_may_say_more():
    assert trace_parent({"traceparent": f"cc-{TRACE}-{SPAN}-01-more"}).trace_id == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "",
        "garbage",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}",
    ],
)
def test_OB_01_a_malformed_header_is_no_error(header):
    assert trace_parent({"traceparent": header}) is None


@pytest.mark.parametrize("state", ["x" * 513, "caf\u00e9=1", "a=1\x01", "a=1\nb=2"])
def test_OB_01_a_state_that_no_engine_takes_is_left_out(state):
    trace = trace_parent({"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": state})
    assert (trace.trace_id, trace.state) == (TRACE, "")


def test_a_new_request_gets_its_names_and_its_deadline():
    ctx = context_of({}, ("msg_", "messages"), ServerSettings(request_timeout_secs=60))
    assert ctx.endpoint == "messages"
    assert ctx.request_id.startswith("msg_")
    assert 59 < ctx.remaining() <= 60
