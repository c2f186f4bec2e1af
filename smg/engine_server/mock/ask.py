"""What the mock engine is asked and what it tells, in words that are no contract's own."""

from collections.abc import Sequence
from typing import Any

import msgspec


class Ask(msgspec.Struct, frozen=True):
    """One Generate request, read.

    ``max_tokens`` None means to the end of the script. ``keep_stop``: the token that ends a choice stays among its ids.
    ``logprobs`` and ``prompt_logprobs`` count candidates (0: the token itself only, -1: as many as there are, None: not
    wanted). ``request`` is the message.
    """

    id: str
    prompt: Sequence[int]
    stream: bool
    request: Any
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    keep_stop: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None


class Part(msgspec.Struct, frozen=True):
    """What one message tells of a choice: a chunk its new ids, the Complete what its contract repeats.

    ``finish`` belongs to the Complete. ``prompt`` has the prompt's ids when the message is to bring their log
    probabilities. ``spec_tokens`` are accepted and drafted ones, ``kv_params`` what a prefill engine
    returns for the decode engine.
    """

    ask: Ask
    index: int
    ids: Sequence[int]
    completion_tokens: int
    cached_tokens: int = 0
    prompt: Sequence[int] | None = None
    finish: str | None = None
    matched: int | str | None = None
    reasoning_tokens: int = 0
    spec_tokens: tuple[int, int] = (0, 0)
    weight_version: str = ""
    kv_params: str = ""


class Report(msgspec.Struct, frozen=True):
    """What the engine says of itself. ``uptime`` is in seconds, ``usage`` the share of its cache that is in use.

    ``bootstrap_port`` and ``engine_id`` are for the other engine of a pair, ``connector`` is how vLLM hands over.
    ``shm_namespace`` names the shared memory it reads.
    """

    model: str
    context_length: int
    vocab_size: int
    eos: int
    pad: int
    bos: int
    default_sampling: str = ""
    generates: bool = True
    running: int = 0
    waiting: int = 0
    used_tokens: int = 0
    usage: float = 0.0
    uptime: float = 0.0
    role: str = "regular"
    bootstrap_port: int = 0
    connector: str = ""
    engine_id: str = ""
    shm_namespace: str = ""


class Refused(Exception):
    """The request is refused as INVALID_ARGUMENT; the text is the status' message."""
