"""The settings tree. A field's ``Meta`` holds its help text, limits and flag; everything else is generated.

Flags carry the reference gateway's names where they mean the same. A field ``server.host`` with flag ``--host`` is
also read from the environment as ``SMG_HOST`` and from YAML as ``server: {host: …}``.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, cast

import msgspec
from msgspec import Meta


def option(
    flag: str,
    text: str,
    *aliases: str,
    secret: bool = False,
    gt: float | None = None,
    ge: float | None = None,
    le: float | None = None,
) -> Meta:
    """Describe one setting: its flag (with aliases), help text, whether it is a secret, and numeric limits."""
    limits = {name: limit for name, limit in (("gt", gt), ("ge", ge), ("le", le)) if limit is not None}
    extra = {"flag": flag, "aliases": aliases, "secret": secret}
    return cast("Meta", Meta(description=text, extra=extra, **limits))  # type: ignore[call-overload]


def _state_dir() -> str:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return str(Path(base) / "smg")


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


# The engine contracts, by the names of their drivers.
Contract: TypeAlias = Literal["vllm", "sglang", "trtllm", "tokenspeed", "mlx"]


class ServerSettings(_Group, frozen=True):
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
    tls_cert_path: Annotated[
        str | None, option("--tls-cert-path", "PEM certificate chain; with --tls-key-path turns TLS on.")
    ] = None
    tls_key_path: Annotated[str | None, option("--tls-key-path", "PEM private key of the certificate.")] = None
    state_dir: Annotated[str, option("--state-dir", "Directory for caches and sockets; made when missing.")] = (
        msgspec.field(default_factory=_state_dir)
    )


class FleetSettings(_Group, frozen=True):
    """The engines behind the gateway."""

    worker_urls: Annotated[
        tuple[str, ...], option("--worker-urls", "Engines, as grpc://host:port, separated by spaces or commas.")
    ] = ()
    backend: Annotated[
        Contract | None,
        option("--backend", "Engine contract of all --worker-urls; probed when not given.", "--runtime"),
    ] = None
    engine_transport: Annotated[
        Literal["grpcio", "native"],
        option("--engine-transport", "What carries token streams: grpcio, or the gateway's own HTTP/2 client."),
    ] = "grpcio"
    grpc_max_message_size: Annotated[
        int,
        option(
            "--grpc-max-message-size",
            "Largest message sent to an engine, in bytes; a request that needs a larger one is answered with 413.",
            ge=1 << 20,
        ),
    ] = 256 << 20
    max_workers: Annotated[int, option("--max-workers", "Slots for engines in the shared region.", ge=1, le=65536)] = (
        4096
    )
    worker_startup_timeout_secs: Annotated[
        float, option("--worker-startup-timeout-secs", "How long registration waits for an engine.", gt=0)
    ] = 1800.0
    worker_startup_check_interval: Annotated[
        float,
        option("--worker-startup-check-interval", "Seconds between probes of an engine that is not up yet.", gt=0),
    ] = 1.0
    health_check_interval_secs: Annotated[
        float, option("--health-check-interval-secs", "Seconds between health probes of a ready engine.", gt=0)
    ] = 10.0
    health_check_timeout_secs: Annotated[
        float, option("--health-check-timeout-secs", "Time limit of one probe, in seconds.", gt=0)
    ] = 5.0
    health_failure_threshold: Annotated[
        int, option("--health-failure-threshold", "Failed probes in a row that take an engine out.", ge=1)
    ] = 3
    health_success_threshold: Annotated[
        int, option("--health-success-threshold", "Good probes in a row that bring an engine back.", ge=1)
    ] = 1


class ModelSettings(_Group, frozen=True):
    """Tokenizer, chat template and parsers; by default all come from the engine or its model.

    In the file, ``models`` has the same settings for single models, which win over these."""

    model_path: Annotated[
        str | None,
        option(
            "--model-path",
            "Where the model's tokenizer is, instead of the engine's bundle: a directory or file (docs/tokenizers.md); "
            "a hub name (org/name) is only used when the engine has no tokenizer.",
            "--model",
        ),
    ] = None
    tokenizer_path: Annotated[
        str | None,
        option(
            "--tokenizer-path",
            "Tokenizer directory or file, as for --model-path, which it wins over, or a hub name (org/name, "
            "org/name@revision), which is downloaded.",
        ),
    ] = None
    disable_tokenizer_autoload: Annotated[
        bool | None,
        option(
            "--disable-tokenizer-autoload",
            "Fetch no tokenizer when an engine joins; models only have those added through /v1/tokenizers.",
        ),
    ] = None
    chat_template: Annotated[
        str | None, option("--chat-template", "Jinja chat template file; wins over the model's own.")
    ] = None
    reasoning_parser: Annotated[
        str | None, option("--reasoning-parser", "Reasoning parser of all models; default: by model.")
    ] = None
    tool_call_parser: Annotated[
        str | None, option("--tool-call-parser", "Tool-call parser of all models; default: by model.")
    ] = None
    unknown_tool_policy: Annotated[
        Literal["forward", "drop", "text"] | None,
        option(
            "--unknown-tool-policy",
            "What a call of a tool that was not offered becomes: a call, nothing, or text; default: a call if the "
            "model marked it as one, else text.",
        ),
    ] = None


class TokenizerCacheSettings(_Group, frozen=True):
    """What is remembered of encoded prompts. All bounds hold per tokenizer and worker process."""

    enable_l0: Annotated[
        bool, option("--tokenizer-cache-enable-l0", "Remember the token ids of whole prompts (level 0).")
    ] = True
    l0_max_entries: Annotated[
        int, option("--tokenizer-cache-l0-max-entries", "Prompts remembered at most in level 0.", ge=1)
    ] = 10_000
    l0_max_memory: Annotated[int, option("--tokenizer-cache-l0-max-memory", "Bytes of level 0 at most.", ge=1)] = (
        50 << 20
    )
    enable_l1: Annotated[
        bool,
        option(
            "--tokenizer-cache-enable-l1",
            "Remember the token ids of how prompts begin (level 1), so that a longer conversation encodes only its "
            "last turn; used only for tokenizers that prove at load time that it changes nothing.",
        ),
    ] = True
    l1_max_memory: Annotated[int, option("--tokenizer-cache-l1-max-memory", "Bytes of level 1 at most.", ge=1)] = (
        50 << 20
    )


class RoutingSettings(_Group, frozen=True):
    """How a worker is chosen, and what happens when one fails before its first token."""

    policy: Annotated[
        Literal[
            "cache_aware",
            "consistent_hashing",
            "least_load",
            "manual",
            "passthrough",
            "power_of_two",
            "prefix_hash",
            "random",
            "round_robin",
        ],
        option("--policy", "Routing policy."),
    ] = "cache_aware"
    cache_threshold: Annotated[
        float,
        option(
            "--cache-threshold",
            "cache_aware: part of a prompt a worker must hold for that to count.",
            "--cache-match-threshold",
            ge=0,
            le=1,
        ),
    ] = 0.3
    cache_request_price: Annotated[
        float,
        option(
            "--cache-request-price",
            "cache_aware: what a request in flight weighs against held tokens, in tokens.",
            ge=0,
        ),
    ] = 64.0
    balance_abs_threshold: Annotated[
        int,
        option(
            "--balance-abs-threshold",
            "cache_aware: the shortest queue wins when counts of requests are further apart than this.",
            "--spill-abs-threshold",
            ge=0,
        ),
    ] = 64
    balance_rel_threshold: Annotated[
        float,
        option(
            "--balance-rel-threshold",
            "cache_aware: the shortest queue wins only if the highest count is also so many times the lowest.",
            "--spill-rel-threshold",
            ge=1,
        ),
    ] = 1.5
    max_tree_size: Annotated[
        int,
        option("--max-tree-size", "Largest size of the shared prefix index, in bytes.", ge=1 << 16, le=1 << 34),
    ] = 64 << 20
    block_size: Annotated[
        int, option("--block-size", "Tokens of a block of the prefix index; best the engines' own.", ge=1, le=4096)
    ] = 16
    assignment_mode: Annotated[
        Literal["random", "min_load"],
        option("--assignment-mode", "manual: which worker a new routing key is given."),
    ] = "random"
    prefix_token_count: Annotated[
        int, option("--prefix-token-count", "prefix_hash: tokens at the beginning that decide.", ge=1)
    ] = 256
    prefix_hash_load_factor: Annotated[
        float,
        option("--prefix-hash-load-factor", "prefix_hash: times its share of requests an owner may have.", ge=1),
    ] = 1.25
    least_load_kv_pressure_weight: Annotated[
        float, option("--least-load-kv-pressure-weight", "least_load: weight of KV usage, in seconds.", ge=0)
    ] = 0.15
    least_load_default_throughput: Annotated[
        float, option("--least-load-default-throughput", "least_load: tokens per second of an engine.", gt=0)
    ] = 2000.0
    retry_max_retries: Annotated[
        int, option("--retry-max-retries", "Attempts of one request, the first included.", ge=1, le=100)
    ] = 5
    retry_initial_backoff_ms: Annotated[
        int, option("--retry-initial-backoff-ms", "Wait before the second attempt on the same worker.", ge=1)
    ] = 50
    retry_max_backoff_ms: Annotated[int, option("--retry-max-backoff-ms", "Longest wait between attempts.", ge=1)] = (
        30000
    )
    disable_retries: Annotated[bool, option("--disable-retries", "Try each request once.")] = False


class AdmissionSettings(_Group, frozen=True):
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


class SecuritySettings(_Group, frozen=True):
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


class TelemetrySettings(_Group, frozen=True):
    """Logs and other things operators look at."""

    log_level: Annotated[
        Literal["debug", "info", "warn", "error"], option("--log-level", "Least severe level that is logged.")
    ] = "info"
    log_json: Annotated[bool, option("--log-json", "Log one JSON object per line.")] = False
    worker_header: Annotated[
        bool, option("--worker-header", "Name the engine that served a request in the header x-smg-worker.")
    ] = False


class EmbeddedSettings(_Group, frozen=True):
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


class Settings(_Group, frozen=True):
    """Everything that can be configured."""

    server: ServerSettings = ServerSettings()
    fleet: FleetSettings = FleetSettings()
    model: ModelSettings = ModelSettings()
    tokenizer_cache: TokenizerCacheSettings = TokenizerCacheSettings()
    routing: RoutingSettings = RoutingSettings()
    admission: AdmissionSettings = AdmissionSettings()
    security: SecuritySettings = SecuritySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    models: Annotated[
        dict[str, ModelSettings],
        Meta(description="Settings of single models by their id or alias, with the names of the group 'model'."),
    ] = msgspec.field(default_factory=dict)

    def of_model(self, *names: str) -> ModelSettings:
        """The settings of the model that has these names: its own where it has any, else those of all models."""
        return of_model(self.model, self.models, *names)


def of_model(settings: ModelSettings, models: Mapping[str, ModelSettings], *names: str) -> ModelSettings:
    """As ``Settings.of_model``, of the settings of all models and of single ones."""
    own = next((models[name] for name in names if name in models), None)
    if own is None:
        return settings
    given = {name: value for name, value in msgspec.structs.asdict(own).items() if value is not None}
    return msgspec.structs.replace(settings, **given)
