"""A simple closed-loop load generator for OpenAI-compatible servers, on one event loop.

It is fair up to a few thousand events per second; beyond that the generator itself becomes what is measured.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

from smg.cli.load_report import Record, Report, summarize
from smg.cli.process_usage import Meter
from smg.core import clock

_WORDS = ("time", "light", "water", "house", "river", "green", "seven", "paper", "stone", "music", "north", "bread")
SAMPLE_SECONDS = 0.5


class Plan(msgspec.Struct, frozen=True):
    """What to send. ``prompt_tokens`` is approximate: common words, about one token each; ``timeout`` in seconds."""

    url: str
    model: str = ""
    api_key: str = ""
    concurrency: int = 8
    requests: int = 64
    warmup: int = 0
    prompt_tokens: int = 64
    max_tokens: int = 64
    stream: bool = True
    ignore_eos: bool = False
    temperature: float = 0.0
    timeout: float = 600.0
    pid: int | None = None


class LoadError(Exception):
    """The run cannot begin: nobody answers, no model is served, no such process."""


def body(plan: Plan, number: int) -> dict[str, Any]:
    """The chat completion request ``number``. Prompts differ from their first word on, so that no cache helps."""
    choose = random.Random(number)
    words = [f"Request {number}:", *(choose.choice(_WORDS) for _ in range(max(0, plan.prompt_tokens - 4)))]
    out: dict[str, Any] = {
        "model": plan.model,
        "messages": [{"role": "user", "content": " ".join(words)}],
        "max_tokens": plan.max_tokens,
        "temperature": plan.temperature,
        "stream": plan.stream,
    }
    if plan.stream:
        out["stream_options"] = {"include_usage": True}
    if plan.ignore_eos:
        out["ignore_eos"] = True
    return out


async def events(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The ``data`` of each server-sent event of a stream, as it arrives."""
    pending = b""
    async for chunk in content.iter_any():
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


async def _streamed(answer: aiohttp.ClientResponse, record: Record, began: float) -> None:
    """Read one streamed answer into ``record``; an answer without finish reason and end mark is an error."""
    last = 0.0
    pieces = 0
    finished = ended = False
    async for data in events(answer.content):
        if data == b"[DONE]":
            ended = True
            break
        event = msgspec.json.decode(data, type=dict[str, Any])
        if (error := event.get("error")) is not None:
            named = error if isinstance(error, dict) else {}
            record.error = f"error event {named.get('code') or named.get('type') or ''}".strip()
            return
        _count(event, record)
        for choice in event.get("choices") or ():
            finished = finished or choice.get("finish_reason") is not None
            delta = choice.get("delta") or {}
            if not (delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls")):
                continue
            now = clock.monotonic() - began
            if pieces:
                record.gaps.append(now - last)
            else:
                record.first = now
            last = now
            pieces += 1
    record.output_tokens = record.output_tokens or pieces
    if not (finished and ended):
        record.error = "stream ended early"


def _count(answer: dict[str, Any], record: Record) -> None:
    usage = answer.get("usage") or {}
    record.prompt_tokens = usage.get("prompt_tokens") or record.prompt_tokens
    record.output_tokens = usage.get("completion_tokens") or record.output_tokens


async def send(session: aiohttp.ClientSession, plan: Plan, number: int) -> Record:
    """Send one request and measure it; failures end in ``Record.error``, nothing is raised."""
    record = Record()
    began = clock.monotonic()
    try:
        async with session.post("/v1/chat/completions", json=body(plan, number)) as answer:
            if answer.status != 200:
                await answer.read()
                record.error = f"HTTP {answer.status} {answer.headers.get('x-smg-error-code', '')}".strip()
            elif plan.stream:
                await _streamed(answer, record, began)
            else:
                _count(msgspec.json.decode(await answer.read(), type=dict[str, Any]), record)
                record.first = clock.monotonic() - began
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
        record.error = type(error).__name__
    record.latency = clock.monotonic() - began
    return record


async def _first_model(session: aiohttp.ClientSession, plan: Plan) -> str:
    try:
        async with session.get("/v1/models") as answer:
            listed = msgspec.json.decode(await answer.read())
            if answer.status != 200:
                raise LoadError(f"{plan.url}/v1/models answers {answer.status}")
            return str(listed["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise LoadError(f"nobody answers at {plan.url}: {error}") from None
    except (msgspec.MsgspecError, LookupError, TypeError):
        raise LoadError(f"{plan.url} serves no model; name one with --model") from None


async def _watch(meter: Meter) -> None:
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        meter.sample()


async def run(plan: Plan) -> Report:
    """Run the plan: ``warmup`` requests that don't count, then ``requests``, ``concurrency`` at a time.

    Raises:
        LoadError: see there. Failing requests don't raise, they are counted in the report.
    """
    headers = {"authorization": f"Bearer {plan.api_key}"} if plan.api_key else {}
    limits = aiohttp.ClientTimeout(total=plan.timeout)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(plan.url, headers=headers, timeout=limits, connector=connector) as session:
        if not plan.model:
            plan = msgspec.structs.replace(plan, model=await _first_model(session, plan))
        numbers = itertools.count()
        await _drive(session, plan, numbers, plan.warmup)
        try:
            meter = Meter(plan.pid) if plan.pid is not None else None
        except ProcessLookupError as error:
            raise LoadError(str(error)) from None
        watcher = asyncio.create_task(_watch(meter)) if meter else None
        began = clock.monotonic()
        records = await _drive(session, plan, numbers, plan.requests)
        seconds = clock.monotonic() - began
        if watcher:
            watcher.cancel()
    try:
        usage = meter.usage() if meter else None
    except ProcessLookupError as error:
        raise LoadError(f"{error} any more") from None
    return summarize(
        records,
        url=plan.url,
        model=plan.model,
        streamed=plan.stream,
        concurrency=plan.concurrency,
        seconds=seconds,
        usage=usage,
    )


async def _drive(
    session: aiohttp.ClientSession, plan: Plan, numbers: "itertools.count[int]", requests: int
) -> list[Record]:
    records: list[Record] = []
    left = iter(range(requests))

    async def client() -> None:
        for _ in left:
            records.append(await send(session, plan, next(numbers)))

    await asyncio.gather(*(client() for _ in range(min(plan.concurrency, requests))))
    return records
