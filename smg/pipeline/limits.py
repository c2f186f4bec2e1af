"""What the model's record adds to a request: room for tokens, default sampling (spec text-pipeline 7.2, 17)."""

from msgspec.structs import replace

from smg.core.errors import ContextLengthExceeded, GatewayError
from smg.core.request import Limits, Sampling
from smg.fleet.records import ModelRecord


def fit(model: ModelRecord, limits: Limits, prompt: int) -> Limits:
    """Resolve ``limits`` for a prompt of ``prompt`` tokens: by default generation may fill the context.

    Raises:
        GatewayError: ``context_length_exceeded`` naming the numbers (field case MS-09).
    """
    longest = model.max_input_length
    if longest and prompt > longest:
        message = f"this model's prompts have at most {longest} tokens, but this one has {prompt}"
        raise ContextLengthExceeded(message, prompt=prompt, longest=longest)
    context = model.context_length
    if not context:
        return limits if limits.max_tokens is not None else Limits(limits.usual, limits.min_tokens)
    if prompt >= context:
        message = f"this model's context length is {context} tokens, but the prompt alone has {prompt}"
        raise ContextLengthExceeded(message, prompt=prompt, longest=context)
    if limits.max_tokens is None:
        room = context - prompt
        most = room if limits.usual is None else min(room, limits.usual)
        return Limits(most, min(limits.min_tokens, most))
    if prompt + limits.max_tokens > context:
        message = (
            f"this model's context length is {context} tokens, but {prompt + limits.max_tokens} were requested: "
            f"{prompt} in the prompt and {limits.max_tokens} for the completion"
        )
        raise ContextLengthExceeded(message, prompt=prompt, output=limits.max_tokens, longest=context)
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
