"""What a mock engine does: the tokens it answers with, its pace, its quirks and its faults."""

import hashlib
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, cast

import grpc
import msgspec

from smg.engine_server.mock import tokenizer
from smg.engine_server.mock.ask import Ask

Kind: TypeAlias = Literal["status", "stall", "eof"]
_FAULT = re.compile(r"(status|stall|eof)(?:@([0-9]{1,9}))?")

Tokens: TypeAlias = Sequence[int] | Callable[[Any, int], Sequence[int]]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong.

    ``kind`` for Generate: ``status`` ends the call with ``status``, ``message`` and ``trailers``; ``stall`` sends
    nothing more until the call is cancelled or aborted; ``eof`` ends it with OK but without Complete. All happen after
    ``after_chunks`` messages with tokens (0: after early headers, before the first message; None: before headers).
    Any other ``rpc`` (``GetModelInfo``, ``GetTokenizer``, ``Abort``, …) knows ``status`` and ``stall``, before
    headers. ``first`` limits the fault to the first so many calls of that RPC since the script was set.
    """

    rpc: str = "Generate"
    kind: Kind = "status"
    after_chunks: int | None = None
    status: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    message: str = "scripted failure"
    trailers: tuple[tuple[str, str], ...] = ()
    first: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """A fault of Generate as the command line says it: ``KIND`` or ``KIND@N`` (after N messages with tokens).

        Raises:
            ValueError: it is neither.
        """
        found = _FAULT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a fault: status, stall or eof, with @N after N messages")
        kind, after = found.groups()
        return cls(kind=cast("Kind", kind), after_chunks=None if after is None else int(after))


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of a mock engine; replace ``MockEngine.script`` at any time (running calls keep the one they have).

    Tokens: ``tokens`` are the ids of every choice, a function ``(GenerateRequest, choice) -> ids``, or None for words
    that depend only on the prompt and the choice; ``choices`` gives each choice its own ids instead. ``length`` is the
    number of ids when ``tokens`` is None. ``eos`` appends the end-of-sequence id, as a model that stops does; with
    ``ignore_eos`` the ids repeat up to ``max_tokens``.

    Pace: ``per_chunk`` ids per message; ``first_delay`` seconds before the first message and ``chunk_delay`` before
    each further one. An encode engine takes ``first_delay`` for an item.

    Reports: ``finish`` and ``matched_stop`` replace what follows from the ids; ``cached_tokens`` is reported in all
    messages, or from the second on (``late_cached``); ``empty_chunks`` puts a message without ids before each one that
    has some. ``complete_ids`` (what the Complete of a stream repeats) and ``delta_counts`` replace the contract's own
    ways. ``reasoning_tokens``, ``spec_tokens`` (accepted, drafted) and ``weight_version`` are told where the contract
    has a place for them.

    Checks: ``strict`` refuses sampling scalars that a client forgot to set (a zero top_p, repetition_penalty or n), as
    the real engines do.

    Engine: ``healthy`` and ``serving`` are the answers of HealthCheck and grpc.health.v1, the former after
    ``health_delay`` seconds; ``startup_delay`` makes the engine unready for so many seconds after ``start``.
    ``waiting`` and ``token_usage`` go into GetLoads. ``embedding`` is the vector that Embed returns, or
    the length of one that depends on the prompt.
    ``bundle`` and ``bundle_digest`` replace the tokenizer archive and its SHA-256; ``bundle_chunk`` (bytes) the
    contract's own size of chunks. ``vocab_size`` is that of the bundle's tokenizer.
    ``shm_namespace`` replaces the true name of the shared memory that tensors may come by; without ``unlinks`` the
    engine leaves their files where they are.
    """

    tokens: Tokens | None = None
    choices: Sequence[Sequence[int]] | None = None
    length: int = 8
    eos: bool = True
    per_chunk: int = 1
    first_delay: float = 0.0
    chunk_delay: float = 0.0
    finish: str | None = None
    matched_stop: int | str | None = None
    cached_tokens: int = 0
    late_cached: bool = False
    empty_chunks: bool = False
    complete_ids: Literal["delta", "all", "none"] | None = None
    delta_counts: bool | None = None
    reasoning_tokens: int = 0
    spec_tokens: tuple[int, int] = (0, 0)
    weight_version: str = ""
    strict: bool = True
    faults: tuple[Fault, ...] = ()
    healthy: bool = True
    serving: bool = True
    health_delay: float = 0.0
    startup_delay: float = 0.0
    waiting: int = 0
    token_usage: float = 0.0
    embedding: int | Sequence[float] = 8
    bundle: bytes | None = None
    bundle_digest: str | None = None
    bundle_chunk: int | None = None
    vocab_size: int = tokenizer.VOCAB_SIZE
    shm_namespace: str | None = None
    unlinks: bool = True

    @classmethod
    def text(cls, *texts: str, split: Literal["byte", "word"] = "word", **rest: Any) -> "Script":
        """Answer with ``texts``: one for all choices, or one for each. ``rest`` are other fields."""
        ids = [tokenizer.encode_text(text, split) for text in texts]
        return cls(tokens=ids[0], **rest) if len(ids) == 1 else cls(choices=ids, **rest)


class Choice(msgspec.Struct):
    """What one choice will send: ``ids`` in order, then ``finish`` and ``matched_stop``."""

    ids: list[int]
    finish: str
    matched_stop: int | str | None = None


def plan(script: Script, ask: Ask, index: int) -> Choice:
    """Work out choice ``index`` of ``ask``.

    The order of the checks is vLLM's: min_tokens, end of sequence, stop ids, max_tokens.
    """
    limit = ask.max_tokens
    ids = _wanted(script, ask, index)
    if ask.ignore_eos:
        while limit is not None and ids and len(ids) < limit:
            ids = (ids + ids)[:limit]
    elif script.eos and script.finish is None:
        ids = [*ids, tokenizer.EOS]

    end = _end(ids, ask)
    if script.finish is not None:
        end.finish = script.finish
    if script.matched_stop is not None:
        end.matched_stop = script.matched_stop
    return end


def _end(ids: list[int], ask: Ask) -> Choice:
    """Where the choice ends; the token it ends on stays only where the request wants it."""
    for count, token in enumerate(ids, 1):
        kept = count if ask.keep_stop else count - 1
        if count >= ask.min_tokens and token == tokenizer.EOS and not ask.ignore_eos:
            return Choice(ids[:kept], "stop")
        if count >= ask.min_tokens and token in ask.stop_ids:
            return Choice(ids[:kept], "stop", token)
        if count == ask.max_tokens:
            return Choice(ids[:count], "length")
    return Choice(ids, "stop")


def _wanted(script: Script, ask: Ask, index: int) -> list[int]:
    if script.choices is not None:
        return list(script.choices[index % len(script.choices)])
    if script.tokens is None:
        return prompt_words(ask.prompt, index, script.length)
    if callable(script.tokens):
        return list(script.tokens(ask.request, index))
    return list(script.tokens)


def prompt_words(prompt: Sequence[int], index: int, count: int) -> list[int]:
    """Return ``count`` word ids that are a pure function of the prompt ids and the choice."""
    words = sorted(tokenizer.WORD_IDS.values())
    seed = hashlib.sha256(struct.pack(f"<{len(prompt) + 1}I", index, *prompt)).digest()
    return [words[(seed[place % 32] + place * (1 + seed[-1])) % len(words)] for place in range(count)]
