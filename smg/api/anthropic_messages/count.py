"""``POST /v1/messages/count_tokens``: how long a prompt is (spec agentic-apis 6.6; case MS-07)."""

from sanic import Request

from smg.api.anthropic_messages.decode import decode_prompt
from smg.api.anthropic_messages.types import TokenCount
from smg.api.body import decoded
from smg.pipeline.counting import count_prompt
from smg.pipeline.services import Services


async def count_tokens(request: Request, services: Services) -> TokenCount:
    """The tokens that an answer to the body would count as input; no engine hears of it."""
    asked = await decoded(decode_prompt, request.body)
    return TokenCount(await count_prompt(services, request.ctx.smg, asked))
