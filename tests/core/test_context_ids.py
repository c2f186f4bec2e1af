"""Cancellation, deadlines and identifiers."""

import asyncio
import itertools
import time
from collections import Counter

import pytest

from smg.core import ids
from smg.core.context import Cancel, RequestContext


async def test_cancel_runs_callbacks_once_and_wakes_waiters():
    seen: list[str] = []
    cancel = Cancel()
    cancel.on_cancel(seen.append)
    remove = cancel.on_cancel(lambda reason: seen.append("never"))
    remove()
    waiter = asyncio.create_task(cancel.wait())
    await asyncio.sleep(0)
    assert not cancel
    cancel.cancel("client_disconnect")
    cancel.cancel("deadline")
    assert cancel
    assert await waiter == "client_disconnect"
    cancel.on_cancel(seen.append)
    assert seen == ["client_disconnect", "client_disconnect"]


@pytest.mark.parametrize("length", [1, 24, 300])
def test_random_ids_are_alphanumeric_and_have_their_length(length):
    made = [ids.random_id(length) for _ in range(50)]
    assert {len(one) for one in made} == {length}
    assert all(one.isascii() and one.isalnum() for one in made)
    assert length < 24 or len(set(made)) == 50


def test_no_digit_of_a_random_id_is_favoured(monkeypatch):
    monkeypatch.setattr("os.urandom", lambda size: bytes(range(256)) * (size // 256 + 1))
    counts = Counter(ids.random_id(248))
    assert len(counts) == 62
    assert set(counts.values()) == {4}


def test_remaining_time(monkeypatch):
    monkeypatch.setattr("smg.core.clock.monotonic", lambda: 100.0)
    assert RequestContext("r", deadline=130.0).remaining() == 30.0
    assert RequestContext("r", deadline=90.0).remaining() == 0.0
    assert RequestContext("r").remaining() is None


def test_ids():
    assert ids.request_id("chatcmpl-").startswith("chatcmpl-")
    assert ids.request_id().startswith("req-")
    assert len({ids.request_id("msg_") for _ in range(1000)}) == 1000
    assert ids.response_id("chatcmpl-1", "chatcmpl-") == "chatcmpl-1"
    assert ids.response_id("mine", "chatcmpl-") == "chatcmpl-mine"
    assert ids.uuid7().version == 7
    assert ids.uuid7().variant == "specified in RFC 4122"
    assert ids.acceptable("req-7")
    assert not any(map(ids.acceptable, (None, "", "a b", "é", "x" * 129, "a\n")))


def test_dispatch_ids_are_never_prefixes_of_each_other():
    made = sorted(ids.dispatch_id("chatcmpl-abc", attempt) for attempt in range(1, 30))
    for one, two in itertools.pairwise(made):
        assert not two.startswith(one)


def test_version_7_uuids_tell_when_they_were_made():
    assert ids.minted("01941f29-7c00-7000-8000-0000deadbeef") == 0x01941F297C00 / 1000
    assert abs(ids.minted(str(ids.uuid7())) - time.time()) < 60
    assert ids.minted("6ba7b810-9dad-41d1-80b4-00c04fd430c8") is None
    assert ids.minted("w9") is None
