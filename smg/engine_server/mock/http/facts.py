"""What a mock HTTP engine tells of itself, in the documents of the servers it plays."""

from typing import Any

from smg.engine_server.mock.http.answers import ANSWERS, FORMS, MESSAGES, RESPONSES
from smg.engine_server.mock.http.script import HttpScript, Server
from smg.engine_server.mock.transfer import Role


def documents(script: HttpScript, server: Server, role: Role = "regular", bootstrap_port: int = 0) -> dict[str, Any]:
    """Path to document: JSON values, and text as ``str``. ``role`` and ``bootstrap_port`` are of an SGLang pair."""
    owner = {"vllm": "vllm", "sglang": "sglang", "openai": "somebody"}[server]
    models = [
        {"id": name, "object": "model", "created": 1, "owned_by": owner, "max_model_len": script.context_length}
        for name in script.models
    ]
    out: dict[str, Any] = {
        "/v1/models": {"object": "list", "data": models},
        "/openapi.json": {"openapi": "3.1.0", "paths": {path: {} for path in served(script, server)}},
    }
    if server == "vllm":
        out["/version"] = {"version": "0.10.0"}
        out["/metrics"] = _metrics(script)
    if server == "sglang":
        out["/get_server_info"] = {
            "model_path": script.models[0],
            "dp_size": script.dp_size,
            "tp_size": 1,
            "disaggregation_mode": "null" if role == "regular" else role,
            "disaggregation_bootstrap_port": bootstrap_port,
            "max_total_num_tokens": 1000,
            "api_key": "secret",
            "version": "0.5.0",
        }
        out["/get_model_info"] = {"model_path": script.models[0], "is_generation": True}
        out["/v1/loads"] = {"loads": [_load(script, rank) for rank in range(script.dp_size)]}
    return {path: document for path, document in out.items() if path not in script.hidden}


def served(script: HttpScript, server: Server) -> list[str]:
    """Paths of the generating routes that are there."""
    own = {"/generate"} if server == "sglang" else set()
    tokens = {"/tokenize", "/detokenize"} if server == "vllm" else set()
    shared = {"/v1/chat/completions", "/v1/completions"}
    more = FORMS if script.audio else frozenset()
    more |= frozenset({RESPONSES}) if script.responses else frozenset()
    more |= MESSAGES if script.messages else frozenset()
    return [path for path in ANSWERS if path in own | tokens | shared | more and path not in script.hidden]


def _load(script: HttpScript, rank: int) -> dict[str, Any]:
    return {
        "dp_rank": rank,
        "num_running_reqs": script.running + rank,
        "num_waiting_reqs": script.waiting,
        "num_used_tokens": 10,
        "max_total_num_tokens": 1000,
        "token_usage": script.usage,
    }


def _metrics(script: HttpScript) -> str:
    label = f'{{model_name="{script.models[0]}"}}'
    return (
        "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        f"vllm:num_requests_running{label} {float(script.running)}\n"
        f"vllm:num_requests_waiting{label} {float(script.waiting)}\n"
        f"vllm:kv_cache_usage_perc{label} {script.usage}\n"
    )
