"""Body fields that all dialects of generations on engines share: sampling, stops, limits, stream options.

The limits of a field are part of its type, so that decoding checks them and the OpenAPI document shows them (spec
api-and-ops 1.5; text-pipeline 17).
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from smg.core.errors import GatewayError, bad_request
from smg.core.request import Limits, Sampling, StopRules
from smg.core.wire import join

MAX_STOPS = 4
MAX_BIAS = 100
INT32 = 2**31 - 1

Temperature: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
TopP: TypeAlias = Annotated[float, Meta(gt=0, le=1)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]
RepetitionPenalty: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
TopK: TypeAlias = Annotated[int, Meta(ge=-1, le=INT32, description="-1 for all, or at least 1")]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=INT32)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=INT32)]
Token: TypeAlias = Annotated[int, Meta(ge=0, le=INT32, description="a token id")]
Stop: TypeAlias = Annotated[
    str | list[str],
    Meta(
        description="strings that end the output",
        extra_json_schema={"minLength": 1, "items": {"type": "string", "minLength": 1}, "maxItems": MAX_STOPS},
    ),
]
LogitBias: TypeAlias = Annotated[
    dict[str, float],
    Meta(
        description="token ids, as strings, and their bias",
        extra_json_schema={
            "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": {"type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS},
        },
    ),
]
ResponseFormat: TypeAlias = Annotated[
    Any,
    Meta(
        description="the form of the output; json_schema has a name and a schema",
        extra_json_schema={
            "type": ["object", "null"],
            "required": ["type"],
            "properties": {
                "type": {"enum": ["text", "json_object", "json_schema", "structural_tag"]},
                "json_schema": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string", "minLength": 1}, "schema": {"type": "object"}},
                },
            },
        },
    ),
]
Schema: TypeAlias = Annotated[str | dict[str, Any], Meta(description="an object, or its JSON text")]
StructuredOutputs: TypeAlias = Annotated[
    Any,
    Meta(
        description="vLLM's constraints on the output, one of them",
        extra_json_schema={
            "type": ["object", "null"],
            "properties": {
                "json": {"type": ["object", "string"]},
                "json_object": {"type": "boolean"},
                "regex": {"type": "string"},
                "grammar": {"type": "string"},
                "choice": {"type": "array", "items": {"type": "string"}},
                "structural_tag": {"type": ["object", "string"]},
            },
        },
    ),
]
Unsupported: TypeAlias = Annotated[
    Any, Meta(description="not supported: refused unless empty", extra_json_schema={"enum": [None, False]})
]

Refused: TypeAlias = Annotated[
    Any, Meta(description="not supported: refused, empty values as well", extra_json_schema={"enum": [None, False]})
]


class StreamOptions(msgspec.Struct):
    """``continuous_usage_stats`` asks for running usage in each event; it needs ``include_usage``."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class UsageOptions(msgspec.Struct, frozen=True):
    """Where a stream tells the usage: in an event of its own at the end, and in each event as well."""

    include: bool = False
    continuous: bool = False


# Fields of engines that would change the answer and that nothing implements.
_UNSUPPORTED_SAMPLING = (
    *("allowed_token_ids", "bad_words", "use_beam_search", "truncate_prompt_tokens"),
    *("stop_regex", "custom_params"),
)
_UNSUPPORTED_OPENAI = (
    *("return_hidden_states", "session_params", "custom_logit_processor", "logits_processors"),
    *("return_token_ids", "return_tokens_as_token_ids"),
)


class SamplingBody(msgspec.Struct):
    """Sampling and stops; ``regex`` and ``ebnf`` bound the output.

    ``include_stop_str_in_output`` is vLLM's name of ``no_stop_trim``.
    """

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    logit_bias: LogitBias | None = None
    seed: int | None = None
    sampling_seed: int | None = None
    stop: Stop | None = None
    stop_token_ids: list[Token] | None = None
    no_stop_trim: bool | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    allowed_token_ids: Unsupported = None
    bad_words: Unsupported = None
    use_beam_search: Unsupported = None
    truncate_prompt_tokens: Unsupported = None
    stop_regex: Unsupported = None
    custom_params: Unsupported = None


