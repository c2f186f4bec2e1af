"""Which kind of backend answers a request (DESIGN 3): token ids to an engine, the body as it is, or another dialect."""

import random

from smg.core.backends import BackendKind
from smg.engines.http.routes import BY_DIALECT, GENERATING
from smg.fleet.records import ModelRecord
from smg.pipeline.services import Services
from smg.routing.models import resolve
from smg.routing.router import Query

# What an HTTP engine may be asked when it does not speak the client's dialect.
_ASKED = ("completions_api", "chat_api")


def choose(services: Services, name: str, dialect: str) -> tuple[BackendKind, ModelRecord]:
    """The kind of backend for a request in ``dialect`` for the model called ``name``, and the model's record.

    Where engines of several kinds serve the model, each of them gets its share by number. HTTP engines get the body as
    it is if any of them speaks the dialect. What is no generation (tokenizing) is asked of them only where the gateway
    has no tokenizer of its own for the model.

    Raises:
        GatewayError: as ``routing.models.resolve``.
    """
    model = resolve(services.view.snapshot(), name)
    tokens = _ready(services, model, "generate")
    route = BY_DIALECT.get(dialect)
    raw = 0 if route is None else _ready(services, model, route.feature)
    asked = raw or max(_ready(services, model, feature) for feature in _ASKED)
    generates = route is None or route.feature in GENERATING
    if random.random() * (tokens + asked) < tokens or (tokens and not generates):
        return "tokens", model
    if asked:
        return "raw" if raw else "events", model
    return _expected(services, model, None if route is None else route.feature), model


def _expected(services: Services, model: ModelRecord, feature: str | None) -> BackendKind:
    """The kind when nobody is ready: what would answer if all were, so that the error is that one's."""
    names = {model.id, *model.aliases}
    serving = [worker for worker in services.view.snapshot().workers if not names.isdisjoint(worker.models)]
    if any(worker.kind == "tokens" for worker in serving) or not serving:
        return "tokens"
    speaks = any(worker.features is not None and feature in worker.features for worker in serving)
    return "raw" if speaks else "events"


def _ready(services: Services, model: ModelRecord, feature: str) -> int:
    return services.router.count(Query(model.id, needs=frozenset({feature})))
