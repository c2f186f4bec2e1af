"""Limits of tenants over HTTP, in all worker processes together (spec routing 11: tenant_limit_e2e)."""

import httpx
import pytest

from tests.engines_for_tests import mock_process
from tests.gateway import running, settings

pytestmark = pytest.mark.e2e

KEYS = ("--tenant-api-key", "acme:acme-key", "--tenant-api-key", "other:other-key", "--api-key", "plain")
BODY = {"model": "mock-model", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


def ask(url: str, key: str, path: str = "/v1/chat/completions", **more: object) -> httpx.Response:
    # A connection each: with two workers the kernel chooses.
    return httpx.post(url + path, json={**BODY, **more}, headers={"authorization": f"Bearer {key}"}, timeout=20)


def test_each_tenant_is_held_to_its_own_limits(tmp_path):
    limits = ("--workers", "2", "--tenant-requests-per-minute", "2", "--tenant-limit", "acme=6/0")
    with (
        mock_process("--text", "hello there") as engine,
        running(settings(tmp_path, "--worker-urls", f"grpc://{engine}", *KEYS, *limits)) as gateway,
    ):
        assert [ask(gateway.url, "acme-key", stream=number % 2 == 0).status_code for number in range(6)] == [200] * 6
        refused = ask(gateway.url, "acme-key")
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "tenant_rate_limit_exceeded"
        assert 1 <= int(refused.headers["retry-after"]) <= 10
        assert ask(gateway.url, "acme-key", "/v1/completions", prompt=["a", "b"]).status_code == 429
        assert [ask(gateway.url, "other-key").status_code for _ in range(3)] == [200, 200, 429]
        assert [ask(gateway.url, "plain").status_code for _ in range(3)] == [200, 200, 429]
        assert ask(gateway.url, "wrong").status_code == 401
        assert gateway.metric("smg_admission_rejections_total") == 4


def test_a_tenant_that_has_used_its_tokens_waits_for_more(tmp_path):
    limits = ("--workers", "2", "--tenant-tokens-per-minute", "10", "--tenant-limit", "other=0/0")
    with (
        mock_process("--text", "one two three four five six seven eight nine ten") as engine,
        running(settings(tmp_path, "--worker-urls", f"grpc://{engine}", *KEYS, *limits)) as gateway,
    ):
        assert ask(gateway.url, "acme-key", max_tokens=20, stream=True).status_code == 200
        refused = ask(gateway.url, "acme-key")
        assert (refused.status_code, "tokens per minute" in refused.text) == (429, True)
        assert [ask(gateway.url, "other-key").status_code for _ in range(3)] == [200] * 3
