"""What a request needs of a worker, and which workers have it (spec engine-contract 2.3 and 9).

Needs are features without which the answer would be wrong: a worker that lacks one is no candidate. Wishes are features
whose lack leaves the answer right: workers that have them come first, and a request that went elsewhere is answered
with a warning.
"""

from collections.abc import Mapping, Sequence

from smg.core.errors import GatewayError
from smg.core.request import Constraint, GenerationRequest
from smg.engines.capabilities import CONSTRAINTS, FEATURES
from smg.engines.constraints import param_of
from smg.engines.http.routes import ROUTES
from smg.fleet.records import WorkerRecord
from smg.routing.router import Query

# Feature to the request's field, where their names differ.
_PARAMS: Mapping[str, str] = {
    **dict.fromkeys(("generate", "embed", *(route.feature for route in ROUTES)), "model"),
    "prompt_logprobs": "logprobs",
    "lora": "lora_path",
    "dp_rank": "data_parallel_rank",
    **dict.fromkeys(("image", "audio", "video", "mixed_media"), "messages"),
    **{kind: param_of(kind) for kind in CONSTRAINTS},
}


_GENERATE = frozenset({"generate"})
_NOTHING: frozenset[str] = frozenset()


def required(request: GenerationRequest, constraint: Constraint | None) -> frozenset[str]:
    """Features without which ``request`` cannot be answered as asked; ``constraint`` is what binds its output."""
    features = []
    if request.n > 1:
        features.append("n")
    if request.sampling.logit_bias:
        features.append("logit_bias")
    if request.limits.min_tokens > 0:
        features.append("min_tokens")
    if request.logprobs is not None:
        features += ["logprobs", "prompt_logprobs"] if request.logprobs.prompt else ["logprobs"]
    if request.lora is not None:
        features.append("lora")
    kinds = {part.kind for _, part in request.media()}
    if kinds:
        features += [*kinds, "mixed_media"] if len(kinds) > 1 else kinds
    if constraint is not None:
        features.append(constraint.kind)
    return _GENERATE.union(features) if features else _GENERATE


def wished(request: GenerationRequest) -> frozenset[str]:
    """Features ``request`` asks for that change neither meaning nor form of the answer.

    A seed is a best effort by its definition; a rank is a place.
    """
    seed, rank = request.sampling.seed is not None, request.hints.dp_rank is not None
    if not seed and not rank:
        return _NOTHING
    return frozenset({"seed"} if seed else ()) | frozenset({"dp_rank"} if rank else ())


def missing(worker: WorkerRecord, features: frozenset[str]) -> frozenset[str]:
    """Those of ``features`` that the worker is known to lack."""
    if not features or worker.features is None:
        return _NOTHING
    return features - worker.features


def check(query: Query, workers: Sequence[WorkerRecord]) -> None:
    """Raise GatewayError ``unsupported_parameter`` (400) when none of ``workers`` ever could take ``query``."""
    lacks = sorted((sorted(missing(worker, query.needs)) for worker in workers), key=len)
    if lacks and lacks[0]:
        feature = lacks[0][0]
        raise GatewayError(
            "unsupported_parameter",
            f"no engine of this model offers {FEATURES.get(feature, feature)}",
            param=_PARAMS.get(feature, feature),
        )


def warning(lacks: frozenset[str]) -> str:
    """What a client is told when wishes were not fulfilled, in one line."""
    names = ", ".join(sorted(_PARAMS.get(feature, feature) for feature in lacks))
    return f"not supported by the engine and ignored: {names}"
