"""Two real vLLM replicas: KV events are followed, and a conversation stays where its prefix is."""

import httpx
import pytest

from tests.gateway import running, settings, wait_for
from tests.real_vllm.conftest import LONG, name_of

pytestmark = [pytest.mark.real_vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def gateway(engines, tmp_path_factory):
    flags = ("--worker-urls", *engines, "--policy", "cache_aware", "--worker-header", "--routing-decision-header")
    with running(settings(tmp_path_factory.mktemp("state"), *flags), ready=120) as found:
        wait_for(lambda: found.metric("smg_kv_event_state") >= 2, 60, "subscriptions to both")
        yield found


def say(gateway, messages) -> httpx.Response:
    body = {"model": name_of(gateway), "messages": messages, "max_tokens": 8, "temperature": 0}
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=300)
    answer.raise_for_status()
    return answer


def test_events_of_both_are_followed(gateway):
    # An engine that holds nothing tells nothing: it is live (2) with its first prompt.
    for number in range(8):
        say(gateway, [{"role": "user", "content": f"Number {number}. {LONG}"}])
        if gateway.metric("smg_kv_event_state") == 4:
            break
    wait_for(lambda: gateway.metric("smg_kv_event_state") == 4, 20, "both live")
    # Each prompt has over 600 tokens, a block 32.
    wait_for(lambda: gateway.metric("smg_kv_event_blocks") >= 2 * 18, 20, "the blocks of both")


def test_conversations_stay_where_their_prefix_is(gateway):
    workers: dict[int, set[str]] = {}
    for turn in range(3):
        for number in range(4):
            start = f"This is conversation {number}. " + LONG[number * 100 :]
            messages = [{"role": "user", "content": start}]
            messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And then?"}] * turn
            answer = say(gateway, messages)
            workers.setdefault(number, set()).add(answer.headers["x-smg-worker"])
            cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached >= (500 if turn else 0), answer.headers["x-smg-routing-decision"]
    assert all(len(found) == 1 for found in workers.values()), workers
