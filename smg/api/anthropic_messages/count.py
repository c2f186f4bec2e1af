"""``POST /v1/messages/count_tokens``: how long a prompt is (spec agentic-apis 6.6; case MS-07)."""

from sanic import Request

from smg.api.anthropic_messages.decode import decode_prompt
from smg.api.anthropic_messages.types import TokenCount
from smg.core.background import background
from smg.core.turns import LONG_BODY, turn
from smg.pipeline.counting import count_prompt
from smg.pipeline.services import Services

# Bodies above this many bytes are decoded in a thread.
_LARGE_BODY = 1 << 20


async def count_tokens(request: Request, services: Services) -> TokenCount:
    """The tokens that an answer to the body would count as input; no engine hears of it."""
    if len(request.body) > _LARGE_BODY:
        decoded = await background(decode_prompt, request.body)
    else:
        if len(request.body) > LONG_BODY:
            await turn()
        decoded = decode_prompt(request.body)
    return TokenCount(await count_prompt(services, request.ctx.smg, decoded))
