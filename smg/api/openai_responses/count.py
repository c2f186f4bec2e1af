"""``POST /v1/responses/input_tokens``: how long a prompt is, without any engine."""

import msgspec
from sanic import Request

from smg.api.openai_responses.decode import decode_prompt
from smg.core.turns import LONG_BODY, turn
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.limits import must_generate
from smg.pipeline.preparing import make_prompt
from smg.pipeline.services import Services
from smg.routing.models import resolve


class InputTokens(msgspec.Struct):
    input_tokens: int
    object: str = "response.input_tokens"


async def input_tokens(request: Request, services: Services) -> InputTokens:
    """Count the tokens of the prompt that a request would have, media included, however many they are.

    Raises:
        GatewayError: 400 naming the field, 404 for an unknown model, or what its template refuses.
    """
    if len(request.body) > LONG_BODY:
        await turn()
    asked = decode_prompt(request.body)
    interrupt = Interrupt(request.ctx.smg)
    try:
        model = resolve(services.view.snapshot(), asked.model)
        must_generate(model)
        return InputTokens(len((await make_prompt(services, interrupt, model, asked)).prepared.ids))
    finally:
        interrupt.close()
