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

# Models, and what their prompts have no place for, that the log has told of.
_unshown: set[tuple[str, str]] = set()


def decision(lease: Lease) -> str:
    """A routing decision in one line, as the header ``x-smg-routing-decision`` has it."""
    if lease.prefill is None and lease.rank is None and not lease.encode:
        matched = f"{lease.matched}/{lease.prompt}"
        return f"policy={lease.policy}; reason={lease.reason}; matched={matched}; worker={lease.worker.id}"
    return "; ".join(f"{name}={value}" for name, value in _fields(lease).items())


def _fields(lease: Lease) -> dict[str, str | int]:
    encode = {"encode": encoders(lease)} if lease.encode else {}
    prefill: dict[str, str | int] = {}
    if lease.prefill is not None:
        prefill = {"prefill": lease.prefill.worker.id}
        prefill |= {f"prefill_{name}": value for name, value in _choice(lease.prefill).items()}
    return {**_choice(lease, worker=lease.worker.id), **prefill, **encode}


def _choice(lease: Lease, **named: str) -> dict[str, str | int]:
    rank = {} if lease.rank is None else {"rank": lease.rank}
    matched = f"{lease.matched}/{lease.prompt}"
    return {"policy": lease.policy, "reason": lease.reason, "matched": matched, **named, **rank}


def _urls(lease: Lease) -> dict[str, str]:
    """The URLs of the engine that answers and of the one that does its prefill, as logs name them."""
    prefill = {} if lease.prefill is None else {"prefill_url": lease.prefill.worker.url}
    return {"worker_url": lease.worker.url, **prefill}


def encoders(lease: Lease) -> str:
    """The ids of a lease's encode workers, each once, in the order of the media."""
    return ",".join(dict.fromkeys(each.worker.id for each in lease.encode))


class Facts:
    """Counts one generation.

    ``ctx.notes`` gets ``model``, ``worker``, ``worker_url``, ``reason``, ``decision``, ``attempts``, ``warning``,
    ``invalid``, ``resumed`` and ``error``. Of a pair ``worker`` is the one that decodes, and ``prefill``,
    ``prefill_url`` and ``prefill_reason`` tell of the other, ``encode`` of those that encode its media.
    """

    def __init__(self, metrics: Metrics, ctx: RequestContext, *, streaming: bool) -> None:
        self._metrics = metrics
        self._ctx = ctx
        self._streaming = "true" if streaming else "false"
        self._model = ""
        # By the ids of all workers that were chosen.
        self._places: dict[str, str] = {}
        self._ignored: frozenset[str] = frozenset()
        self._unshown = ""
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

    def unshown(self, what: str) -> None:
        """The model's chat template leaves out ``what``. The log says so once for a model."""
        self._unshown = f"the model's prompt has no place for {what}"
        if (self._model, what) not in _unshown:
            _unshown.add((self._model, what))
            facts = {"model": self._model, "what": what}
            log.warning("the model's prompt has no place for what clients send", extra=facts)

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
        if "worker" in notes:
            # What an earlier attempt has left, or another prompt of the request.
            for name in ("prefill", "prefill_url", "encode", "warning"):
                notes.pop(name, None)
        worker = lease.worker
        notes["worker"], notes["reason"], notes["attempts"] = worker.id, lease.reason, str(attempt)
        notes["worker_url"] = self._places[worker.id] = worker.url
        if lease.encode:
            notes["encode"] = encoders(lease)
            for each in lease.encode:
                self._places[each.worker.id] = each.worker.url
                self._metrics.worker_selection_total.inc(each.worker.id, self._model, each.policy)
        self._pair, self._prefilled = "", None
        if lease.prefill is not None:
            notes.update(prefill=lease.prefill.worker.id, prefill_reason=lease.prefill.reason)
            notes["prefill_url"] = lease.prefill.worker.url
            self._places[lease.prefill.worker.id] = lease.prefill.worker.url
            self._chosen(lease.prefill, "prefill")
            self._pair = lease.worker.runtime
            self._dispatched = clock.monotonic()
        lacks = lease.lacks | self._ignored
        if lacks or self._unshown:
            notes["warning"] = "; ".join(filter(None, (self._unshown, warning(lacks) if lacks else "")))
        notes["decision"] = decision(lease)
        self._chosen(lease, "regular" if lease.prefill is None else "decode")
        if routed.isEnabledFor(logging.DEBUG):
            request = {"request": self._ctx.request_id, "model": self._model}
            routed.debug("routed", extra={**request, **_fields(lease), **_urls(lease)})

    def _chosen(self, lease: Lease, leg: str) -> None:
        """Count one choice of a policy."""
        self._metrics.worker_selection_total.inc(lease.worker.id, self._model, lease.policy)
        self._metrics.routing_decisions_total.inc(self._model, lease.policy, lease.reason, leg)
        if lease.prompt:
            self._metrics.routing_matched_ratio.observe(lease.matched / lease.prompt, self._model, lease.policy)

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
        # What came of one that could not go on is told by ``broken``.
        if well:
            self._log("generation goes on elsewhere", error, worker, tokens=tokens, now=notes.get("worker", ""))

    def broken(self, error: GatewayError, worker: str, tokens: int, why: str) -> None:
        """The answer of ``worker`` broke off after ``tokens`` tokens and does not go on elsewhere, because of ``why``.

        The status has been sent, so the access log cannot tell.
        """
        self._log("answer broke off", error, worker, tokens=tokens, why=why)

    def _log(self, text: str, error: GatewayError, worker: str, **more: object) -> None:
        facts = {"worker": worker, "worker_url": self._places.get(worker, ""), "code": error.code}
        facts["error"] = error.detail or error.message
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
        notes = self._ctx.notes
        notes["error"] = code
        # What fails for several generations together is counted by none of theirs.
        model = self._model or notes.get("model", "")
        self._metrics.router_request_errors_total.inc(model, self._ctx.endpoint, code)

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
