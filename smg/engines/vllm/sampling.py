"""SamplingParams of the vLLM contract: every scalar is always set (spec engine-contract 2.3).

Proto3 scalars without presence default to zero and the servicer passes zeros through: a top_p, repetition_penalty or n
of zero breaks the generation. So what the client left out gets its neutral value here, explicitly.
"""

import math

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.core.backends import EngineRequest
from smg.core.errors import GatewayError, bad_request
from smg.core.request import Constraint

_INT32 = (-(2**31), 2**31 - 1)
_UINT32_MAX = 2**32 - 1
# The smallest nucleus: still the best token alone, which is what a client asks for with a top_p of zero.
_SMALLEST_TOP_P = 1e-6


def sampling_params(request: EngineRequest) -> pb.SamplingParams:
    """Build the message.

    Raises:
        GatewayError: ``invalid_value`` (400) for a number the contract has no place for, ``unsupported_parameter``
            for an unknown constraint.
    """
    given = request.sampling
    if request.n < 1:
        raise bad_request("must be at least 1", "n")
    params = pb.SamplingParams(
        temperature=_number("temperature", given.temperature, 1.0, least=0.0),
        top_p=max(_number("top_p", given.top_p, 1.0, least=0.0), _SMALLEST_TOP_P),
        top_k=max(0, given.top_k or 0),
        min_p=_number("min_p", given.min_p, 0.0, least=0.0),
        frequency_penalty=_number("frequency_penalty", given.frequency_penalty, 0.0),
        presence_penalty=_number("presence_penalty", given.presence_penalty, 0.0),
        repetition_penalty=_number("repetition_penalty", given.repetition_penalty, 1.0),
        min_tokens=_unsigned("min_tokens", request.limits.min_tokens),
        stop_token_ids=[_unsigned("stop_token_ids", token) for token in request.stop_ids],
        # These two matter only where the engine makes text, which it does not for us.
        skip_special_tokens=True,
        spaces_between_special_tokens=True,
        ignore_eos=request.ignore_eos,
        n=request.n,
    )
    if params.repetition_penalty <= 0.0:
        raise bad_request("must be greater than 0", "repetition_penalty")
    if request.limits.max_tokens is not None:
        params.max_tokens = _unsigned("max_tokens", request.limits.max_tokens)
    if given.seed is not None:
        params.seed = min(max(given.seed, _INT32[0]), _INT32[1])
    for token, bias in given.logit_bias.items():
        if not 0 <= token <= _INT32[1]:
            raise bad_request("is not a token id", f"logit_bias.{token}")
        params.logit_bias[token] = _number(f"logit_bias.{token}", bias, 0.0)
    if request.logprobs is not None:
        params.logprobs = request.logprobs.top
        if request.logprobs.prompt:
            params.prompt_logprobs = request.logprobs.top
    if request.constraint is not None:
        _constrain(params, request.constraint)
    return params


def _number(name: str, value: float | None, neutral: float, least: float = -math.inf) -> float:
    if value is None:
        return neutral
    if not math.isfinite(value) or value < least:
        raise bad_request("must be a finite number" if least == -math.inf else f"must be at least {least:g}", name)
    return value


def _unsigned(name: str, value: int) -> int:
    if not 0 <= value <= _UINT32_MAX:
        raise bad_request(f"must be between 0 and {_UINT32_MAX}", name)
    return value


def _constrain(params: pb.SamplingParams, constraint: Constraint) -> None:
    match constraint.kind:
        case "json_schema" | "regex" | "grammar" | "structural_tag":
            setattr(params, constraint.kind, constraint.value)
        case "json_object":
            params.json_object = True
        case "choice":
            if not constraint.choices:
                raise bad_request("the list of choices is empty", "choice")
            params.choice.choices.extend(constraint.choices)
        case other:
            raise GatewayError("unsupported_parameter", f"the engine has no output constraint '{other}'")
