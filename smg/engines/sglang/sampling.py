"""SamplingParams of the SGLang contract: every scalar is always set (spec engine-contract 2.3). There is no seed."""

from smg_grpc_proto import sglang_scheduler_pb2 as pb

from smg.core.backends import EngineRequest
from smg.engines import constraints, numbers

_FIELDS = {"grammar": "ebnf_grammar"}


def sampling_params(request: EngineRequest) -> pb.SamplingParams:
    """Build the message. Raises GatewayError (400) for what it has no place for."""
    params = pb.SamplingParams(
        temperature=numbers.temperature(request),
        top_p=numbers.top_p(request),
        top_k=numbers.top_k(request, off=-1),
        min_p=numbers.min_p(request),
        frequency_penalty=numbers.frequency_penalty(request),
        presence_penalty=numbers.presence_penalty(request),
        repetition_penalty=numbers.repetition_penalty(request),
        max_new_tokens=numbers.max_tokens(request),
        min_new_tokens=numbers.min_tokens(request),
        stop_token_ids=numbers.stop_ids(request),
        skip_special_tokens=True,
        spaces_between_special_tokens=True,
        ignore_eos=request.ignore_eos,
        n=numbers.choices(request),
        logit_bias={str(token): bias for token, bias in numbers.logit_bias(request).items()},
    )
    if request.constraint is not None:
        constraint = constraints.narrowed(request.constraint)
        setattr(params, _FIELDS.get(constraint.kind, constraint.kind), constraint.value)
    return params
