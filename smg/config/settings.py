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

# The policies of one leg of a disaggregated fleet.
LegPolicy: TypeAlias = Literal[
    "cache_aware",
    "consistent_hashing",
    "least_load",
    "manual",
    "power_of_two",
    "prefix_hash",
    "random",
    "round_robin",
]


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
        tuple[str, ...],
        option(
            "--worker-urls",
            "Engines, as grpc://host:port or http://host:port, separated by spaces or commas; without a scheme both "
            "are tried. http://host:port@N is data-parallel rank N of an engine; ipc:///path and zmq://host:port are "
            "engine cores of vLLM.",
        ),
    ] = ()
    worker_api_key: Annotated[
        tuple[str, ...],
        option(
            "--worker-api-key",
            "Key that HTTP engines want: KEY for all of them, or URL=KEY for one; may be given several times.",
            secret=True,
        ),
    ] = ()
    dp_aware: Annotated[
        bool,
        option(
            "--dp-aware",
            "Route to the data-parallel ranks of engines one by one, instead of leaving the rank to the engine.",
        ),
    ] = False
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
            "Largest message to or from an engine, in bytes; a request that needs a larger one is answered with 413.",
            ge=1 << 20,
            le=(1 << 31) - 1,
        ),
    ] = 256 << 20
    max_workers: Annotated[int, option("--max-workers", "Slots for engines in the shared region.", ge=1, le=65536)] = (
        4096
    )
    discovery_file: Annotated[
        str | None,
        option(
            "--discovery-file",
            "YAML or JSON file with a list 'workers' of further engines, each an address or {url, runtime, models, "
            "labels, priority, cost}; read again when it changes.",
        ),
    ] = None
    discovery_check_interval_secs: Annotated[
        float, option("--discovery-check-interval-secs", "Seconds between looks at --discovery-file.", gt=0)
    ] = 2.0
    remove_unhealthy_workers: Annotated[
        bool,
        option(
            "--remove-unhealthy-workers",
            "Remove engines that are given up (failed); otherwise they are probed on and serve again when they are "
            "back.",
        ),
    ] = False
    worker_drain_timeout_secs: Annotated[
        float,
        option(
            "--worker-drain-timeout-secs",
            "How long an engine that is being removed is waited for to finish what runs on it.",
            ge=0,
        ),
    ] = 600.0
    load_monitor_interval: Annotated[
        float, option("--load-monitor-interval", "Seconds between polls of an engine's load.", gt=0)
    ] = 2.0
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
            "bucket",
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
    ] = 192.0
    balance_abs_threshold: Annotated[
        int,
        option(
            "--balance-abs-threshold",
            "cache_aware, bucket: a worker with so many requests more than the least loaded one is passed over.",
            "--spill-abs-threshold",
            ge=0,
        ),
    ] = 64
    balance_rel_threshold: Annotated[
        float,
        option(
            "--balance-rel-threshold",
            "cache_aware, bucket: it is passed over only if it also has so many times the least loaded one's.",
            "--spill-rel-threshold",
            ge=1,
        ),
    ] = 1.5
    balance_token_usage_threshold: Annotated[
        float,
        option(
            "--balance-token-usage-threshold",
            "cache_aware: a worker whose KV usage is further above the lowest than this is passed over; 1: never.",
            ge=0,
            le=1,
        ),
    ] = 1.0
    overload_token_usage_threshold: Annotated[
        float,
        option(
            "--overload-token-usage-threshold",
            "cache_aware: a worker whose KV usage is above this is passed over; 1: never.",
            ge=0,
            le=1,
        ),
    ] = 1.0
    kv_events: Annotated[
        bool,
        option("--kv-events", "cache_aware: follow what engines tell of their KV caches, where they do."),
    ] = True
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
    max_idle_secs: Annotated[
        float, option("--max-idle-secs", "manual: a routing key not used for so long is assigned anew.", gt=0)
    ] = 14400.0
    routing_key_override: Annotated[
        bool,
        option("--routing-key-override", "Requests with a routing key stick to a worker under every other policy too."),
    ] = False
    bucket_adjust_interval_secs: Annotated[
        float, option("--bucket-adjust-interval-secs", "bucket: seconds between changes of the ranges.", gt=0)
    ] = 5.0
    dp_minimum_tokens_scheduler: Annotated[
        bool,
        option(
            "--dp-minimum-tokens-scheduler",
            "With --dp-aware: policies that choose a worker only get its rank with the fewest tokens.",
        ),
    ] = False
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
    retry_backoff_multiplier: Annotated[
        float, option("--retry-backoff-multiplier", "Factor between one wait and the next.", ge=1, le=100)
    ] = 1.5
    retry_jitter_factor: Annotated[
        float, option("--retry-jitter-factor", "Part of a wait that is random, in both directions.", ge=0, le=1)
    ] = 0.2
    retry_budget_ratio: Annotated[
        float,
        option(
            "--retry-budget-ratio",
            "Retries at most, as a part of the requests of the last 10 seconds; the first attempt on another engine "
            "does not count, and 10 are always allowed.",
            ge=0,
        ),
    ] = 0.2
    disable_retries: Annotated[bool, option("--disable-retries", "Try each request once.")] = False
    first_token_timeout_secs: Annotated[
        float,
        option(
            "--first-token-timeout-secs",
            "Longest wait for an engine's first token; then another engine is tried. 0: as long as it passes its "
            "probes.",
            ge=0,
        ),
    ] = 0.0
    idle_timeout_secs: Annotated[
        float,
        option(
            "--idle-timeout-secs",
            "Longest silence of an engine, the first token included. 0: as long as it passes its probes.",
            ge=0,
        ),
    ] = 0.0
    resume: Annotated[
        bool,
        option(
            "--resume",
            "Let another engine go on with a generation that an engine broke off, where that is possible; without it "
            "the stream ends in an error.",
        ),
    ] = True
    cb_failure_threshold: Annotated[
        int,
        option(
            "--cb-failure-threshold",
            "Failures that open an engine's circuit breaker: in a row, or in the window if nothing else was as often.",
            ge=1,
            le=1_000_000,
        ),
    ] = 10
    cb_success_threshold: Annotated[
        int,
        option(
            "--cb-success-threshold",
            "Successes that close it again; so many requests at a time may try while it is half open.",
            ge=1,
            le=100,
        ),
    ] = 3
    cb_timeout_duration_secs: Annotated[
        float,
        option("--cb-timeout-duration-secs", "Seconds an open circuit breaker lets nothing through.", gt=0, le=86400),
    ] = 60.0
    cb_window_duration_secs: Annotated[
        float,
        option("--cb-window-duration-secs", "Seconds after which a failure no longer counts.", gt=0, le=86400),
    ] = 120.0
    disable_circuit_breaker: Annotated[
        bool, option("--disable-circuit-breaker", "Send requests also to engines that keep failing.")
    ] = False


