"""What a routing decision leaves behind for operators."""

import logging

import msgspec

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
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
    assert 'smg_routing_decisions_total{leg="regular",model="m",policy="cache_aware",reason="prefix"} 1.0' in page
    assert 'smg_routing_matched_ratio_sum{model="m",policy="cache_aware"} 0.8' in page


def test_at_debug_it_is_a_line_of_the_log(caplog):
    made, _, _ = facts()
    with caplog.at_level(logging.INFO, "smg.routing"):
        made.selected(LEASE, 1)
    assert caplog.records == []
    with caplog.at_level(logging.DEBUG, "smg.routing"):
        made.selected(LEASE, 1)
    [record] = caplog.records
    names = ("request", "model", "policy", "reason", "matched", "worker", "worker_url", "rank")
    assert {name: getattr(record, name) for name in names} == {
        "request": "r1",
        "model": "m",
        "policy": "cache_aware",
        "reason": "prefix",
        "matched": "64/80",
        "worker": "w1",
        "worker_url": "grpc://w1",
        "rank": 3,
    }


def pair() -> Lease:
    prefill = Lease(WorkerRecord("p1", 1, "grpc://p1"), "prefix", 16, matched=64, policy="cache_aware", prompt=80)
    return Lease(WorkerRecord("d1", 2, "grpc://d1"), "load", 0, policy="least_load", prompt=80, prefill=prefill)


def test_of_a_pair_both_choices_are_explained():
    made, ctx, metrics = facts()
    made.selected(pair(), 1)
    assert ctx.notes["decision"] == (
        "policy=least_load; reason=load; matched=0/80; worker=d1; "
        "prefill=p1; prefill_policy=cache_aware; prefill_reason=prefix; prefill_matched=64/80"
    )
    page = render(metrics).decode()
    assert 'smg_routing_decisions_total{leg="prefill",model="m",policy="cache_aware",reason="prefix"} 1.0' in page
    assert 'smg_routing_decisions_total{leg="decode",model="m",policy="least_load",reason="load"} 1.0' in page
    assert 'smg_routing_matched_ratio_sum{model="m",policy="cache_aware"} 0.8' in page


def test_engines_are_named_by_their_urls_too():
    made, ctx, _ = facts()
    made.selected(pair(), 1)
    assert (ctx.notes["worker_url"], ctx.notes["prefill_url"]) == ("grpc://d1", "grpc://p1")
    made.selected(LEASE, 2)
    assert ctx.notes["worker_url"] == "grpc://w1"
    assert "prefill_url" not in ctx.notes


def test_a_failed_attempt_names_the_engines_url(caplog):
    made, _, _ = facts()
    made.selected(pair(), 1)
    made.retried(GatewayError("worker_failed", "gone", detail="UNAVAILABLE: gone"), "p1", 2, 0.0)
    [record] = caplog.records
    assert (record.worker, record.worker_url, record.error) == ("p1", "grpc://p1", "UNAVAILABLE: gone")


def test_what_the_prompt_has_no_place_for_is_told_every_client_and_logged_once(caplog):
    lacking = msgspec.structs.replace(LEASE, lacks=frozenset({"logprobs"}))
    for lease, told in ((LEASE, ""), (lacking, "; not supported by the engine and ignored: logprobs")):
        made, ctx, _ = facts()
        made.model("without a place for tools")
        made.unshown("tools")
        for attempt in (1, 2):
            made.selected(lease, attempt)
            assert ctx.notes["warning"] == f"the model's prompt has no place for tools{told}"
    assert caplog.text.count("no place for what clients send") == 1
