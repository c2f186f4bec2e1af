"""Messages of vLLM's engine core: arrays whose fields go by position (spec engine-contract 6.4 and 6.5)."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from smg.core import clock
from smg.core.backends import EngineRequest
from smg.core.batch import TokenBatch, TokenLogprobs
from smg.core.request import Constraint
from smg.engines import constraints, numbers
from smg.engines.base import EngineLoad
from smg.engines.capabilities import CONSTRAINTS
from smg.engines.zmq.frames import Step, Told, UtilityOutput, check, child
from smg.engines.zmq.tensors import RAW_VIEW, Behind
from smg.engines.zmq.vllm_media import features

if TYPE_CHECKING:
    import numpy as np

UTILITY = b"\x03"

_FINISHES = ("stop", "length", "abort", "error", "stop")
_INT64 = (-(2**63), 2**63 - 1)
# Constraint kinds by the names they have here, and who enforces them: the engine core does not choose.
_STRUCTURED: Mapping[str, str] = {
    "json_schema": "json",
    "json_object": "json_object",
    "regex": "regex",
    "grammar": "grammar",
    "structural_tag": "structural_tag",
    "choice": "choice",
}
_encoder = msgspec.msgpack.Encoder()


def add(request: EngineRequest, choice: int, client: int, told: Told) -> list[Any]:
    """The frames of an ADD: choice ``choice`` of ``request``, from process ``client`` of the gateway.

    Raises:
        GatewayError: ``invalid_value``, ``unsupported_parameter`` or ``context_length_exceeded`` (400): the engine core
            may die of what it is not prepared for.
    """
    check(request, told.longest)
    behind = Behind()
    fields: list[Any] = [None] * 20
    fields[0] = child(request, choice)
    fields[1] = list(request.ids)
    fields[2] = None if request.media is None else features(request.media, told.dtype, behind)
    fields[3] = _sampling(request, choice, told.longest)
    fields[5] = clock.wall()
    fields[8] = request.dp_rank
    fields[11] = client
    fields[12] = fields[13] = 0
    fields[14] = {"traceparent": request.trace} if request.trace else None
    fields[15] = False
    fields[16] = request.id
    fields[19] = False
    return [_encoder.encode(fields), *behind.frames]


def utility(client: int, call: int, method: str, arguments: Sequence[Any] = ()) -> bytes:
    """The payload of a UTILITY call."""
    return _encoder.encode([client, call, method, list(arguments)])


def _sampling(request: EngineRequest, choice: int, longest: int) -> dict[str, Any]:
    """The sampling map; an absent key means the engine's default, and that of max_tokens is 16."""
    limit = numbers.max_tokens(request)
    stops = numbers.stop_ids(request)
    seed = request.sampling.seed
    params: dict[str, Any] = {
        "temperature": numbers.temperature(request),
        "top_p": numbers.top_p(request),
        "top_k": numbers.top_k(request, off=0),
        "min_p": numbers.min_p(request),
        "frequency_penalty": numbers.frequency_penalty(request),
        "presence_penalty": numbers.presence_penalty(request),
        "repetition_penalty": numbers.repetition_penalty(request),
        "min_tokens": numbers.min_tokens(request),
        "max_tokens": limit if limit is not None else max(longest - len(request.ids), 1),
        # The model's own end is among these: the engine core has no tokenizer to know it from.
        "stop_token_ids": stops,
        "_all_stop_token_ids": stops,
    }
    if seed is not None:
        params["seed"] = min(max(seed + choice, _INT64[0]), _INT64[1])
    if request.sampling.logit_bias:
        params["logit_bias"] = numbers.logit_bias(request)
    if request.logprobs is not None:
        params["logprobs"] = request.logprobs.top
        if request.logprobs.prompt:
            params["prompt_logprobs"] = request.logprobs.top
    if request.constraint is not None:
        params["structured_outputs"] = _structured(constraints.checked(request.constraint))
    return params


def _structured(constraint: Constraint) -> dict[str, Any]:
    name = _STRUCTURED.get(constraint.kind)
    if name is None:
        raise constraints.unknown(constraint)
    value: Any = constraint.value
    if name == "choice":
        value = list(constraint.choices)
    elif name == "json_object":
        value = True
    return {name: value, "_backend": "xgrammar" if name == "structural_tag" else "guidance"}


