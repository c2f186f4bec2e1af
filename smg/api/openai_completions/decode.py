"""Decodes a completions request into a GenerationRequest."""

from collections.abc import Mapping

import msgspec

from smg.api.hints import hints
from smg.api.openai_completions.types import DEFAULT_MAX_TOKENS, CompletionBody
from smg.api.output_format import of_openai, path_of
from smg.api.prompts import either, put
from smg.api.sampling import UsageOptions, limits, refuse_openai, sampling, stop_rules, usage_options
from smg.core import wire
from smg.core.errors import GatewayError, bad_request
from smg.core.request import GenerationRequest, Logprobs


class CompletionOptions(msgspec.Struct, frozen=True):
    """What only the encoder of this dialect needs to know: ``n`` choices of each prompt are returned."""

    n: int = 1
    echo: bool = False
    logprobs: bool = False
    usage: UsageOptions = UsageOptions()


def decode(body: bytes, headers: Mapping[str, str]) -> GenerationRequest:
    """Decode and validate a body. Raises GatewayError (400) naming the field."""
    wired = wire.decode(body, CompletionBody)
    given = either(wired.prompt, "prompt")
    refuse_openai(wired)
    best_of = _best_of(wired)
    if wired.suffix and not _is_text(given):
        raise bad_request("suffix needs a prompt of text", "suffix")
    bound = of_openai(wired)
    request = GenerationRequest(
        dialect="openai_completions",
        model=wired.model or "",
        add_special_tokens=wired.add_special_tokens is not False,
        suffix=wired.suffix or None,
        sampling=sampling(wired),
        constraint=bound,
        constraint_path="" if bound is None else path_of(wired),
        stop=stop_rules(wired),
        limits=limits(wired.max_tokens, wired.min_tokens, DEFAULT_MAX_TOKENS),
        n=best_of,
        stream=bool(wired.stream),
        logprobs=_logprobs(wired, best_of),
        skip_special_tokens=wired.skip_special_tokens is not False,
        separate_reasoning=False,
        hints=hints(headers, dp_rank=wired.data_parallel_rank),
        lora=wired.lora_path or None,
        raw=body,
        options=CompletionOptions(wired.n or 1, bool(wired.echo), wired.logprobs is not None, usage_options(wired)),
    )
    put(request, given, "prompt")
    return request


def _is_text(given: object) -> bool:
    return isinstance(given[0] if isinstance(given, list) else given, str)


def _best_of(wired: CompletionBody) -> int:
    """How many choices of each prompt are generated."""
    n = wired.n or 1
    if wired.best_of is None:
        return n
    if wired.best_of < n:
        raise bad_request(f"best_of must be at least n ({n}), not {wired.best_of}", "best_of")
    if wired.stream and wired.best_of > n:
        raise GatewayError("unsupported_parameter", "best_of cannot be combined with stream", param="best_of")
    return wired.best_of


def _logprobs(wired: CompletionBody, best_of: int) -> Logprobs | None:
    """Choosing the best needs them too."""
    if wired.logprobs is not None:
        return Logprobs(wired.logprobs, prompt=bool(wired.echo))
    return Logprobs() if best_of > (wired.n or 1) else None
