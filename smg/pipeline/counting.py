"""Counts the tokens of a prompt without generating from it: nobody is admitted, and no engine hears of it."""

from smg.core.context import RequestContext
from smg.core.request import GenerationRequest
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.limits import must_generate
from smg.pipeline.preparing import make_prompt
from smg.pipeline.services import Services
from smg.pipeline.signing import verified
from smg.routing.models import resolve


async def count_prompt(services: Services, ctx: RequestContext, request: GenerationRequest) -> int:
    """The tokens of the prompt that a generation of ``request`` would have, media included, however many they are.

    Raises:
        GatewayError: as ``preparing.make_plan``, limits on length excepted.
    """
    interrupt = Interrupt(ctx)
    try:
        model = resolve(services.view.snapshot(), request.model)
        must_generate(model)
        ctx.notes["model"] = model.id
        request = verified(services.signer, ctx, request)
        return len((await make_prompt(services, interrupt, model, request)).prepared.ids)
    finally:
        interrupt.close()
