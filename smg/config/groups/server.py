"""Listening, protection, limits, logs and the embedded engine."""

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from smg.config.option import Group, option


def _state_dir() -> str:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(base) / "smg")


class ServerSettings(Group, frozen=True):
    """Listening, limits and shutdown."""

    host: Annotated[str, option("--host", "Address to listen on.")] = "0.0.0.0"
    port: Annotated[int, option("--port", "Port to listen on; 0 picks a free one.", ge=0, le=65535)] = 30000
    workers: Annotated[int, option("--workers", "Number of request worker processes.", ge=1, le=64)] = 1
    max_payload_size: Annotated[
        int, option("--max-payload-size", "Largest request body in bytes; a larger one is answered with 413.", ge=1)
    ] = 512 << 20
    request_timeout_secs: Annotated[
        float, option("--request-timeout-secs", "Longest time one request may take, in seconds, stream included.", gt=0)
    ] = 1800.0
    max_connections: Annotated[
        int,
        option(
            "--max-connections",
            "Client connections that each worker process may have open; one more is answered with 503 and closed, "
            "unless it asks for health, metrics or what admins may. 0: as many as the system allows.",
            ge=0,
        ),
    ] = 10_000
    header_timeout_secs: Annotated[
        float,
        option(
            "--header-timeout-secs",
            "Longest time the head of a request may take to arrive, in seconds; after it 408 is answered.",
            gt=0,
        ),
    ] = 60.0
    keep_alive_timeout_secs: Annotated[
        float,
        option(
            "--keep-alive-timeout-secs",
            "Seconds until a connection without a request is closed. Longer than the idle limit of a load balancer in "
            "front, so that this one closes first.",
            gt=0,
        ),
    ] = 120.0
    shutdown_settle_secs: Annotated[
        float,
        option(
            "--shutdown-settle-secs",
            "After SIGTERM, seconds to go on accepting while readiness answers 503.",
            ge=0,
        ),
    ] = 5.0
    shutdown_grace_period_secs: Annotated[
        float, option("--shutdown-grace-period-secs", "After SIGTERM, seconds running requests may finish in.", ge=0)
    ] = 180.0
    sse_keepalive_secs: Annotated[
        float,
        option(
            "--sse-keepalive-secs",
            "Seconds of silence after which a stream is kept open by a comment, also while it waits for its first "
            "token; 0: never.",
            ge=0,
        ),
    ] = 15.0
    request_id_headers: Annotated[
        tuple[str, ...],
        option("--request-id-headers", "Headers a client's own request id is taken from, first present wins."),
    ] = ("x-request-id", "x-correlation-id", "x-trace-id", "request-id")
    cors_allowed_origins: Annotated[
        tuple[str, ...],
        option(
            "--cors-allowed-origins",
            "Origins (https://host:port) whose pages may use the inference routes; none given: all of them. Admin "
            "routes are open to no page.",
        ),
    ] = ()
    tls_cert_path: Annotated[
        str | None, option("--tls-cert-path", "PEM certificate chain; with --tls-key-path turns TLS on.")
    ] = None
    tls_key_path: Annotated[str | None, option("--tls-key-path", "PEM private key of the certificate.")] = None
    state_dir: Annotated[str, option("--state-dir", "Directory for caches and sockets; made when missing.")] = (
        msgspec.field(default_factory=_state_dir)
    )