class Output(msgspec.Struct, array_like=True):
    """What one step brought for one request; trailing elements may be missing."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Any = None
    new_prompt_logprobs: Any = None
    pooling_output: Any = None
    finish_reason: int | None = None
    stop_reason: int | str | None = None
    events: Any = None
    kv_transfer_params: Any = None
    ec_transfer_params: Any = None
    trace_headers: Any = None
    prefill_stats: dict[str, Any] | None = None


class Outputs(msgspec.Struct, array_like=True):
    """One message: what a step brought for all requests of one client."""

    engine_index: int = 0
    outputs: list[Output] = msgspec.field(default_factory=list)
    scheduler_stats: dict[str, Any] | None = None
    timestamp: float = 0.0
    utility_output: UtilityOutput | None = None
    finished_requests: list[str] | None = None


def _extension(code: int, data: memoryview) -> Any:
    return bytes(data) if code == RAW_VIEW else None


_decoder = msgspec.msgpack.Decoder(Outputs, ext_hook=_extension)


class VllmWire:
    """The ``Wire`` of vLLM's engine core."""

    runtime: ClassVar[str] = "vllm"
    capabilities: ClassVar[frozenset[str]] = CONSTRAINTS | {
        *("generate", "n", "seed", "logit_bias", "min_tokens", "logprobs", "prompt_logprobs", "flush_cache"),
        *("image", "video"),
    }

    def add(self, request: EngineRequest, choice: int, client: int, told: Told) -> list[Any]:
        return add(request, choice, client, told)

    def step(self, frames: Sequence[bytes]) -> Step:
        try:
            message = _decoder.decode(frames[0])
        except (msgspec.MsgspecError, IndexError) as error:
            raise ValueError(str(error)) from None
        stats = message.scheduler_stats
        outputs = [(output.request_id, output) for output in message.outputs]
        return Step(outputs, None if stats is None else load(stats), message.utility_output)

    def tokens(self, output: Any) -> tuple[list[int], int, int] | None:
        assert isinstance(output, Output)
        if output.finish_reason is not None or output.stop_reason is not None:
            return None
        if output.new_logprobs is not None or output.new_prompt_logprobs is not None:
            return None
        told = output.prefill_stats
        if told is None:
            return output.new_token_ids, 0, 0
        return output.new_token_ids, _count(told, "num_prompt_tokens"), _count(told, "num_cached_tokens")

    def batch(self, output: Any, choice: int, request: EngineRequest, frames: Sequence[bytes]) -> TokenBatch:
        return batch(output, choice, request, frames)


def batch(output: Output, choice: int, request: EngineRequest, frames: Sequence[bytes]) -> TokenBatch:
    """One output as a batch. Raises ValueError for tensors that are none."""
    told = output.prefill_stats or {}
    top = request.logprobs.top if request.logprobs is not None else None
    made = TokenBatch(
        index=choice,
        ids=output.new_token_ids,
        prompt_tokens=_count(told, "num_prompt_tokens"),
        cached_tokens=_count(told, "num_cached_tokens"),
        matched_stop=output.stop_reason,
    )
    if output.finish_reason is not None:
        known = 0 <= output.finish_reason < len(_FINISHES)
        made.finish = _FINISHES[output.finish_reason] if known else "stop"
    if top is not None and output.new_logprobs is not None:
        made.logprobs = _rows(output.new_logprobs, top, frames)
    if top is not None and output.new_prompt_logprobs is not None:
        # The first prompt token has no probability, and no row here either.
        rows = _rows(output.new_prompt_logprobs, top, frames)
        made.prompt_logprobs = [TokenLogprobs(request.ids[0], None), *rows]
    return made


def load(stats: Mapping[str, Any]) -> EngineLoad:
    """The load as the scheduler told it with a step."""
    cache = stats.get("prefix_cache_stats")
    queries, hits = (_count(cache, "queries"), _count(cache, "hits")) if isinstance(cache, dict) else (0, 0)
    usage = stats.get("kv_cache_usage")
    return EngineLoad(
        running=_count(stats, "num_running_reqs"),
        waiting=_count(stats, "num_waiting_reqs"),
        usage=float(usage) if isinstance(usage, int | float) else 0.0,
        cache_hit_rate=hits / queries if queries else 0.0,
    )


def _rows(tensors: Any, top: int, frames: Sequence[bytes]) -> list[TokenLogprobs]:
    """Rows of log probabilities: column 0 is the sampled token, the best follow."""
    if not isinstance(tensors, list) or len(tensors) < 2:
        raise ValueError("log probabilities are at least two tensors")
    ids, values = _array(tensors[0], frames), _array(tensors[1], frames)
    if ids.ndim != 2 or ids.shape != values.shape:
        raise ValueError("log probabilities of an odd shape")
    rows = []
    for tokens, probs in zip(ids.tolist(), values.tolist(), strict=True):
        best = dict(zip(tokens[1 : top + 1], probs[1 : top + 1], strict=True))
        rows.append(TokenLogprobs(tokens[0], probs[0], tuple(best.items())))
    return rows


def _array(tensor: Any, frames: Sequence[bytes]) -> "np.ndarray[Any, Any]":
    """A tensor: ``[dtype, shape, bytes or number of the frame they are in]``."""
    # Only engine cores that are asked for log probabilities need it.
    import numpy as np

    try:
        kind, shape, data = tensor
        raw = frames[data] if isinstance(data, int) else data
        return np.frombuffer(raw, np.dtype(kind)).reshape(shape)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"not a tensor: {error}") from None


def _count(told: Mapping[str, Any], name: str) -> int:
    value = told.get(name)
    return value if isinstance(value, int) and 0 <= value < sys.maxsize else 0
