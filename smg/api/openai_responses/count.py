"""``POST /v1/responses/input_tokens``: how long a prompt is, without any engine."""

import msgspec
from sanic import Request

from smg.api.openai_responses.decode import decode_prompt
from smg.core.turns import LONG_BODY, turn
from smg.pipeline.loading import loaded
from smg.pipeline.services import Services
from smg.routing.models import resolve
from smg.text.prepare import prepare


class InputTokens(msgspec.Struct):
    input_tokens: int
    object: str = "response.input_tokens"


async def input_tokens(request: Request, services: Services) -> InputTokens:
    """Count the tokens of the prompt that a request would make.

    Raises:
        GatewayError: 400 naming the field, 404 for an unknown model, or what its template refuses.
    """
    if len(request.body) > LONG_BODY:
        await turn()
    asked = decode_prompt(request.body)
    text = await loaded(services.texts, resolve(services.view.snapshot(), asked.model))
    return InputTokens(len((await prepare(text, asked)).ids))
