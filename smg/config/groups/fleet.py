"""Engines: where they are, and which take what part of a generation."""

from typing import Annotated, Literal, TypeAlias

from smg.config.option import Group, option

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
# Prompts of like length share engines that compute prompts.
PrefillPolicy: TypeAlias = Literal["bucket", LegPolicy]


class FleetSettings(Group, frozen=True):
    """The engines behind the gateway."""

    worker_urls: Annotated[
        tuple[str, ...],
        option(
            "--worker-urls",
            "Engines, as grpc://host:port or http://host:port, separated by spaces or commas; without a scheme both "
            "are tried. http://host:port@N is data-parallel rank N of an engine; ipc:///path and zmq://host:port are "
            "engine cores of vLLM and schedulers of TokenSpeed.",
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
        Literal["auto", "native", "grpcio", "python"],
        option(
            "--engine-transport",
            "What carries token streams: the gateway's own HTTP/2 client (native), grpcio (requests of 64 KiB or more "
            "to an engine without TLS go by that client, too), or for each engine the one that fits (auto): native "
            "without TLS, grpcio with TLS or where the environment names an HTTP proxy. With python it is grpcio with "
            "every message and every token read by Python: slow, and there to be compared with.",
        ),
    ] = "auto"
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
            "labels, priority, cost, health, resilience, …}; read again when it changes.",
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


class DisaggregationSettings(Group, frozen=True):
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
            "Prefill engine, as grpc://host:port, or http://host:port of SGLang, and, if decode engines do not find it "
            "at 8998, its bootstrap port (a number, or none); may be given several times.",
        ),
    ] = ()
    decode: Annotated[
        tuple[str, ...],
        option("--decode", "Decode engine, as grpc://host:port or http://host:port; may be given several times."),
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
        PrefillPolicy | None, option("--prefill-policy", "Routing policy among prefill engines; default: --policy.")
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
    encode_timeout_secs: Annotated[
        float,
        option(
            "--encode-timeout-secs",
            "Longest time an encode engine may take for one image, its queue included; then another one is tried.",
            gt=0,
        ),
    ] = 120.0
