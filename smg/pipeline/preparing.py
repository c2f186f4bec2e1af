"""The first part of a generation: from a decoded request to all that is known before a worker is looked for.

A model that is loaded and a short prompt take no wait, so they take no coroutine either.
"""

import msgspec
from msgspec.structs import replace

from smg.constraints.plan import offered
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest
from smg.fleet.records import ModelRecord
from smg.parsing.choose import Parsers
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.limits import fit, must_generate
from smg.pipeline.loading import loaded, obtained
from smg.pipeline.media import WithMedia
from smg.pipeline.plan import Plan
from smg.pipeline.reading import own_ids, read
from smg.pipeline.services import Services
from smg.pipeline.stops import share_out
from smg.routing.models import known, resolve
from smg.routing.tenants import Charge
from smg.text.infill import infill
from smg.text.prepare import Prepared, input_path, prepared_apart, prepared_here
from smg.text.registry import TextModel


class Prompt(msgspec.Struct, frozen=True):
    """The prompt of ``request``, which has been put into the model's own terms, and what it was made with."""

    model: ModelRecord
    text: TextModel
    parsers: Parsers
    request: GenerationRequest
    prepared: Prepared
    media: WithMedia | None


def enter(services: Services, ctx: RequestContext, facts: Facts, model: str) -> Charge:
    """Count a request for the model called ``model`` for its tenant.

    Raises:
        GatewayError: as ``TenantLimits.enter``; ``facts`` know the model then, if there is one.
    """
    try:
        return services.tenants.enter(ctx, model)
    except GatewayError:
        record = known(services.view.snapshot(), model)
        if record is not None:
            facts.model(record.id)
        raise


async def make_plan(services: Services, interrupt: Interrupt, facts: Facts, request: GenerationRequest) -> Plan:
    """Find the model, turn the prompt into ids, and decide on limits, stops and formats.

    Raises:
        GatewayError: what is wrong with the request, or the model cannot be served now.
    """
    model = resolve(services.view.snapshot(), request.model)
    facts.model(model.id)
    services.admission.check()
    must_generate(model)
    prompt = await make_prompt(services, interrupt, model, request)
    model, text, request, prepared = prompt.model, prompt.text, prompt.request, prompt.prepared
    if request.messages and offered(request) and not text.chat(tools=True).shows_tools:
        facts.unshown("tools")
    limits = fit(model, request.limits, len(prepared.ids), input_path(request))
    stops = share_out(request.stop, model.eos_ids, text.tokenizer, limits.min_tokens)
    reading = read(services, model, text, prompt.parsers, request, prepared)
    if reading.output.ignored:
        facts.ignored(reading.output.ignored)
    return Plan(model, text, text.decoder, prepared, limits, stops, reading, prompt.media)


async def make_prompt(
    services: Services, interrupt: Interrupt, model: ModelRecord, request: GenerationRequest
) -> Prompt:
    """Turn what ``model`` is to be given into ids.

    Raises:
        GatewayError: what is wrong with the input, or the model has no tokenizer now.
    """
    model, text = await _text_of(services, interrupt, model)
    parsers = services.formats.of(model, text)
    request = own_ids(parsers, request)
    if request.suffix is not None and request.prompt_text is not None:
        request = replace(request, prompt_text=infill(text.tokenizer, request.prompt_text, request.suffix))
    prepared, media = await _prompt_of(services, interrupt, model, text, request)
    return Prompt(model, text, parsers, request, prepared, media)


async def _text_of(services: Services, interrupt: Interrupt, model: ModelRecord) -> tuple[ModelRecord, TextModel]:
    """The tokenizer and template of ``model``, and its record, which has changed where they were waited for."""
    text = services.texts.known(model)
    if text is None:
        model = await interrupt.run(obtained(services.view, services.texts, model))
        text = await interrupt.run(loaded(services.texts, model))
    return model, text


async def _prompt_of(
    services: Services, interrupt: Interrupt, model: ModelRecord, text: TextModel, request: GenerationRequest
) -> tuple[Prepared, WithMedia | None]:
    if next(request.media(), None) is not None:
        fleet = services.view.snapshot()
        media = await interrupt.run(services.media.prepare(fleet, model, text, request))
        return media.prepared, media
    prepared = prepared_here(text, request)
    if prepared is None:
        prepared = await interrupt.run(prepared_apart(text, request))
    return prepared, None
