"""One error, every dialect's shape (spec agentic-apis 2)."""

import pytest

from smg.core.errors import STATUS, GatewayError, anthropic_shape, bad_request, google_shape, openai_shape


@pytest.mark.parametrize(
    ("code", "status", "openai", "anthropic", "google"),
    [
        ("invalid_value", 400, "invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
        ("invalid_api_key", 401, "authentication_error", "authentication_error", "UNAUTHENTICATED"),
        ("permission_denied", 403, "permission_error", "permission_error", "PERMISSION_DENIED"),
        ("model_not_found", 404, "not_found_error", "not_found_error", "NOT_FOUND"),
        ("request_too_large", 413, "invalid_request_error", "request_too_large", "INVALID_ARGUMENT"),
        ("rate_limit_exceeded", 429, "rate_limit_error", "rate_limit_error", "RESOURCE_EXHAUSTED"),
        ("internal_error", 500, "server_error", "api_error", "INTERNAL"),
        ("no_available_workers", 503, "service_unavailable", "overloaded_error", "UNAVAILABLE"),
        ("upstream_timeout", 504, "server_error", "timeout_error", "DEADLINE_EXCEEDED"),
    ],
)
def test_shapes(code, status, openai, anthropic, google):
    error = GatewayError(code, "what happened", param="messages[0]")
    assert error.status == status
    assert openai_shape(error) == {
        "error": {"message": "what happened", "type": openai, "param": "messages[0]", "code": code}
    }
    assert anthropic_shape(error, "msg_1") == {
        "type": "error",
        "error": {"type": anthropic, "message": "messages[0]: what happened"},
        "request_id": "msg_1",
    }
    assert google_shape(error) == {"error": {"code": status, "message": "messages[0]: what happened", "status": google}}


def test_headers():
    assert GatewayError("overloaded", "busy", retry_after=2.4).headers() == {
        "x-smg-error-code": "overloaded",
        "retry-after": "2",
    }
    assert GatewayError("no_available_workers", "none").headers()["retry-after"] == "1"
    assert GatewayError("invalid_api_key", "no").headers()["www-authenticate"] == "Bearer"
    assert bad_request("no", "n").headers() == {"x-smg-error-code": "invalid_value"}


def test_unknown_codes_are_internal_and_client_errors_are_not_retried():
    assert GatewayError("never_heard_of", "x").status == 500
    assert all(
        not GatewayError(code, "").retryable for code, status in STATUS.items() if status in (400, 401, 404, 422)
    )


def test_a_clients_own_words_are_not_repeated_at_any_length():
    error = bad_request("unknown kind '" + "x" * 1_000_000, "tools." + "y" * 1_000_000)
    told = openai_shape(error)["error"]
    assert (told["message"], told["param"]) == ("unknown kind '" + "x" * 1986 + "…", "tools." + "y" * 294 + "…")
