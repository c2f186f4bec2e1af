"""What a routing decision leaves behind for operators."""

import logging

from smg.core.context import RequestContext
from smg.fleet.records import WorkerRecord
from smg.pipeline.facts import Facts, decision
from smg.routing.router import Lease
from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics
from smg.telemetry.page import render

LEASE = Lease(WorkerRecord("w1", 0, "grpc://w1"), "prefix", 16, matched=64, policy="cache_aware", prompt=80, rank=3)


def facts() -> tuple[Facts, RequestContext, Metrics]:
    metrics, ctx = Metrics(LocalCells(), 0), RequestContext("r1", endpoint="chat")
    made = Facts(metrics, ctx, streaming=False)
    made.model("m")
    return made, ctx, metrics


def test_a_decision_in_one_line():
    assert decision(LEASE) == "policy=cache_aware; reason=prefix; matched=64/80; worker=w1; rank=3"


def test_it_is_noted_and_counted():
    made, ctx, metrics = facts()
    made.selected(LEASE, 1)
    assert ctx.notes["decision"] == decision(LEASE)
    page = render(metrics).decode()
    assert 'smg_routing_decisions_total{model="m",policy="cache_aware",reason="prefix"} 1.0' in page
    assert 'smg_routing_matched_ratio_sum{model="m",policy="cache_aware"} 0.8' in page


def test_at_debug_it_is_a_line_of_the_log(caplog):
    made, _, _ = facts()
    with caplog.at_level(logging.INFO, "smg.routing"):
        made.selected(LEASE, 1)
    assert caplog.records == []
    with caplog.at_level(logging.DEBUG, "smg.routing"):
        made.selected(LEASE, 1)
    [record] = caplog.records
    names = ("request", "model", "policy", "reason", "matched", "worker", "rank")
    assert {name: getattr(record, name) for name in names} == {
        "request": "r1",
        "model": "m",
        "policy": "cache_aware",
        "reason": "prefix",
        "matched": "64/80",
        "worker": "w1",
        "rank": 3,
    }
