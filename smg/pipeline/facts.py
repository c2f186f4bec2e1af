"""What one generation leaves behind for operators: metrics, and the notes of its context (spec api-and-ops 6.1)."""

import logging
from collections.abc import Iterable

from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Usage
from smg.routing.needs import warning
from smg.routing.router import Lease
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.pipeline")
routed = logging.getLogger("smg.routing")


def decision(lease: Lease) -> str:
    """A routing decision in one line, as the header ``x-smg-routing-decision`` has it."""
    return "; ".join(f"{name}={value}" for name, value in _fields(lease).items())


def _fields(lease: Lease) -> dict[str, str | int]:
    rank = {} if lease.rank is None else {"rank": lease.rank}
    prefill = {} if lease.prefill is None else {"prefill": lease.prefill.worker.id}
    encode = {"encode": encoders(lease)} if lease.encode else {}
    matched = f"{lease.matched}/{lease.prompt}"
    return {
        "policy": lease.policy,
        "reason": lease.reason,
        "matched": matched,
        "worker": lease.worker.id,
        **rank,
        **prefill,
        **encode,
    }


def encoders(lease: Lease) -> str:
    """The ids of a lease's encode workers, each once, in the order of the media."""
    return ",".join(dict.fromkeys(each.worker.id for each in lease.encode))


