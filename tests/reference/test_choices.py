"""The same requests to the reference gateway and to ours, before the same engines: who is chosen (spec routing 1).

What is said to be as in the reference has to be so. Where both differ on purpose, the test says how
(docs/routing.md has the list).
"""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from smg._native.region import Region
from smg.config.settings import RoutingSettings
from smg.engine_server.mock.http import HttpScript, MockHttpEngine
from smg.engine_server.mock.transfer import Role
from smg.routing.policies.prefix_hash import PrefixHash
from smg.routing.policies.ring import HashRing
from smg.routing.router import Query
from tests.gateway import running_async, settings, until_async

REFERENCE = os.environ.get("SMG_REFERENCE", "")
pytestmark = [
    pytest.mark.reference,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not REFERENCE, reason="SMG_REFERENCE does not name the reference's program: see docs/testing.md"
    ),
]

ENGINES = 4


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def answers(url: str, path: str) -> bool:
    try:
        return httpx.get(url + path, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@contextlib.asynccontextmanager
async def reference(*flags: str) -> AsyncIterator[str]:
    """The reference gateway's URL."""
    port = free_port()
    command = [REFERENCE, "launch", "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port())]
    # Its package is called like ours: it must not find this one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = await asyncio.create_subprocess_exec(
        *command, *flags, cwd="/", env=clean, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        url = f"http://127.0.0.1:{port}"
        await until_async(lambda: answers(url, "/readiness"), 60)
        yield url
    finally:
        process.terminate()
        await process.wait()


class Both:
    """Two gateways before the same engines."""

    def __init__(self, theirs: str, ours: str, engines: Sequence[MockHttpEngine]) -> None:
        self.theirs = theirs
        self.ours = ours
        self._engines = engines
        self.urls = [engine.url for engine in engines]

    async def chosen(self, url: str, requests: Sequence[tuple[dict[str, Any], dict[str, str]]]) -> list[int]:
        """The engine of each request (body, headers), sent one after the other; -1: it was refused."""
        out = []
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            for body, headers in requests:
                before = [len(engine.requests) for engine in self._engines]
                path = "/v1/chat/completions" if "messages" in body else "/generate"
                answer = await client.post(path, json=body, headers=headers)
                grown = [at for at, e in enumerate(self._engines) if len(e.requests) > before[at]]
                assert len(grown) == (1 if answer.status_code == 200 else 0), answer.text
                out.append(grown[0] if grown else -1)
        return out

    async def both(self, requests: Sequence[tuple[dict[str, Any], dict[str, str]]]) -> tuple[list[int], list[int]]:
        return await self.chosen(self.theirs, requests), await self.chosen(self.ours, requests)


def sglang(role: Role = "regular") -> MockHttpEngine:
    return MockHttpEngine(HttpScript(texts=("yes",)), server="sglang", role=role)


@contextlib.asynccontextmanager
async def place(state: Any, policy: str) -> AsyncIterator[Both]:
    async with contextlib.AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(sglang()) for _ in range(ENGINES)]
        flags = ("--policy", policy, "--worker-urls", *(engine.url for engine in engines))
        yield await gateways(stack, state, flags, engines, ENGINES)


@contextlib.asynccontextmanager
async def pairs(state: Any, *flags: str) -> AsyncIterator[Both]:
    """Pairs of one decode engine with the prefill engines that are chosen among."""
    async with contextlib.AsyncExitStack() as stack:
        decode = await stack.enter_async_context(sglang("decode"))
        engines = [await stack.enter_async_context(sglang("prefill")) for _ in range(ENGINES)]
        legs = [word for each in engines for word in ("--prefill", each.url, str(each.bootstrap_port))]
        all_flags = ("--pd-disaggregation", "--decode", decode.url, *legs, *flags)
        yield await gateways(stack, state, all_flags, engines, ENGINES + 1)


async def gateways(
    stack: contextlib.AsyncExitStack, state: Any, flags: Sequence[str], engines: Sequence[MockHttpEngine], count: int
) -> Both:
    """Both gateways with the same flags, when each sees ``count`` engines; ``engines`` are the ones chosen among."""
    theirs = await stack.enter_async_context(reference(*flags))
    gateway = await stack.enter_async_context(running_async(settings(state, *flags)))
    await until_async(lambda: gateway.metric("smg_worker_health") == count, 60)

    def all_ready() -> bool:
        listed = httpx.get(f"{theirs}/workers", timeout=5).json()["workers"]
        return sum(bool(each["is_healthy"]) for each in listed) == count

    await until_async(all_ready, 60)
    return Both(theirs, gateway.url, engines)


def chat(text: str = "hello", **headers: str) -> tuple[dict[str, Any], dict[str, str]]:
    model = "mock-model"
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 2}
    return body, {name.replace("_", "-"): value for name, value in headers.items()}


async def test_round_robin_takes_turns_in_the_order_of_the_flags(tmp_path):
    async with place(tmp_path, "round_robin") as at:
        theirs, ours = await at.both([chat()] * 12)
        for turns in (theirs, ours):
            assert turns[:ENGINES] * 3 == turns
            assert sorted(turns[:ENGINES]) == list(range(ENGINES))


async def test_consistent_hashing_puts_every_key_on_the_same_engine(tmp_path):
    async with place(tmp_path, "consistent_hashing") as at:
        theirs, ours = await at.both([chat(x_smg_routing_key=f"user-{number}") for number in range(60)])
        assert theirs == ours
        assert len(set(ours)) == ENGINES


