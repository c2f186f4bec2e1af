"""SamplingParams of the MLX contract: every scalar is always set (spec engine-contract 2.3).

There are no constraints, no minimum of tokens, and one choice per request.
"""

from smg_grpc_proto import mlx_engine_pb2 as pb

from smg.core.backends import EngineRequest
from smg.engines import constraints, numbers
from smg.engines.contract import unsupported


def sampling_params(request: EngineRequest) -> pb.SamplingParams:
    """Build the message.

    Raises:
        GatewayError: ``unsupported_parameter`` or ``invalid_value`` (400).
    """
    if numbers.choices(request) > 1:
        raise unsupported("n", "more than one choice")
    if request.constraint is not None:
        raise unsupported(constraints.param_of(request.constraint.kind), "output constraints")
    if request.limits.min_tokens > 0:
        raise unsupported("min_tokens", "a minimum of tokens")
    if request.logprobs is not None and request.logprobs.prompt:
        raise unsupported("logprobs", "log probabilities of the prompt")
    return pb.SamplingParams(
        temperature=numbers.temperature(request),
        top_p=numbers.top_p(request),
        top_k=numbers.top_k(request, off=0),
        min_p=numbers.min_p(request),
        repetition_penalty=numbers.repetition_penalty(request),
        frequency_penalty=numbers.frequency_penalty(request),
        presence_penalty=numbers.presence_penalty(request),
        logit_bias=numbers.logit_bias(request),
        max_tokens=numbers.max_tokens(request),
        stop_token_ids=numbers.stop_ids(request),
        ignore_eos=request.ignore_eos,
        # Above 0 turns them on; what nobody asked for is cut again.
        logprobs=None if request.logprobs is None else max(1, request.logprobs.top),
        seed=numbers.seed32(request),
    )
