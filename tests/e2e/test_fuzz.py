"""Requests made up from the OpenAPI document against a running gateway: no 5xx, and only answers it promises.

The gateway runs as a user would start it, on a mock engine.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from smg.api.openapi import document
from smg.api.routes import Api
from tests import gateway as gateways
from tests.engines_for_tests import mock_process

pytestmark = pytest.mark.e2e

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
OPERATIONS = [result.ok() for result in schemathesis.openapi.from_dict(document(Api().routes)).get_all_operations()]


@pytest.fixture(scope="module")
def offline():
    """Made-up sources of tokenizers may be names on the hub, which is not to be asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, offline):
    state = tmp_path_factory.mktemp("state")
    with (
        mock_process() as engine,
        gateways.running(gateways.settings(state, "--worker-urls", f"grpc://{engine}", "--workers", "2")) as started,
    ):
        yield started


def known_model(case):
    """Most requests are for the model there is: what comes after routing is to be tried too."""
    if isinstance(case.body, dict) and isinstance(case.body.get("model"), str) and len(case.body["model"]) % 4:
        case.body["model"] = "mock-model"
    return case


def requests(operation):
    """Requests that fit the document, and about as many that don't."""
    return st.one_of(*(operation.as_strategy(mode) for mode in GenerationMode)).map(known_model)


def call(operation, gateway, examples: int) -> None:

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=requests(operation))
    def one(case):
        case.call_and_validate(base_url=gateway.url, checks=CHECKS, timeout=20)

    one()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_made_up_requests(operation, gateway):
    call(operation, gateway, 30)


@pytest.mark.full
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_many_made_up_requests(operation, gateway):
    call(operation, gateway, 200)


def test_nothing_is_left_behind(gateway):
    gateways.wait_for(lambda: gateway.metric("smg_requests_inflight") == 0, 10, "no request in flight")
    assert gateway.metric("smg_worker_requests_active") == 0
