"""SamplingParams of the TokenSpeed contract (spec engine-contract 2.3).

Scalars have presence here, and unset ones get the engine's defaults. They are set all the same: which defaults apply is
settled in the gateway, alike for all engines of a model.
"""

from smg_grpc_proto import tokenspeed_scheduler_pb2 as pb

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
        ignore_eos=request.ignore_eos,
        skip_special_tokens=True,
        spaces_between_special_tokens=True,
        n=numbers.choices(request),
        logit_bias={str(token): bias for token, bias in numbers.logit_bias(request).items()},
        # The gateway hides end tokens itself, and some clients want to see theirs.
        no_stop_trim=True,
        sampling_seed=numbers.seed64(request),
    )
    if request.constraint is not None:
        constraint = constraints.narrowed(request.constraint)
        setattr(params, _FIELDS.get(constraint.kind, constraint.kind), constraint.value)
    return params