async def test_a_target_is_an_index_and_one_that_does_not_exist_has_no_fallback(tmp_path):
    async with place(tmp_path, "consistent_hashing") as at:
        theirs, ours = await at.both([chat(x_smg_target_worker=str(number)) for number in (0, 1, 2, 3, 4, 2)])
        for targets in (theirs, ours):
            assert sorted(targets[:4]) == list(range(ENGINES))
            assert targets[4:] == [-1, targets[2]]


async def test_manual_keeps_a_key_where_it_was_first(tmp_path):
    async with place(tmp_path, "manual") as at:
        for turns in await at.both([chat(x_smg_routing_key=f"session-{number % 20}") for number in range(60)]):
            assert turns[:20] * 3 == turns
            assert len(set(turns)) > 1


async def test_prefix_hash_of_ids_chooses_the_same_engine(tmp_path):
    def ids(head: int, tail: int) -> tuple[dict[str, Any], dict[str, str]]:
        return {"input_ids": [head] * 256 + [tail] * 9, "sampling_params": {"max_new_tokens": 2}}, {}

    async with place(tmp_path, "prefix_hash") as at:
        theirs, ours = await at.both([ids(head, tail) for head in range(30) for tail in (1, 2)])
        assert ours[::2] == ours[1::2]
        assert theirs == ours


def key_of(text: str) -> str:
    """Our policy's key of a prompt."""
    key = PrefixHash(RoutingSettings(), Region.create(processes=1)).key(Query("mock-model", text=text))
    assert key is not None
    return key


async def test_prefix_hash_of_text_has_the_same_key_where_both_look_at_the_same_text(tmp_path):
    """Theirs takes the messages' texts, ours the members of the body as they were sent, which images and tools are in
    as well. Of the same text the keys are the same, and so are the engines.
    """
    heads = [f"{number} " + "abcdefghij " * 120 for number in range(15)]
    texts = [head + tail for head in heads for tail in ("one", "two")] + [f"short {number}" for number in range(15)]
    async with place(tmp_path, "prefix_hash") as at:
        ring = HashRing(at.urls)
        owners = [at.urls.index(next(ring.walk(key_of(text)))) for text in texts]
        theirs, ours = await at.both([chat(text) for text in texts])
        assert theirs == owners
        for chosen in (theirs, ours):
            assert chosen[:30:2] == chosen[1:30:2]
            assert len(set(chosen)) == ENGINES


async def test_prefix_hash_of_text_ends_at_characters_there_and_at_bytes_here(tmp_path):
    # 900 bytes of two and more each, which alone differ after the first 1,024 bytes.
    texts = ["é" * 900 + str(number) * 100 for number in range(30)]
    async with place(tmp_path, "prefix_hash") as at:
        assert len({key_of(text) for text in texts}) == 1
        theirs, ours = await at.both([chat(text) for text in texts])
        assert len(set(theirs)) > 1
        assert len(set(ours)) == 1


def text(size: int) -> tuple[dict[str, Any], dict[str, str]]:
    return {"text": "x" * size, "sampling_params": {"max_new_tokens": 2}}, {}


# Four lengths that make up as many characters each, and may each be told from the next by four characters.
LENGTHS = [400] * 8 + [800] * 4 + [1600] * 2 + [3200]
PERIOD_SECS = 2


async def learns(at: Both, url: str, goes_with: dict[int, int]) -> bool:
    """Whether the gateway at ``url``, taught by bursts of the lengths, divides them so that each has an engine of its
    own and those of ``goes_with`` go where the length does that they are mapped to.

    A burst is followed by more than a period of silence. Ours learns from it with the next request, theirs by a timer
    in the silence; should the timer strike within a burst, it sees a part of the lengths. The bursts' sizes differ by
    more than the factor of two that either takes for no change, so that the next one is learned from.
    """
    known = sorted(set(LENGTHS))
    for burst in range(6):
        lengths = LENGTHS * (1 if burst % 2 else 4)
        random.Random(burst).shuffle(lengths)
        await at.chosen(url, [text(length) for length in lengths])
        await asyncio.sleep(PERIOD_SECS + 0.3)
        asked = [*known, *goes_with]
        engine = dict(zip(asked, await at.chosen(url, [text(length) for length in asked]), strict=True))
        alone = len({engine[length] for length in known}) == ENGINES
        if alone and all(engine[length] == engine[like] for length, like in goes_with.items()):
            return True
        await asyncio.sleep(PERIOD_SECS + 0.3)
    return False


async def test_bucket_gives_each_prefill_engine_the_same_lengths_once_it_has_seen_them(tmp_path):
    """Until then theirs has one engine do everything. Of lengths between two that it has seen, theirs goes by the next
    longer one and ours by the next shorter.
    """
    # Loads do not matter here, and are counted differently: characters there, requests here.
    flags = ("--prefill-policy", "bucket", "--bucket-adjust-interval-secs", str(PERIOD_SECS))
    async with pairs(tmp_path, *flags, "--balance-abs-threshold", "1000000000") as at:
        theirs, ours = await at.both([text(length) for length in (100, 1500, 2500, 3500)])
        assert len(set(theirs)) == 1
        assert len(set(ours)) == ENGINES
        assert await learns(at, at.theirs, {396: 400, 404: 800, 796: 800, 804: 1600, 1604: 3200, 9000: 3200})
        assert await learns(at, at.ours, {396: 400, 404: 400, 796: 400, 804: 800, 1604: 1600, 9000: 3200})
