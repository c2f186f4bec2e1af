"""Whether the embedded engine's own compiler of constraints takes a text: an oracle that is none of ours."""

from functools import cache

from smg_grpc_proto import vllm_engine_pb2 as pb

from smg.core.request import Constraint
from smg.engine_server.llama import constraints, default_model
from smg.engine_server.llama.guidance import ConstraintError, Guide
from smg.engine_server.llama.model import Model


@cache
def _engine() -> tuple[Model, Guide]:
    model = Model(default_model(), slots=1, context_length=256)
    return model, Guide(model)


def allows(constraint: Constraint, text: str) -> bool:
    """Whether ``text`` as a whole satisfies ``constraint``."""
    model, guide = _engine()
    matcher = constraints.compile(pb.SamplingParams(**{constraint.kind: constraint.value}), guide)
    try:
        for token in model.tokenize(text):
            matcher.accept(token)
    except ConstraintError:
        return False
    return matcher.complete
