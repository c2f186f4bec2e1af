"""``POST /v1/responses/input_tokens``: how long a prompt is, without any engine."""

import msgspec
from sanic import Request

from smg.api.body import decoded
from smg.api.openai_responses.decode import decode_prompt
from smg.pipeline.counting import count_prompt
from smg.pipeline.services import Services


class InputTokens(msgspec.Struct):
    input_tokens: int
    object: str = "response.input_tokens"


async def input_tokens(request: Request, services: Services) -> InputTokens:
    """Count the tokens of the prompt that a request would have, media included, however many they are.

    Raises:
        GatewayError: 400 naming the field, 404 for an unknown model, or what its template refuses.
    """
    asked = await decoded(decode_prompt, request.body)
    return InputTokens(await count_prompt(services, request.ctx.smg, asked))
