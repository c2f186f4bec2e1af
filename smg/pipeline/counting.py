"""Counts the tokens of a prompt without generating from it: nobody is admitted, and no engine hears of it."""

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest
from smg.fleet.records import ModelRecord
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
        request = await verified(services.signer, ctx, request)
        return len((await make_prompt(services, interrupt, model, request)).prepared.ids)
    finally:
        interrupt.close()


async def count_known(services: Services, ctx: RequestContext, model: ModelRecord, request: GenerationRequest) -> int:
    """As ``count_prompt``, for a prompt that an engine with a template of its own makes of ``request``, so it may be
    another by a little; 0 without a tokenizer for ``model``, and with media.
    """
    if not services.texts.ready(model) or next(request.media(), None) is not None:
        return 0
    interrupt = Interrupt(ctx)
    try:
        return len((await make_prompt(services, interrupt, model, request)).prepared.ids)
    except GatewayError:
        if ctx.cancel:
            raise
        return 0
    finally:
        interrupt.close()
