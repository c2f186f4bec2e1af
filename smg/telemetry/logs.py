"""Structured logs on standard error: text or one JSON object per line, times in UTC (spec api-and-ops 6.3).

Everything passed as ``extra={…}`` becomes a field; records written while a request is handled carry its id.
"""

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO

from smg.config.settings import TelemetrySettings
from smg.core.context import RequestContext

# The id of the request that the running task works for.
current_request: ContextVar[str] = ContextVar("current_request", default="")

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}
# Probes and scrapes come every few seconds for ever, and "not ready" is a good answer to a probe.
_QUIET_PATHS = frozenset({"/health", "/liveness", "/readiness", "/metrics"})
_NOTES = (
    *("model", "worker", "worker_url", "transport", "prefill", "prefill_url", "encode"),
    *("reason", "attempts", "error", "param"),
)

_AMBIGUOUS = re.compile(r"[ \"'=]")

_access = logging.getLogger("smg.access")


def configure(settings: TelemetrySettings, stream: TextIO | None = None) -> None:
    """Set the root logger up. Our own loggers log from ``log_level``, libraries from warning (or above it)."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_json else TextFormatter())
    level = _LEVELS[settings.log_level]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("smg").setLevel(level)
    # No line tells them, and each record would ask for them.
    logging.logThreads = logging.logMultiprocessing = False


def quiet_library(*names: str) -> None:
    """Take away the handlers and levels a library has given its loggers, so that they follow the root logger."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


def fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """The fields of a record: the request id, then what the caller passed as ``extra``."""
    if not hasattr(record, "request_id") and current_request.get():
        yield "request_id", current_request.get()
    for name, value in vars(record).items():
        if name not in _OWN and not name.startswith("_"):
            yield name, value


def _time(record: logging.LogRecord) -> tuple[str, str, int]:
    """A record's date, time of day, and milliseconds, cut off."""
    seconds, micros = divmod(round(record.created * 1_000_000), 1_000_000)
    return *_date(seconds), micros // 1000


@lru_cache(maxsize=2)
def _date(seconds: int) -> tuple[str, str]:
    """Date and time of day; the records of a busy process share their second."""
    date, _, time = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S").partition(" ")
    return date, time


def _level(record: logging.LogRecord) -> str:
    return _NAMES.get(record.levelname, record.levelname)


class JsonFormatter(logging.Formatter):
    """One object per line: time (RFC 3339), level, logger, message, pid, source, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        date, time, millis = _time(record)
        out: dict[str, Any] = {
            "time": f"{date}T{time}.{millis:03}Z",
            "level": _level(record),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
            "source": f"{record.filename}:{record.lineno}",
        }
        for name, value in fields(record):
            out.setdefault(name, value)
        if record.exc_info:
            out["exception"] = self.formatException(record.exc_info)
        return json.dumps(out, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00.123 INFO smg.access [42] message name=value …``; a record can't forge another line."""

    def format(self, record: logging.LogRecord) -> str:
        date, time, millis = _time(record)
        message = _one_line(record.getMessage())
        line = f"{date} {time}.{millis:03} {_level(record):<5} {record.name} [{record.process}] {message}"
        for name, value in fields(record):
            line += f" {name}={_word(value)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _one_line(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _word(value: Any) -> str:
    """Quote a value in which spaces or quotes would make the line ambiguous."""
    text = str(value)
    return text if text.isprintable() and text and not _AMBIGUOUS.search(text) else json.dumps(text)


def _trace(ctx: RequestContext) -> dict[str, str]:
    """What finds the request's spans: the caller's is the parent of ours, and ours of the engine's."""
    if ctx.trace is None:
        return {}
    return {"trace_id": ctx.trace.trace_id, "span_id": ctx.trace.span_id, "parent_span_id": ctx.trace.parent}


def access_record(ctx: RequestContext, method: str, path: str, status: int, seconds: float, client: str = "") -> None:
    """Log one finished request; ``status`` is 499 when the client left before the last byte.

    The query string is not logged, and of ``ctx.notes`` only what the pipeline wrote for operators.
    """
    # Of a stream that has failed the status was sent before.
    failed = status >= 400 or "error" in ctx.notes
    level = logging.ERROR if status >= 500 else logging.WARNING if failed else logging.INFO
    if path in _QUIET_PATHS:
        level = logging.DEBUG
    if not _access.isEnabledFor(level):
        return
    extra: dict[str, Any] = {
        "request_id": ctx.request_id,
        "method": method,
        "path": path,
        "status": status,
        "duration_ms": round(seconds * 1000, 3),
        "client": client,
        "principal": ctx.principal.name,
        **_trace(ctx),
        **{name: ctx.notes[name] for name in _NOTES if name in ctx.notes},
    }
    # Whoever calls, the record comes from here: no need to look for its place on the stack.
    place = access_record.__code__
    _access.handle(
        _access.makeRecord(
            _access.name, level, place.co_filename, place.co_firstlineno, "request", (), None, place.co_name, extra
        )
    )
