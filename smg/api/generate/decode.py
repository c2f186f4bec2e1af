"""Decodes a native generate request into a GenerationRequest."""

from collections.abc import Mapping

import msgspec

from smg.api import attachments, prompts
from smg.api.generate.types import DEFAULT_MAX_TOKENS, GenerateBody, SamplingParams
from smg.api.hints import hints
from smg.api.output_format import constraint, path_of
from smg.api.sampling import limits, refuse, refuse_sampling, sampling, stop_rules
from smg.core import wire
from smg.core.errors import GatewayError, bad_request
from smg.core.ids import acceptable
from smg.core.request import GenerationRequest, Logprobs

# Stop strings of one request.
MAX_STOPS = 64

_UNSUPPORTED = (
    *("token_ids_logprob", "input_embeds", "lora_path", "lora_id"),
    *("custom_logit_processor", "return_hidden_states", "session_params"),
    *("bootstrap_host", "bootstrap_port", "bootstrap_room"),
)
_PARAMS = "sampling_params"
_LIMITS = (f"{_PARAMS}.max_new_tokens", f"{_PARAMS}.min_new_tokens")


class GenerateOptions(msgspec.Struct, frozen=True):
    """What only the encoder of this dialect needs to know.

    ``ids`` are the client's own request ids, one per prompt or none. ``start`` is the first prompt token whose log
    probability is returned, None for none of them. ``several`` tells that the answer is a list.
    """

    ids: tuple[str, ...] = ()
    several: bool = False
    start: int | None = None
    texts: bool = False
    incremental: bool = False


def decode(body: bytes, headers: Mapping[str, str]) -> GenerationRequest:
    """Decode and validate a body. Raises GatewayError (400) naming the field."""
    wired = wire.decode(body, GenerateBody)
    refuse(wired, _UNSUPPORTED)
    given, path = _prompt(wired)
    params = wired.sampling_params or SamplingParams()
    refuse_sampling(params, _PARAMS)
    bound = constraint(
        regex=params.regex,
        ebnf=params.ebnf,
        json_schema=params.json_schema,
        structural_tag=params.structural_tag,
        path=_PARAMS,
    )
    request = GenerationRequest(
        dialect="generate",
        model=wired.model or "",
        sampling=sampling(params, _PARAMS),
        constraint=bound,
        constraint_path="" if bound is None else path_of(params, _PARAMS),
        stop=stop_rules(params, _PARAMS, MAX_STOPS),
        limits=limits(params.max_new_tokens, params.min_new_tokens, DEFAULT_MAX_TOKENS, _LIMITS),
        n=params.n or 1,
        stream=bool(wired.stream),
        logprobs=_logprobs(wired),
        return_ids=True,
        skip_special_tokens=params.skip_special_tokens is not False,
        separate_reasoning=False,
        hints=hints(headers, dp_rank=wired.data_parallel_rank),
        raw=body,
    )
    prompts.put(request, given, path)
    _attach(request, wired)
    request.options = _options(wired, request)
    return request


def _attach(request: GenerationRequest, wired: GenerateBody) -> None:
    """Put the media of the body, which are of one kind, beside the prompts."""
    for kind in ("image", "audio", "video"):
        name = f"{kind}_data"
        value = getattr(wired, name)
        if value is not None and request.attachments:
            message = f"{request.attachments_path} and {name} in one request are not supported"
            raise GatewayError("unsupported_parameter", message, param=name)
        if value is not None:
            request.attachments = attachments.media(value, max(1, len(request.prompts)), name, kind)
            request.attachments_path = name


def _prompt(wired: GenerateBody) -> tuple[prompts.Texts | prompts.Ids, str]:
    if wired.text is not None and wired.input_ids is not None:
        raise bad_request("only one of text and input_ids is allowed", "input_ids")
    if wired.input_ids is not None:
        return prompts.ids(wired.input_ids, "input_ids"), "input_ids"
    if wired.text is None:
        raise bad_request("one of text and input_ids is needed", "text")
    return prompts.texts(wired.text, "text"), "text"


def _logprobs(wired: GenerateBody) -> Logprobs | None:
    if not wired.return_logprob:
        return None
    return Logprobs(wired.top_logprobs_num or 0, prompt=_start(wired) is not None)


def _start(wired: GenerateBody) -> int | None:
    start = wired.logprob_start_len
    return None if start is None or start < 0 else start


def _options(wired: GenerateBody, request: GenerationRequest) -> GenerateOptions:
    several = bool(request.prompts) or request.n > 1
    return GenerateOptions(
        ids=_ids(wired.rid, len(request.prompts)),
        several=several,
        start=_start(wired),
        texts=bool(wired.return_text_in_logprobs),
        incremental=wired.stream_output == "incremental",
    )


def _ids(rid: str | list[str] | None, prompt_count: int) -> tuple[str, ...]:
    """``prompt_count`` is 0 when the body has one prompt rather than a list."""
    if rid is None:
        return ()
    if isinstance(rid, list) and len(rid) != prompt_count:
        raise bad_request(f"{len(rid)} ids do not fit {prompt_count or 'a single'} prompt(s)", "rid")
    found = (rid,) if isinstance(rid, str) else tuple(rid)
    for index, name in enumerate(found):
        if not acceptable(name):
            where = "rid" if isinstance(rid, str) else f"rid[{index}]"
            raise bad_request("an id is 1 to 128 visible ASCII characters", where)
    return found
