"""Which engine gets a request, and what happens when it fails."""

from typing import Annotated, Literal

from smg.config.option import Group, option


class RoutingSettings(Group, frozen=True):
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
            "cache_aware: part of a prompt a worker must hold for that to count; 512 tokens always do.",
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
            "(of a pair: for each leg) does not count, and 10 are always allowed.",
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
