"""The OpenAPI document: complete, closed, and true about the types."""

import re
from typing import Any

import pytest

from smg.api.openapi import document
from smg.api.routes import Api
from smg.api.table import DIALECTS
from tests.api.test_ops_routes import get
from tests.pipeline.fakes import world

ROUTES = Api().routes
DOCUMENT = document(ROUTES)
SCHEMAS = DOCUMENT["components"]["schemas"]


def found(value: Any, key: str) -> list:
    """All values of ``key`` anywhere inside."""
    if isinstance(value, list):
        return [hit for item in value for hit in found(item, key)]
    if isinstance(value, dict):
        own = [value[key]] if key in value else []
        return own + [hit for item in value.values() for hit in found(item, key)]
    return []


def operation(method, path):
    return DOCUMENT["paths"][path][method]


def braced(path):
    """A route's path as OpenAPI writes it."""
    return re.sub(r"<(\w+)(:\w+)?>", r"{\1}", path)


def body_schema(path):
    (ref,) = found(operation("post", path)["requestBody"], "$ref")
    return SCHEMAS[ref.rpartition("/")[2]]


def test_every_route_is_in_it_with_a_summary_and_an_id_of_its_own():
    listed = {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert listed == {(route.method.lower(), braced(route.path)) for route in ROUTES}
    operations = [one for methods in DOCUMENT["paths"].values() for one in methods.values()]
    assert all(one["summary"] for one in operations)
    assert len({one["operationId"] for one in operations}) == len(operations)


def test_every_reference_leads_somewhere():
    for reference in found(DOCUMENT, "$ref"):
        assert reference.removeprefix("#/components/schemas/") in SCHEMAS


def test_path_parameters_are_described():
    (parameter,) = operation("get", "/v1/models/{model}")["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("model", "path", True)


def test_only_public_routes_need_no_key():
    for route in ROUTES:
        assert bool(operation(route.method.lower(), braced(route.path))["security"]) == (route.access != "public")


GENERATIONS = [endpoint.path for dialect in DIALECTS for endpoint in dialect.routes if endpoint.handler is None]


@pytest.mark.parametrize("path", GENERATIONS)
def test_a_generation_takes_its_body_and_answers_json_or_events(path):
    assert body_schema(path)["properties"]["stream"]
    content = operation("post", path)["responses"]["200"]["content"]
    assert set(content) == {"application/json", "text/event-stream"}


@pytest.mark.parametrize(
    ("path", "field", "least", "most"),
    [
        ("/v1/chat/completions", "temperature", 0, 2),
        ("/v1/chat/completions", "n", 1, 10),
        ("/v1/chat/completions", "top_logprobs", 0, 20),
        ("/v1/completions", "n", 1, 128),
        ("/v1/completions", "best_of", 0, 20),
        ("/v1/completions", "logprobs", 0, 5),
    ],
)
def test_the_limits_that_are_checked_are_told(path, field, least, most):
    number = body_schema(path)["properties"][field]["anyOf"][0]
    assert (number["minimum"], number["maximum"]) == (least, most)


async def test_it_is_served():
    status, served = await get(world({"w1": [[]]}), "/openapi.json")
    assert (status, served["openapi"]) == (200, "3.1.0")
    assert "/v1/completions" in served["paths"]