class Facts:
    """Counts one generation.

    ``ctx.notes`` gets ``model``, ``worker``, ``reason``, ``decision``, ``attempts``, ``warning``, ``invalid``,
    ``resumed`` and ``error``. Of a pair ``worker`` is the one that decodes, and ``prefill`` and ``prefill_reason`` tell
    of the other, ``encode`` of those that encode its media.
    """

    def __init__(self, metrics: Metrics, ctx: RequestContext, *, streaming: bool) -> None:
        self._metrics = metrics
        self._ctx = ctx
        self._streaming = "true" if streaming else "false"
        self._model = ""
        self._ignored: frozenset[str] = frozenset()
        self._first: float | None = None
        # Of an attempt on a pair: its contract, its start, and the end of its prefill.
        self._pair = ""
        self._dispatched = 0.0
        self._prefilled: float | None = None
        self._closed = False

    def model(self, name: str) -> None:
        """The request is for the model ``name`` (canonical id)."""
        self._model = name
        self._ctx.notes["model"] = name
        self._metrics.router_requests_total.inc(name, self._ctx.endpoint, self._streaming)

    def ignored(self, features: Iterable[str]) -> None:
        """The engines will not be asked for ``features`` (or fields of the body), whichever is chosen."""
        self._ignored = frozenset(features)

    def invalid(self, reason: str) -> None:
        """A choice does not match what it was bound to, for a reason of ``constraints.verify``."""
        self._metrics.structured_output_invalid_total.inc(self._model, reason)
        self._ctx.notes["invalid"] = reason
        text = f"an answer does not match the requested format ({reason})"
        told = self._ctx.notes.get("warning", "")
        if text not in told:
            self._ctx.notes["warning"] = f"{told}; {text}" if told else text
        log.warning("an answer does not match its format", extra={"model": self._model, "reason": reason})

    def selected(self, lease: Lease, attempt: int) -> None:
        """A worker, or a pair, was chosen for attempt number ``attempt``."""
        notes = self._ctx.notes
        notes.update(worker=lease.worker.id, reason=lease.reason, attempts=str(attempt))
        notes.pop("prefill", None)
        notes.pop("encode", None)
        if lease.encode:
            notes["encode"] = encoders(lease)
            for each in lease.encode:
                self._metrics.worker_selection_total.inc(each.worker.id, self._model, each.policy)
        self._pair, self._prefilled = "", None
        if lease.prefill is not None:
            notes.update(prefill=lease.prefill.worker.id, prefill_reason=lease.prefill.reason)
            self._metrics.worker_selection_total.inc(lease.prefill.worker.id, self._model, lease.prefill.policy)
            self._pair = lease.worker.runtime
            self._dispatched = clock.monotonic()
        notes.pop("warning", None)
        if lacks := lease.lacks | self._ignored:
            notes["warning"] = warning(lacks)
        notes["decision"] = decision(lease)
        self._metrics.worker_selection_total.inc(lease.worker.id, self._model, lease.policy)
        self._metrics.routing_decisions_total.inc(self._model, lease.policy, lease.reason)
        if lease.prompt:
            self._metrics.routing_matched_ratio.observe(lease.matched / lease.prompt, self._model, lease.policy)
        if routed.isEnabledFor(logging.DEBUG):
            routed.debug("routed", extra={"request": self._ctx.request_id, "model": self._model, **_fields(lease)})

    def retried(self, error: GatewayError, worker: str, attempt: int, wait: float) -> None:
        """An attempt failed on ``worker``; number ``attempt`` follows in ``wait`` seconds."""
        self._metrics.worker_retries_total.inc(self._ctx.endpoint, error.code)
        if wait:
            self._metrics.worker_retry_backoff_seconds.observe(wait, str(attempt))
        self._log("attempt failed, trying again", error, worker, attempt=attempt, wait=round(wait, 3))

    def exhausted(self) -> None:
        """The last of several attempts has failed."""
        self._metrics.worker_retries_exhausted_total.inc(self._ctx.endpoint)

    def resumed(self, error: GatewayError, worker: str, tokens: int, *, well: bool) -> None:
        """``worker`` broke off after ``tokens`` tokens; another one has taken over, or (not ``well``) none could."""
        notes = self._ctx.notes
        if well:
            notes["resumed"] = str(int(notes.get("resumed", "0")) + 1)
        self._metrics.worker_resumes_total.inc(self._ctx.endpoint, "resumed" if well else "failed")
        text = "generation goes on elsewhere" if well else "generation cannot go on elsewhere"
        self._log(text, error, worker, tokens=tokens, now=notes.get("worker", ""))

    def _log(self, text: str, error: GatewayError, worker: str, **more: object) -> None:
        facts = {"worker": worker, "code": error.code, "error": error.detail}
        log.warning(text, extra={**facts, **more})

    def first_token(self) -> None:
        """The first batch has arrived."""
        self._first = clock.monotonic()
        self._metrics.router_ttft_seconds.observe(self._first - self._ctx.started, self._model, self._ctx.endpoint)

        if self._pair:
            labels = (self._model, self._pair)
            self._metrics.pd_ttft_seconds.observe(self._first - self._dispatched, *labels)
            if self._prefilled is not None:
                self._metrics.pd_kv_transfer_duration_seconds.observe(self._first - self._prefilled, *labels)

    def prefilled(self) -> None:
        """The prefill worker of a pair has done its part."""
        now = clock.monotonic()
        self._metrics.pd_prefill_duration_seconds.observe(now - self._dispatched, self._model, self._pair)
        if self._first is None:
            self._prefilled = now

    def encoded(self, seconds: float, worker: str) -> None:
        """An encode worker has taken ``seconds`` for one media item."""
        self._metrics.pd_encode_duration_seconds.observe(seconds, self._model, worker)

    def leg_failed(self, leg: str, code: str) -> None:
        """An attempt failed because of the pair's ``leg``."""
        self._metrics.pd_leg_failures_total.inc(self._model, leg, code)

    def recomputed(self, reason: str) -> None:
        """The decode worker of a pair has to compute the prompt by itself."""
        self._metrics.pd_fallback_total.inc(self._model, reason)

    def aborted(self, reason: str) -> None:
        """The engine was told to stop before it had ended by itself."""
        self._metrics.engine_aborts_total.inc(reason)

    def failed(self, code: str) -> None:
        """The generation failed with ``code``."""
        self._ctx.notes["error"] = code
        self._metrics.router_request_errors_total.inc(self._model, self._ctx.endpoint, code)

    def closed(self, usage: Usage) -> None:
        """The generation is over, whole or not: count its tokens and times. Idempotent."""
        if self._closed or self._first is None:
            return
        self._closed = True
        now = clock.monotonic()
        labels = (self._model, self._ctx.endpoint)
        self._metrics.router_generation_duration_seconds.observe(now - self._ctx.started, *labels)
        if usage.completion_tokens > 1:
            gap = (now - self._first) / (usage.completion_tokens - 1)
            self._metrics.router_tpot_seconds.observe(gap, *labels)
        for kind, count in (
            ("input", usage.prompt_tokens),
            ("cached", usage.cached_tokens),
            ("output", usage.completion_tokens),
        ):
            if count:
                self._metrics.router_tokens_total.inc(*labels, kind, amount=count)