class AdmissionSettings(Group, frozen=True):
    """How many requests are let in, and how many may wait for it."""

    max_concurrent_requests: Annotated[
        int,
        option(
            "--max-concurrent-requests",
            "Generations in flight over all worker processes; more have to wait in the queue. -1 or 0: no limit.",
            ge=-1,
        ),
    ] = -1
    queue_size: Annotated[
        int,
        option(
            "--queue-size",
            "Generations that wait over all worker processes, first come first served; more are answered with 429. "
            "0: nobody waits.",
            ge=0,
        ),
    ] = 100
    queue_timeout_secs: Annotated[
        float, option("--queue-timeout-secs", "Longest wait in the queue; after it 503 is answered.", gt=0)
    ] = 60.0
    rate_limit_tokens_per_second: Annotated[
        int,
        option(
            "--rate-limit-tokens-per-second",
            "Generations that may start per second over all worker processes, after a burst of as many; more have to "
            "wait in the queue. Tokens are those of a token bucket, one for a generation. 0: no limit.",
            ge=0,
            le=1_000_000,
        ),
    ] = 0
    tenant_requests_per_minute: Annotated[
        int,
        option(
            "--tenant-requests-per-minute",
            "Generations that each tenant may start per minute over all worker processes; more are answered with 429. "
            "0: no limit.",
            ge=0,
            le=100_000_000,
        ),
    ] = 0
    tenant_tokens_per_minute: Annotated[
        int,
        option(
            "--tenant-tokens-per-minute",
            "Tokens of prompts and answers that each tenant may use per minute over all worker processes; while it has "
            "used more, its requests are answered with 429. 0: no limit.",
            ge=0,
            le=1_000_000_000,
        ),
    ] = 0
    tenant_limit: Annotated[
        tuple[str, ...],
        option(
            "--tenant-limit",
            "TENANT=REQUESTS/TOKENS: limits per minute of one tenant instead of those of all; may be given several "
            "times. 0: no limit.",
        ),
    ] = ()
    tenant_model_limit: Annotated[
        tuple[str, ...],
        option(
            "--tenant-model-limit",
            "TENANT@MODEL=REQUESTS/TOKENS: limits per minute of one tenant, or of each with *, for one model, or for "
            "all that begin like it with a * at the end, besides the tenant's others; may be given several times. "
            "The model's own rule comes before the longest beginning, a tenant's before those of each. 0: no limit.",
        ),
    ] = ()


class SecuritySettings(Group, frozen=True):
    """Keys. A client sends one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'."""

    api_key: Annotated[
        tuple[str, ...], option("--api-key", "Key for the inference routes; may be given several times.", secret=True)
    ] = ()
    admin_key: Annotated[
        tuple[str, ...],
        option(
            "--admin-key",
            "Key for the admin routes, which without one answer to loopback only; may be given several times.",
            secret=True,
        ),
    ] = ()
    tenant_api_key: Annotated[
        tuple[str, ...],
        option(
            "--tenant-api-key",
            "TENANT:KEY: a key for the inference routes, and whose it is; may be given several times.",
            secret=True,
        ),
    ] = ()
    signing_key: Annotated[
        str | None,
        option(
            "--signing-key",
            "Secret for signatures under what models have thought (Messages), which clients send back. Gateways with "
            "the same clients need the same one; without it each gateway keeps a key of its own below --state-dir.",
            secret=True,
        ),
    ] = None
    trust_tenant_header: Annotated[
        bool,
        option(
            "--trust-tenant-header",
            "Believe who has no key which tenant it is. Only behind a proxy that sets the header or removes it.",
        ),
    ] = False
    tenant_header_name: Annotated[str, option("--tenant-header-name", "The header of --trust-tenant-header.")] = (
        "x-smg-tenant-id"
    )


class TelemetrySettings(Group, frozen=True):
    """Logs and other things operators look at."""

    log_level: Annotated[
        Literal["debug", "info", "warn", "error"], option("--log-level", "Least severe level that is logged.")
    ] = "info"
    log_json: Annotated[bool, option("--log-json", "Log one JSON object per line.")] = False
    debug_requests: Annotated[
        int,
        option(
            "--debug-requests",
            "Generations that each process keeps for GET /debug/requests, prompts and answers included; 0: none.",
            ge=0,
            le=10_000,
        ),
    ] = 0
    debug_header: Annotated[
        bool,
        option(
            "--debug-header",
            "Let every client see what was made of its own request (header x-smg-debug); else only admins may.",
        ),
    ] = False
    worker_header: Annotated[
        bool, option("--worker-header", "Name the engine that served a request in the header x-smg-worker.")
    ] = False
    routing_decision_header: Annotated[
        bool,
        option(
            "--routing-decision-header",
            "Say in the header x-smg-routing-decision which policy chose which engine, why, and how much of the prompt "
            "it is expected to hold.",
        ),
    ] = False


class EmbeddedSettings(Group, frozen=True):
    """The engine the gateway can run itself (llama.cpp on the CPU)."""

    embedded_engine: Annotated[
        bool, option("--embedded-engine", "Run the embedded engine as a supervised child and route to it.")
    ] = False
    embedded_model: Annotated[
        str | None, option("--embedded-model", "GGUF file of the embedded engine; default: the bundled SmolLM2.")
    ] = None
    embedded_port: Annotated[
        int, option("--embedded-port", "Port of the embedded engine on 127.0.0.1; 0 picks a free one.", ge=0, le=65535)
    ] = 0
    embedded_args: Annotated[
        tuple[str, ...], option("--embedded-args", "Further flags for 'smg-engine llama', as one quoted string.")
    ] = ()