class DisaggregationSettings(_Group, frozen=True):
    """Engines that share the work of a generation: some compute prompts (prefill), others generate (decode), and
    encode engines, if there are any, make embeddings of images."""

    pd_disaggregation: Annotated[
        bool,
        option("--pd-disaggregation", "Refuse to start without engines of --prefill and --decode."),
    ] = False
    epd_disaggregation: Annotated[
        bool, option("--epd-disaggregation", "As --pd-disaggregation, and not without engines of --encode either.")
    ] = False
    prefill: Annotated[
        tuple[str, ...],
        option(
            "--prefill",
            "Prefill engine, as grpc://host:port and, if decode engines do not find it at 8998, its bootstrap port "
            "(a number, or none); may be given several times.",
        ),
    ] = ()
    decode: Annotated[
        tuple[str, ...], option("--decode", "Decode engine, as grpc://host:port; may be given several times.")
    ] = ()
    encode: Annotated[
        tuple[str, ...],
        option(
            "--encode",
            "Encode engine, as grpc://host:port and maybe a bootstrap port as for --prefill; may be given several "
            "times.",
        ),
    ] = ()
    prefill_policy: Annotated[
        LegPolicy | None, option("--prefill-policy", "Routing policy among prefill engines; default: --policy.")
    ] = None
    decode_policy: Annotated[
        LegPolicy | None,
        option(
            "--decode-policy",
            "Routing policy among decode engines; default: --policy, and least_load where that looks at prefixes.",
        ),
    ] = None
    encode_policy: Annotated[
        Literal["consistent_hashing", "random", "round_robin"],
        option("--encode-policy", "Routing policy among encode engines; the key is an image's content."),
    ] = "consistent_hashing"
    prefill_timeout_secs: Annotated[
        float,
        option(
            "--prefill-timeout-secs",
            "Longest time a prefill engine may take for one prompt, its queue included; then another one is tried.",
            gt=0,
        ),
    ] = 600.0


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


