"""The first part of a generation: from a decoded request to all that is known before a worker is looked for.

A model that is loaded and a short prompt take no wait, so they take no coroutine either.
"""

from msgspec.structs import replace

from smg.constraints.plan import offered
from smg.core.request import GenerationRequest
from smg.fleet.records import ModelRecord
from smg.pipeline.facts import Facts
from smg.pipeline.interrupt import Interrupt
from smg.pipeline.limits import fit, must_generate
from smg.pipeline.loading import loaded, obtained
from smg.pipeline.media import WithMedia
from smg.pipeline.plan import Plan
from smg.pipeline.reading import own_ids, read
from smg.pipeline.services import Services
from smg.pipeline.stops import share_out
from smg.routing.models import resolve
from smg.text.infill import infill
from smg.text.prepare import Prepared, prepared_apart, prepared_here
from smg.text.registry import TextModel


async def make_plan(services: Services, interrupt: Interrupt, facts: Facts, request: GenerationRequest) -> Plan:
    """Find the model, turn the prompt into ids, and decide on limits, stops and formats.

    Raises:
        GatewayError: what is wrong with the request, or the model cannot be served now.
    """
    model = resolve(services.view.snapshot(), request.model)
    facts.model(model.id)
    services.admission.check()
    must_generate(model)
    model, text = await _text_of(services, interrupt, model)
    decoder = text.decoder
    parsers = services.formats.of(model, text)
    request = own_ids(parsers, request)
    if request.suffix is not None and request.prompt_text is not None:
        request = replace(request, prompt_text=infill(text.tokenizer, request.prompt_text, request.suffix))
    prepared, media = await _prompt_of(services, interrupt, model, text, request)
    if request.messages and offered(request) and not text.chat(tools=True).shows_tools:
        facts.unshown("tools")
    limits = fit(model, request.limits, len(prepared.ids))
    stops = share_out(request.stop, model.eos_ids, text.tokenizer)
    reading = read(services, model, text, parsers, request, prepared)
    if reading.output.ignored:
        facts.ignored(reading.output.ignored)
    return Plan(model, text, decoder, prepared, limits, stops, reading, media)


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
