"""Worker labels: what an engine tells of itself, flattened to strings (spec engine-contract 2.8).

Only the contracts' typed messages go through here; free-form structs hold secrets and need an allow list of their own.
"""

import json
from typing import Any

# Snapshots of a moment, of no use as a label.
_DROPPED = frozenset({"active_requests", "is_paused", "last_receive_timestamp", "uptime_seconds", "server_type"})
_RENAMED = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "context_parallel_size": "cp_size",
    "data_parallel_size": "dp_size",
}
_SAMPLING_KEYS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def flatten(message: Any) -> dict[str, str]:
    """Flatten one protobuf message: empty strings and lists and zero numbers are left out, booleans become ``true`` or
    ``false``, lists JSON, and integral floats lose their ``.0``."""
    labels: dict[str, str] = {}
    for field in message.DESCRIPTOR.fields:
        if field.name in _DROPPED:
            continue
        text = _text(getattr(message, field.name))
        if text:
            name = "version" if field.name.endswith("_version") else _RENAMED.get(field.name, field.name)
            labels[name] = text
    return labels


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