class MediaSettings(_Group, frozen=True):
    """Images that requests carry: where they may come from, how large they may be, and what works on them."""

    allowed_domains: Annotated[
        tuple[str, ...],
        option("--allowed-media-domains", "Hosts that images may be fetched from; default: any public one."),
    ] = ()
    allowed_networks: Annotated[
        tuple[str, ...],
        option(
            "--allowed-media-networks",
            "Networks (CIDR) that images may be fetched from although they are private, loopback or otherwise not "
            "public. Metadata services need an entry of their own.",
        ),
    ] = ()
    allowed_local_path: Annotated[
        str | None,
        option("--allowed-local-media-path", "Directory that file:// URLs may read from; default: none."),
    ] = None
    fetch_timeout_secs: Annotated[
        float,
        option("--media-fetch-timeout-secs", "Time to fetch one image, redirects included; 0: no limit.", ge=0),
    ] = 10.0
    fetch_concurrency: Annotated[
        int, option("--media-fetch-concurrency", "Images of one request that are fetched at a time.", ge=1, le=64)
    ] = 8
    max_items: Annotated[
        int, option("--media-max-items", "Images of one request; a model may take fewer.", ge=1, le=1024)
    ] = 64
    image_max_bytes: Annotated[
        int, option("--image-max-input-bytes", "Bytes of one image as it is sent or fetched.", ge=1)
    ] = 256 << 20
    max_pixels: Annotated[int, option("--image-max-pixels", "Pixels of one image.", ge=1, le=357_913_941)] = 178_956_970
    ignore_orientation: Annotated[
        bool, option("--image-ignore-orientation", "Take images as they are stored, not as their EXIF data turns them.")
    ] = False
    resample: Annotated[
        Literal["torchvision", "pillow"],
        option(
            "--mm-resample",
            "Whose pixels to match bit for bit: the fast (torchvision) or the slow (pillow) Hugging Face processors.",
        ),
    ] = "torchvision"
    threads: Annotated[
        int, option("--vision-threads", "Threads per worker process that decode and preprocess images.", ge=1, le=64)
    ] = 1
    cache_mb: Annotated[
        int,
        option(
            "--mm-pixel-cache-mb",
            "Preprocessed images that each worker process remembers, in MiB; 0: none.",
            ge=0,
            le=1 << 20,
        ),
    ] = 256


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
    debug_requests: Annotated[
        int,
        option(
            "--debug-requests",
            "Generations that each process keeps for GET /debug/requests, prompts and answers included; 0: none.",
            ge=0,
            le=10_000,
        ),
    ] = 0
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
    disaggregation: DisaggregationSettings = DisaggregationSettings()
    admission: AdmissionSettings = AdmissionSettings()
    media: MediaSettings = MediaSettings()
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
