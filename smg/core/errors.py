"""The one error every layer raises, and its shape in each client dialect.

A layer names *what* went wrong by a machine code; the code fixes the HTTP status (spec api-and-ops 1.2) and the
dialect's encoder turns both into its own JSON (spec agentic-apis 2). Nothing else reaches a client.
"""

from collections.abc import Mapping
from typing import Any

# code -> HTTP status. Codes that are not listed are programming errors and end as internal_error.
STATUS: dict[str, int] = {
    # the client's fault
    "json_parse_error": 400,
    "invalid_value": 400,
    "invalid_request": 400,
    "unsupported_parameter": 400,
    "runtime_pd_not_supported": 400,
    "missing_model": 400,
    "tokenizer_not_found": 400,
    "empty_input": 400,
    "context_length_exceeded": 400,
    "process_messages_failed": 400,
    "tokenization_failed": 400,
    "invalid_tool_configuration": 400,
    "unsupported_tool": 400,
    "previous_response_not_found": 400,
    "invalid_multimodal_request": 400,
    "multimodal_config_missing": 400,
    "multimodal_not_supported": 400,
    "multimodal_prompt_contract_mismatch": 400,
    "media_not_allowed": 400,
    "media_too_large": 400,
    "media_timeout": 400,
    "media_undecodable": 400,
    "media_unreachable": 400,
    "audio_transcription_model_not_supported": 400,
    "unsupported_transcription_response_format": 400,
    "transcription_timestamps_not_supported": 400,
    "unsupported_transcription_language": 400,
    "asr_prompt_too_long": 400,
    "invalid_api_key": 401,
    "permission_denied": 403,
    "model_not_found": 404,
    "not_found": 404,
    "worker_not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "conflict": 409,
    "worker_already_exists": 409,
    "request_too_large": 413,
    "unsupported_media_type": 415,
    "constraint_failed": 422,
    "rate_limit_exceeded": 429,
    "queue_full": 429,
    "tenant_rate_limit_exceeded": 429,
    "client_disconnected": 499,
    # ours or the engine's
    "internal_error": 500,
    "not_implemented": 501,
    "worker_failed": 502,
    "worker_stream_failed": 502,
    "no_available_workers": 503,
    "tokenizer_not_ready": 503,
    "overloaded": 503,
    "shutting_down": 503,
    "queue_timeout": 503,
    "upstream_timeout": 504,
    "deadline_exceeded": 504,
}

# Statuses after which another worker may be tried, as long as nothing was sent (spec api-and-ops 4.1).
RETRYABLE = frozenset({408, 429, 500, 502, 503, 504})


# What of a client's own words an error repeats to it, in characters.
_LONGEST_MESSAGE = 2000
_LONGEST_PARAM = 300


class GatewayError(Exception):
    """A failure with a machine code.

    ``message`` is for the client: no paths, class names, worker addresses or tracebacks. ``param`` is the dotted
    field path of a bad request (``messages[0].content``). Both are cut where they are too long. ``retry_after`` is in
    seconds. ``detail`` is for the log only. ``worker_fault`` tells the breaker whether the worker is to blame.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        detail: str = "",
        worker_fault: bool = False,
    ) -> None:
        message = _cut(message, _LONGEST_MESSAGE)
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = None if param is None else _cut(param, _LONGEST_PARAM)
        self.status = status if status is not None else STATUS.get(code, 500)
        if retry_after is None and self.status in (429, 503):
            retry_after = 1.0
        self.retry_after = retry_after
        self.detail = detail
        self.worker_fault = worker_fault

    @property
    def retryable(self) -> bool:
        return self.status in RETRYABLE

    def headers(self) -> dict[str, str]:
        """Response headers common to all dialects: the error code, ``Retry-After``, ``WWW-Authenticate``."""
        out = {"x-smg-error-code": self.code}
        if self.retry_after is not None:
            out["retry-after"] = str(max(1, round(self.retry_after)))
        if self.status == 401:
            out["www-authenticate"] = "Bearer"
        return out


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


class ContextLengthExceeded(GatewayError):
    """A prompt of ``prompt`` tokens, or that with ``output`` more to generate, is over the limit of ``longest``."""

    def __init__(self, message: str, param: str | None = None, *, prompt: int, longest: int, output: int = 0) -> None:
        super().__init__("context_length_exceeded", message, param=param)
        self.prompt = prompt
        self.output = output
        self.longest = longest


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> GatewayError:
    """Short form for the most common error: the client sent something wrong at ``param``."""
    return GatewayError(code, message, param=param)


_OPENAI_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable",
}
_ANTHROPIC_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_GOOGLE_STATUS: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def openai_shape(error: GatewayError) -> dict[str, Any]:
    """``{error: {message, type, param, code}}``, for every route that is not named below."""
    kind = _OPENAI_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def anthropic_shape(error: GatewayError, request_id: str) -> dict[str, Any]:
    """``{type: "error", error: {type, message}, request_id}``; the field path goes in front of the message."""
    kind = _ANTHROPIC_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    message = f"{error.param}: {error.message}" if error.param else error.message
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def google_shape(error: GatewayError) -> dict[str, Any]:
    """``{error: {code, message, status}}`` with Google's canonical status names."""
    status = _GOOGLE_STATUS.get(error.status, "INVALID_ARGUMENT" if error.status < 500 else "INTERNAL")
    message = f"{error.param}: {error.message}" if error.param else error.message
    return {"error": {"code": error.status, "message": message, "status": status}}
