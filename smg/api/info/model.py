"""``GET /get_model_info``: a model as its engines describe it, in SGLang's names.

The gateway answers by itself, from what the engines told when they were registered.
"""

from typing import Any

import msgspec
from sanic import Request

from smg.fleet.records import ModelRecord, WorkerRecord
from smg.pipeline.services import Services
from smg.routing.models import resolve


class ModelInfo(msgspec.Struct):
    """``context_length`` is in tokens, 0 when unknown; ``preferred_sampling_params`` are the model's own defaults."""

    model_path: str
    tokenizer_path: str
    served_model_name: str
    is_generation: bool
    model_type: str
    architectures: list[str]
    context_length: int
    vocab_size: int
    eos_token_ids: list[int]
    preferred_sampling_params: dict[str, float] | None
    weight_version: str


async def model_info(request: Request, services: Services) -> ModelInfo:
    """The model named by ``?model=``; may be left out where there is only one. Raises GatewayError, as routing does."""
    record = resolve(services.view.snapshot(), request.args.get("model", ""))
    labels = engine_labels(services, record)
    return ModelInfo(
        model_path=labels.get("model_path", record.id),
        tokenizer_path=labels.get("tokenizer_path", ""),
        served_model_name=record.id,
        is_generation=labels.get("is_generation", "true") == "true",
        model_type=labels.get("model_type", ""),
        architectures=_strings(labels.get("architectures")),
        context_length=record.context_length,
        vocab_size=int(labels.get("vocab_size", "0")),
        eos_token_ids=list(record.eos_ids),
        preferred_sampling_params=record.default_sampling or None,
        weight_version=labels.get("weight_version", "default"),
    )


def engine_labels(services: Services, model: ModelRecord) -> dict[str, str]:
    """What an engine that serves ``model`` told of it, a ready one if there is one."""
    workers = services.view.snapshot().workers
    serving: list[WorkerRecord] = [worker for worker in workers if model.id in worker.models]
    ready = (worker for worker in serving if services.view.status(worker) == "ready")
    worker = next(ready, serving[0] if serving else None)
    return worker.labels if worker is not None else {}


def _strings(label: str | None) -> list[str]:
    """A label that holds a JSON list."""
    if not label:
        return []
    try:
        value: Any = msgspec.json.decode(label, type=list[str])
    except msgspec.MsgspecError:
        return [label]
    return list(value)
