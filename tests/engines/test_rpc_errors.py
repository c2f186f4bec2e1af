"""Status mapping (spec engine-contract 4.3) and engine addresses."""

import pytest

from smg.core.errors import GatewayError
from smg.engines.transport.address import parse
from smg.engines.transport.errors import from_status, of_contract, presentable

STATUSES = [
    ("INVALID_ARGUMENT", 400, "invalid_request", False),
    ("FAILED_PRECONDITION", 400, "invalid_request", False),
    ("OUT_OF_RANGE", 400, "invalid_request", False),
    ("UNAUTHENTICATED", 401, "invalid_api_key", False),
    ("PERMISSION_DENIED", 403, "permission_denied", False),
    ("NOT_FOUND", 404, "not_found", False),
    ("ALREADY_EXISTS", 409, "conflict", False),
    ("ABORTED", 409, "conflict", False),
    ("RESOURCE_EXHAUSTED", 429, "rate_limit_exceeded", False),
    ("INTERNAL", 500, "worker_failed", True),
    ("UNKNOWN", 500, "worker_failed", True),
    ("DATA_LOSS", 500, "worker_failed", True),
    ("UNIMPLEMENTED", 501, "not_implemented", False),
    ("CANCELLED", 502, "worker_failed", True),
    ("UNAVAILABLE", 503, "worker_failed", True),
    ("DEADLINE_EXCEEDED", 504, "upstream_timeout", True),
]


@pytest.mark.parametrize(("rpc", "status", "code", "fault"), STATUSES)
def test_before_the_first_message(rpc, status, code, fault):
    error = from_status(rpc, "what it said")
    assert isinstance(error, GatewayError)
    assert (error.rpc, error.status, error.code, error.worker_fault) == (rpc, status, code, fault)
    assert error.detail == f"{rpc}: what it said"


@pytest.mark.parametrize("rpc", ["INTERNAL", "UNKNOWN", "DATA_LOSS", "CANCELLED", "UNAVAILABLE"])
def test_a_stream_that_was_running_has_broken(rpc):
    error = from_status(rpc, "gone", established=True)
    assert (error.code, error.status, error.worker_fault) == ("worker_stream_failed", 502, True)


def test_the_constraint_trailer_makes_422_that_is_not_retried():
    error = from_status("FAILED_PRECONDITION", "no match", {"smg-constraint-failed": "engine"}, established=True)
    assert (error.code, error.status, error.worker_fault, error.retryable) == ("constraint_failed", 422, False, False)
    assert from_status("INTERNAL", "", {"smg-constraint-failed": "engine"}).status == 500


def test_the_engine_explains_the_clients_mistake_and_nothing_else():
    told = "the prompt has 9 tokens, the context 8"
    assert from_status("INVALID_ARGUMENT", told).message.endswith(told)
    for rpc in ("INTERNAL", "UNAVAILABLE", "UNKNOWN", "UNAUTHENTICATED"):
        assert told not in from_status(rpc, told).message


@pytest.mark.parametrize(
    "details",
    [
        "no such file: /opt/models/llama/config.json",
        "failed to connect to 10.0.0.7",
        "failed to connect to engine-3.local:50051",
        "ipv4:127.0.0.1:5000: Connection refused",
        "bad request\nTraceback (most recent call last)",
        'File "engine.py", line 3',
        "",
    ],
)
def test_internals_never_reach_a_client(details):
    assert presentable(details) == ""


@pytest.mark.parametrize(
    "details",
    [
        "Received message larger than max (5000000 vs. 4194304)",
        "grpc: received message larger than max (5000000 vs. 4194304)",
        "gRPC message exceeds maximum size 4194304: 5000000",
    ],
)
def test_CF_02_a_message_that_is_too_large_for_the_engine_is_the_clients(details):
    error = from_status("RESOURCE_EXHAUSTED", details)
    assert (error.code, error.status, error.retryable, error.worker_fault) == ("request_too_large", 413, False, False)
    assert "4194304" in error.message


@pytest.mark.parametrize("details", ["HTTP status 413", "Received http2 header with status: 413"])
def test_a_request_that_is_too_large_for_a_proxy_is_the_clients(details):
    error = from_status("UNKNOWN", details)
    assert (error.code, error.status, error.worker_fault, error.retryable) == ("request_too_large", 413, False, False)
    assert "proxy" in error.message
    assert from_status("UNKNOWN", details.replace("413", "418")).worker_fault
    assert from_status("INTERNAL", f"{details} for an image").worker_fault


def test_long_messages_are_cut_and_lines_joined():
    assert presentable("regex parse error:\n    (a\n    ^\nunclosed\n") == "regex parse error: (a ^ unclosed"
    assert len(presentable("x" * 1000)) == 400


@pytest.mark.parametrize(
    ("url", "target", "tls"),
    [
        ("grpc://engine:50051", "engine:50051", False),
        ("grpcs://engine:443", "engine:443", True),
        ("engine:50051", "engine:50051", False),
        ("grpc://[::1]:50051/", "[::1]:50051", False),
    ],
)
def test_addresses(url, target, tls):
    address = parse(url)
    assert (address.target, address.tls) == (target, tls)


@pytest.mark.parametrize(
    "url",
    ["http://engine:80", "grpc://engine", "grpc://:50051", "grpc://e:1/path", "grpc://u@e:1", "grpc://e:99999", ""],
)
def test_what_is_no_address(url):
    with pytest.raises(ValueError, match=r"scheme|address|required"):
        parse(url)


@pytest.mark.parametrize("details", ["", "Method not found!", "unknown service vllm.Engine", "Method not implemented!"])
def test_without_a_method_of_the_contract_the_engine_is_another_one(details):
    error = of_contract(from_status("UNIMPLEMENTED", details))
    assert (error.code, error.status, error.worker_fault, error.retryable) == ("worker_failed", 502, True, True)
    assert error.detail == f"UNIMPLEMENTED: {details}"


@pytest.mark.parametrize(
    ("rpc", "details", "status"),
    [
        ("UNIMPLEMENTED", "this engine does not support regex", 501),
        ("INVALID_ARGUMENT", "Method not found!", 400),
        ("UNAVAILABLE", "", 503),
    ],
)
def test_what_an_engine_says_of_a_request_stays(rpc, details, status):
    error = from_status(rpc, details)
    assert of_contract(error) is error
    assert error.status == status
