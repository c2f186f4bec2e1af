"""The prompt as ``echo`` shows it."""

from smg.core.request import GenerationRequest
from smg.core.stream import Decoder


def echoed(request: GenerationRequest, number: int, decoder: Decoder) -> str:
    """Text of prompt ``number``: what the client sent, or its ids decoded as the output is."""
    prompts = request.prompts
    prompt = prompts[number] if prompts else request.prompt_text if request.prompt_ids is None else request.prompt_ids
    if prompt is None or isinstance(prompt, str):
        return prompt or ""
    skip = request.skip_special_tokens
    shown = [token for token in prompt if not (skip and decoder.is_special(token))]
    pieces = [decoder.first_bytes(token) for token in shown[:1]] + [decoder.token_bytes(token) for token in shown[1:]]
    return b"".join(pieces).decode("utf-8", "replace")
