"""All metric families of the gateway (spec api-and-ops 6.1). Adding one is one line here."""

from smg.telemetry.cells import Cells
from smg.telemetry.families import LAG_BUCKETS, RATIO_BUCKETS, Counter, Family, Gauge, Histogram


class Metrics:
    """The families, bound to the cells of one process (its row in the region).

    ``path`` is a route's template, ``model`` a canonical model id, ``worker`` a worker's id, ``tokenizer`` the
    beginning of a tokenizer's digest: never what a client sent.
    """

    def __init__(self, cells: Cells, process: int) -> None:
        self.cells = cells

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(cells, process, name, text, labels)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(cells, process, name, text, labels)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(cells, process, name, text, labels)

        self.http_requests_total = counter("http_requests_total", "Requests received.", "method", "path")
        self.http_request_duration_seconds = histogram(
            "http_request_duration_seconds", "Time until the last byte of the answer.", "method", "path"
        )
        self.http_responses_total = counter(
            "http_responses_total",
            "Finished requests; status 499 when the client left first.",
            *("path", "status_code", "error_code"),
        )
        self.http_connections_active = gauge("http_connections_active", "Open client connections.")
        self.http_connections_refused_total = counter(
            "http_connections_refused_total", "Connections for which there was no room."
        )
        self.http_requests_active = gauge(
            "http_requests_active", "HTTP requests of any kind, received and not yet answered in full."
        )
        self.router_requests_total = counter(
            "router_requests_total", "Generations asked for.", "model", "endpoint", "streaming"
        )
        self.router_request_errors_total = counter(
            "router_request_errors_total", "Generations that failed.", "model", "endpoint", "error_type"
        )
        self.router_ttft_seconds = histogram("router_ttft_seconds", "Time to first token.", "model", "endpoint")
        self.router_tpot_seconds = histogram(
            "router_tpot_seconds", "Mean time per output token after the first.", "model", "endpoint"
        )
        self.router_generation_duration_seconds = histogram(
            "router_generation_duration_seconds", "Time of a whole generation.", "model", "endpoint"
        )
        self.router_tokens_total = counter("router_tokens_total", "Tokens.", "model", "endpoint", "token_type")
        self.worker_selection_total = counter(
            "worker_selection_total", "Times a worker was chosen.", "worker", "model", "policy"
        )
        self.routing_decisions_total = counter(
            "routing_decisions_total", "Times a policy chose, and why.", "model", "policy", "reason", "leg"
        )
        self.routing_matched_ratio = Histogram(
            *(cells, process, "routing_matched_ratio"),
            "Part of the prompt that the chosen worker was expected to hold.",
            ("model", "policy"),
            RATIO_BUCKETS,
        )
        self.worker_retries_total = counter(
            "worker_retries_total", "Attempts after the first of a request.", "endpoint", "reason"
        )
        self.pd_prefill_duration_seconds = histogram(
            "pd_prefill_duration_seconds", "Time a pair's prefill engine took, its queue included.", "model", "runtime"
        )
        self.pd_encode_duration_seconds = histogram(
            "pd_encode_duration_seconds", "Time an encode engine took for one image.", "model", "worker"
        )
        self.pd_kv_transfer_duration_seconds = histogram(
            "pd_kv_transfer_duration_seconds",
            "Time from the end of prefill to the decode engine's first token, where one follows the other.",
            *("model", "runtime"),
        )
        self.pd_ttft_seconds = histogram(
            "pd_ttft_seconds", "Time from the dispatch to a pair to its first token.", "model", "runtime"
        )
        self.pd_leg_failures_total = counter(
            "pd_leg_failures_total",
            "Attempts that failed before their first token, by the engine of the pair that is to blame.",
            *("model", "leg", "reason"),
        )
        self.pd_fallback_total = counter(
            "pd_fallback_total", "Prompts that a decode engine had to compute by itself.", "model", "reason"
        )
        self.worker_retries_exhausted_total = counter(
            "worker_retries_exhausted_total", "Requests that failed after more than one attempt.", "endpoint"
        )
        self.worker_retry_backoff_seconds = histogram(
            "worker_retry_backoff_seconds", "Waits before another attempt.", "attempt"
        )
        self.worker_resumes_total = counter(
            "worker_resumes_total", "Generations that were to go on on another worker.", "endpoint", "outcome"
        )
        self.worker_cb_outcomes_total = counter(
            "worker_cb_outcomes_total", "What came of requests to a worker.", "worker", "outcome"
        )
        self.worker_cb_transitions_total = counter(
            "worker_cb_transitions_total", "Changes of a worker's circuit breaker.", "worker", "from", "to"
        )
        self.discovery_registrations_total = counter(
            "discovery_registrations_total", "Workers that joined the fleet, or could not.", "source", "result"
        )
        self.discovery_deregistrations_total = counter(
            "discovery_deregistrations_total", "Workers that were taken out of the fleet.", "source", "reason"
        )
        self.discovery_workers_discovered = gauge(
            "discovery_workers_discovered", "Workers that a source wants.", "source"
        )
        self.discovery_connected = gauge(
            "discovery_connected", "Whether a source that is watched can be: 1, or 0 while it is away.", "source"
        )
        self.kv_event_state = gauge(
            "kv_event_state", "KV events of a rank: 0 none, 1 syncing, 2 live, 3 resync.", "worker", "rank"
        )
        self.kv_event_blocks = gauge("kv_event_blocks", "Blocks an engine has told it holds.", "worker", "rank")
        self.kv_event_lag_seconds = histogram(
            "kv_event_lag_seconds", "Age of a batch of KV events when it is applied.", "worker"
        )
        self.kv_events_total = counter("kv_events_total", "KV events applied.", "worker", "rank")
        self.kv_event_gaps_total = counter("kv_event_gaps_total", "Batches that were missed.", "worker", "rank")
        self.kv_event_resyncs_total = counter(
            "kv_event_resyncs_total", "Times all blocks of a rank were dropped.", "worker", "rank"
        )
        self.kv_event_orphans_total = counter(
            "kv_event_orphans_total", "Chains that came before their parent.", "worker", "rank"
        )
        self.kv_event_refused_total = counter(
            "kv_event_refused_total", "Chains whose block size is not that of their rank.", "worker", "rank"
        )
        self.kv_event_subscription_failures_total = counter(
            "kv_event_subscription_failures_total", "Streams of KV events that ended.", "worker", "reason"
        )
        self.admission_wait_seconds = histogram(
            "admission_wait_seconds", "Time in the queue before admission, of those that had to wait."
        )
        self.admission_rejections_total = counter(
            "admission_rejections_total", "Generations refused because too many were running or waiting.", "reason"
        )
        self.engine_aborts_total = counter("engine_aborts_total", "Generations an engine was told to stop.", "reason")
        self.parser_failures_total = counter(
            "parser_failures_total", "Outputs whose rest was passed on unparsed.", "model", "kind", "parser"
        )
        self.markers_spelled_total = counter(
            "markers_spelled_total",
            "Answers with the text of a marker that counts only as a token, and without that token.",
            *("model", "marker"),
        )
        self.structured_output_invalid_total = counter(
            "structured_output_invalid_total",
            "Answers that do not match what they were bound to: cut off (length, stop), or in spite of the engine or "
            "for want of a constraint (engine, unconstrained).",
            *("model", "reason"),
        )
        self.tokenizer_cache_hits_total = counter(
            "tokenizer_cache_hits_total",
            "Prompts found whole (l0), or by how they begin (l1).",
            *("tokenizer", "level"),
        )
        self.tokenizer_cache_misses_total = counter(
            "tokenizer_cache_misses_total", "Prompts looked up in vain.", "tokenizer", "level"
        )
        self.tokenizer_cache_reused_tokens_total = counter(
            "tokenizer_cache_reused_tokens_total", "Tokens of l1 hits that were not encoded again.", "tokenizer"
        )
        self.tokenizer_cache_entries = gauge("tokenizer_cache_entries", "Entries held.", "tokenizer", "level")
        self.tokenizer_cache_bytes = gauge("tokenizer_cache_bytes", "Bytes held.", "tokenizer", "level")
        self.mm_fetch_seconds = histogram("mm_fetch_seconds", "Time to fetch an item, redirects included.", "kind")
        self.mm_fetch_bytes_total = counter("mm_fetch_bytes_total", "Bytes of items fetched from URLs.", "kind")
        self.mm_decode_seconds = histogram("mm_decode_seconds", "Time to decode an item.", "kind")
        self.mm_preprocess_seconds = histogram(
            "mm_preprocess_seconds", "Time from a decoded item to its tensor.", "kind"
        )
        self.mm_items_total = counter("mm_items_total", "Items of prompts that were served.", "kind")
        self.mm_processed_total = counter(
            "mm_processed_total", "Items that had to be decoded and preprocessed; others were known.", "kind"
        )
        self.mm_refused_total = counter("mm_refused_total", "Requests refused for their media.", "kind", "reason")
        self.mm_tensors_total = counter("mm_tensors_total", "Tensors sent to engines.", "runtime", "path")
        self.mm_tensor_bytes_total = counter("mm_tensor_bytes_total", "Bytes of these.", "runtime", "path")
        self.mm_shm_write_failures_total = counter(
            "mm_shm_write_failures_total",
            "Tensors that shared memory had no room for; they went in their messages.",
            "runtime",
        )
        self.process_restarts_total = counter("process_restarts_total", "Gateway processes that were replaced.", "role")
        self.event_loop_lag_seconds = Histogram(
            cells, process, "event_loop_lag_seconds", "Delay of a timer on the event loop.", (), LAG_BUCKETS
        )

    def families(self) -> list[Family]:
        """Every family, in the order of the page."""
        return [value for value in vars(self).values() if isinstance(value, Family)]
