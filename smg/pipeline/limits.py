"""What the model's record adds to a request: room for tokens, default sampling (spec text-pipeline 7.2, 17)."""

from msgspec.structs import replace

from smg.core.errors import ContextLengthExceeded, GatewayError
from smg.core.request import Limits, Sampling
from smg.fleet.records import ModelRecord


def fit(model: ModelRecord, limits: Limits, prompt: int, path: str) -> Limits:
    """Resolve ``limits`` for a prompt of ``prompt`` tokens: by default generation may fill the context.

    ``path`` is where the body has the prompt.

    Raises:
        GatewayError: ``context_length_exceeded`` naming the numbers (field case MS-09) and what is to be made smaller.
    """
    longest = model.max_input_length
    if longest and prompt > longest:
        message = f"this model's prompts have at most {longest} tokens, but this one has {prompt}"
        raise ContextLengthExceeded(message, path, prompt=prompt, longest=longest)
    context = model.context_length
    if not context:
        return limits if limits.max_tokens is not None else Limits(limits.usual, limits.min_tokens)
    if prompt >= context:
        message = f"this model's context length is {context} tokens, but the prompt alone has {prompt}"
        raise ContextLengthExceeded(message, path, prompt=prompt, longest=context)
    room = context - prompt
    for wanted, place in zip((limits.max_tokens or 0, limits.min_tokens), limits.paths, strict=True):
        if wanted > room:
            message = (
                f"this model's context length is {context} tokens, but {prompt + wanted} were requested: "
                f"{prompt} in the prompt and {wanted} for the completion"
            )
            raise ContextLengthExceeded(message, place, prompt=prompt, output=wanted, longest=context)
    if limits.max_tokens is None:
        return Limits(room if limits.usual is None else min(room, limits.usual), limits.min_tokens)
    return limits


def with_defaults(model: ModelRecord, sampling: Sampling) -> Sampling:
    """Fill what the client left out from the model's own defaults."""
    defaults = model.default_sampling
    omitted = {
        name: int(defaults[name]) if name == "top_k" else defaults[name]
        for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
        if name in defaults and getattr(sampling, name) is None
    }
    return replace(sampling, **omitted) if omitted else sampling


def must_generate(model: ModelRecord) -> None:
    """Raise GatewayError ``invalid_request`` (400) for a model that only embeds."""
    if not model.generates:
        raise GatewayError(
            "invalid_request", f"the model '{model.id}' makes embeddings; it does not generate text", param="model"
        )
