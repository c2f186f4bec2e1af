"""SamplingParams of the vLLM contract: every scalar is always set (spec engine-contract 2.3)."""

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.core.backends import EngineRequest
from smg.core.request import Constraint
from smg.engines import constraints, numbers


def sampling_params(request: EngineRequest) -> pb.SamplingParams:
    """Build the message.

    Raises:
        GatewayError: ``invalid_value`` (400) for a number the contract has no place for, ``unsupported_parameter``
            for an unknown constraint.
    """
    params = pb.SamplingParams(
        temperature=numbers.temperature(request),
        top_p=numbers.top_p(request),
        top_k=numbers.top_k(request, off=0),
        min_p=numbers.min_p(request),
        frequency_penalty=numbers.frequency_penalty(request),
        presence_penalty=numbers.presence_penalty(request),
        repetition_penalty=numbers.repetition_penalty(request),
        max_tokens=numbers.max_tokens(request),
        min_tokens=numbers.min_tokens(request),
        stop_token_ids=numbers.stop_ids(request),
        # These two matter only where the engine makes text, which it does not for us.
        skip_special_tokens=True,
        spaces_between_special_tokens=True,
        ignore_eos=request.ignore_eos,
        n=numbers.choices(request),
        seed=numbers.seed32(request),
        logit_bias=numbers.logit_bias(request),
    )
    if request.logprobs is not None:
        params.logprobs = request.logprobs.top
        if request.logprobs.prompt:
            params.prompt_logprobs = request.logprobs.top
    if request.constraint is not None:
        _constrain(params, constraints.checked(request.constraint))
        params.grammar_from_first_token = request.from_first_token
    return params


def _constrain(params: pb.SamplingParams, constraint: Constraint) -> None:
    match constraint.kind:
        case "json_schema" | "regex" | "grammar" | "structural_tag":
            setattr(params, constraint.kind, constraint.value)
        case "json_object":
            params.json_object = True
        case "choice":
            params.choice.choices.extend(constraint.choices)
        case _:
            raise constraints.unknown(constraint)
