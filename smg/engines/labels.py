"""Worker labels: what an engine tells of itself, flattened to strings (spec engine-contract 2.8).

Typed messages are flattened whole. Free-form structs hold secrets (an ``api_key``), so of them only what is on a list
is ever read.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

# Snapshots of a moment, of no use as a label.
_DROPPED = frozenset({"active_requests", "is_paused", "last_receive_timestamp", "uptime_seconds", "server_type"})
_RENAMED = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "context_parallel_size": "cp_size",
    "data_parallel_size": "dp_size",
}
# A version of the weights is not a version of the engine.
_KEPT = frozenset({"weight_version"})
# Server arguments that are no secret and of use; all engines that have them use these names.
ARGUMENTS = (
    "served_model_name",
    "tp_size",
    "dp_size",
    "pp_size",
    "context_length",
    "max_total_num_tokens",
    "max_running_requests",
    "load_balance_method",
    "disaggregation_mode",
    "disaggregation_bootstrap_port",
    "is_embedding",
    "vocab_size",
    "weight_version",
    "mm_item_limits",
)
_SAMPLING_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def flatten(message: Any) -> dict[str, str]:
    """Flatten one protobuf message: empty strings and lists and zero numbers are left out, booleans become ``true`` or
    ``false``, lists JSON, and integral floats lose their ``.0``. Fields that are messages themselves are left out."""
    labels: dict[str, str] = {}
    for field in message.DESCRIPTOR.fields:
        if field.name in _DROPPED or field.message_type is not None:
            continue
        text = _text(getattr(message, field.name))
        if text:
            labels[_name(field.name)] = text
    return labels


def server_arguments(struct: Any, *more: str) -> dict[str, str]:
    """Labels of a ``server_args`` struct: the list above and ``more``, and nothing else."""
    return struct_labels(struct, (*ARGUMENTS, *more))


def struct_labels(struct: Any, allowed: Iterable[str]) -> dict[str, str]:
    """Flatten the ``allowed`` fields of a Struct that hold a string, a boolean or a number."""
    labels = {}
    for name, value in scalars(struct, allowed).items():
        if text := _text(value):
            labels[_name(name)] = text
    return labels


def scalars(struct: Any, names: Iterable[str]) -> Mapping[str, str | bool | float]:
    """Read these fields of a Struct, where they are there and scalar."""
    out: dict[str, str | bool | float] = {}
    for name in names:
        kind = struct.fields[name].WhichOneof("kind") if name in struct.fields else None
        if kind in ("string_value", "bool_value", "number_value"):
            out[name] = getattr(struct.fields[name], kind)
    return out


def count(struct: Any, name: str) -> int:
    """A positive whole number of a Struct, 0 where it has none."""
    value = scalars(struct, (name,)).get(name)
    return int(value) if isinstance(value, float) and 1 <= value < 2**53 else 0


def _name(field: str) -> str:
    if field.endswith("_version") and field not in _KEPT:
        return "version"
    return _RENAMED.get(field, field)


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value) if value else ""
        case float():
            return (str(int(value)) if value.is_integer() else str(value)) if value else ""
        case _:
            items = list(value)
            return json.dumps(items) if items else ""


def default_sampling(text: str) -> dict[str, float]:
    """Read ``default_sampling_params_json``; keys that are not honoured, and what is no number, are left out."""
    try:
        values = json.loads(text) if text else {}
    except ValueError:
        return {}
    if not isinstance(values, dict):
        return {}
    return {
        key: float(values[key])
        for key in _SAMPLING_KEYS
        if isinstance(values.get(key), int | float) and not isinstance(values[key], bool)
    }