class OpenAIBody(SamplingBody):
    """What chat completions and completions have in common besides."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    min_tokens: Count | None = None
    response_format: ResponseFormat = None
    json_schema: Schema | None = None
    structural_tag: Schema | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_grammar: str | None = None
    guided_choice: list[str] | None = None
    structured_outputs: StructuredOutputs = None
    lora_path: str | None = None
    return_hidden_states: Unsupported = None
    session_params: Unsupported = None
    custom_logit_processor: Unsupported = None
    logits_processors: Unsupported = None
    return_token_ids: Unsupported = None
    return_tokens_as_token_ids: Unsupported = None
    prompt_logprobs: Refused = None
    data_parallel_rank: Count | None = None


def sampling(body: SamplingBody, path: str = "") -> Sampling:
    """The sampling parameters; ``path`` is where the body has them. Raises GatewayError naming the field."""
    if body.top_k == 0:
        raise bad_request("top_k must be -1 or at least 1, not 0", join(path, "top_k"))
    return Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        repetition_penalty=body.repetition_penalty,
        seed=body.seed if body.seed is not None else body.sampling_seed,
        logit_bias=_logit_bias(body.logit_bias, join(path, "logit_bias")) if body.logit_bias else {},
    )


def stop_rules(body: SamplingBody, path: str = "", most: int = MAX_STOPS) -> StopRules:
    """What ends a choice; ``most`` strings are allowed. Raises GatewayError naming the field."""
    where = join(path, "stop")
    strings = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(strings) > most:
        raise bad_request(f"at most {most} stop strings are allowed, not {len(strings)}", where)
    for index, text in enumerate(strings):
        if not text:
            raise bad_request(
                "a stop string must not be empty", where if isinstance(body.stop, str) else f"{where}[{index}]"
            )
    return StopRules(
        strings=tuple(strings),
        ids=tuple(body.stop_token_ids or ()),
        visible=bool(body.no_stop_trim or body.include_stop_str_in_output),
        ignore_eos=bool(body.ignore_eos),
    )


def usage_options(body: OpenAIBody) -> UsageOptions:
    """Decode ``stream_options``. Raises GatewayError when there is no stream."""
    options = body.stream_options
    if options is None:
        return UsageOptions()
    if not body.stream:
        raise bad_request("stream_options needs stream to be true", "stream_options")
    # Without include_usage the other option has no effect (field case OA-04).
    include = bool(options.include_usage)
    return UsageOptions(include, include and bool(options.continuous_usage_stats))


def limits(
    most: int | None,
    least: int | None,
    usual: int | None = None,
    paths: tuple[str, str] = ("max_tokens", "min_tokens"),
) -> Limits:
    """The limits of a choice; ``usual`` is what generates at most when the client names no limit.

    ``paths`` are where the body has ``most`` and ``least``.

    Raises:
        GatewayError: ``least`` does not fit into ``most``.
    """
    least = least or 0
    if most is not None and least > most:
        raise bad_request(f"at least {least} tokens are more than the limit of {most}", paths[1])
    return Limits(most, least, None if usual is None else max(usual, least), paths)


def refuse(body: msgspec.Struct, names: tuple[str, ...], given: tuple[str, ...] = (), path: str = "") -> None:
    """Refuse fields that would change the answer and that nothing implements, rather than ignore them.

    ``names`` are refused unless they are empty, zero or false. ``given`` are refused unless they are null or false:
    their empty values ask for something as well. ``path`` is where the body is.

    Raises:
        GatewayError: ``unsupported_parameter`` naming the first that is set.
    """
    values, unset = _values((*names, *given))
    if values(body) == unset:
        return
    asked = [name for name in names if getattr(body, name)]
    asked += [name for name in given if getattr(body, name) is not None and getattr(body, name) is not False]
    if asked:
        raise GatewayError("unsupported_parameter", f"{asked[0]} is not supported", param=join(path, asked[0]))


@cache
def _values(names: tuple[str, ...]) -> tuple[Callable[[msgspec.Struct], Any], Any]:
    """What gives the values of these fields at once, and what it gives where none of them is in the body.

    Every request is asked for dozens that hardly any has.
    """
    return attrgetter(*names), (None,) * len(names) if len(names) > 1 else None


def refuse_sampling(body: SamplingBody, path: str = "") -> None:
    """Refuse what no dialect supports beside sampling and stops. Raises GatewayError as ``refuse``."""
    refuse(body, _UNSUPPORTED_SAMPLING, path=path)


def refuse_openai(body: OpenAIBody) -> None:
    """Refuse what neither chat completions nor completions support. Raises GatewayError as ``refuse``."""
    refuse_sampling(body)
    # With 0 the prompt's log probabilities are asked for, only no candidates beside them.
    refuse(body, _UNSUPPORTED_OPENAI, given=("prompt_logprobs",))


def _logit_bias(given: dict[str, float], path: str) -> dict[int, float]:
    out = {}
    for key, value in given.items():
        token = int(key) if key.isascii() and key.isdigit() and len(key) <= len(str(INT32)) else INT32 + 1
        if token > INT32:
            raise bad_request("the keys of logit_bias are token ids", path)
        if not -MAX_BIAS <= value <= MAX_BIAS:
            raise bad_request(f"a bias must be between {-MAX_BIAS} and {MAX_BIAS}, not {value}", join(path, key))
        out[token] = value
    return out
