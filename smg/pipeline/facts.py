"""What one generation leaves behind for operators: metrics, and the notes of its context (spec api-and-ops 6.1)."""

import logging

from smg.core import clock
from smg.core.context import RequestContext
from smg.core.events import Usage
from smg.routing.needs import warning
from smg.routing.router import Lease
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.pipeline")


class Facts:
    """Counts one generation.

    ``ctx.notes`` gets ``model``, ``worker``, ``reason``, ``attempts``, ``warning``, ``invalid`` and
    ``error``.
    """

    def __init__(self, metrics: Metrics, ctx: RequestContext, *, streaming: bool) -> None:
        self._metrics = metrics
        self._ctx = ctx
        self._streaming = "true" if streaming else "false"
        self._model = ""
        self._ignored: frozenset[str] = frozenset()
        self._first: float | None = None
        self._closed = False

    def model(self, name: str) -> None:
        """The request is for the model ``name`` (canonical id)."""
        self._model = name
        self._ctx.notes["model"] = name
        self._metrics.router_requests_total.inc(name, self._ctx.endpoint, self._streaming)

    def ignored(self, feature: str) -> None:
        """The engines will not be asked for ``feature``, whichever is chosen."""
        self._ignored = frozenset({feature})

    def invalid(self, reason: str) -> None:
        """A choice does not match what it was bound to, for a reason of ``constraints.verify``."""
        self._metrics.structured_output_invalid_total.inc(self._model, reason)
        self._ctx.notes["invalid"] = reason
        text = f"an answer does not match the requested format ({reason})"
        told = self._ctx.notes.get("warning", "")
        if text not in told:
            self._ctx.notes["warning"] = f"{told}; {text}" if told else text
        log.warning("an answer does not match its format", extra={"model": self._model, "reason": reason})

    def selected(self, lease: Lease, policy: str, attempt: int) -> None:
        """A worker was chosen for attempt number ``attempt``."""
        notes = self._ctx.notes
        notes.update(worker=lease.worker.id, reason=lease.reason, attempts=str(attempt))
        notes.pop("warning", None)
        if lacks := lease.lacks | self._ignored:
            notes["warning"] = warning(lacks)
        self._metrics.worker_selection_total.inc(lease.worker.id, self._model, policy)

    def retried(self, code: str) -> None:
        """An attempt failed with ``code`` and another follows."""
        self._metrics.worker_retries_total.inc(self._ctx.endpoint, code)

    def first_token(self) -> None:
        """The first batch has arrived."""
        self._first = clock.monotonic()
        self._metrics.router_ttft_seconds.observe(self._first - self._ctx.started, self._model, self._ctx.endpoint)

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
