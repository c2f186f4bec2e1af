"""Uploads of speech, passed on to the HTTP engines that serve the model (field case AD-01), or transcribed as a
generation by engines that take ids.

For HTTP engines the form is read for the model's name and little else; what the engine gets is the body the client
sent. It lies in memory once, so that another engine can be tried, bounded by the limit of all bodies.
"""

import asyncio

import msgspec
from sanic import Request
from sanic.response import HTTPResponse

from smg.api.audio import asr
from smg.api.audio.stream import Transcripts
from smg.api.audio.words import words_of
from smg.api.body import LARGE_BODY
from smg.api.dialect import Handler
from smg.api.errors import JSON
from smg.api.forward import forward
from smg.api.handler import gone
from smg.api.hints import hints
from smg.api.manner import PlainManner
from smg.api.route import Route
from smg.api.stream import Stream, transport, worker_header
from smg.core.background import background
from smg.core.context import RequestContext
from smg.core.errors import GatewayError, bad_request
from smg.core.request import GenerationRequest
from smg.engines.http.form import Form
from smg.engines.http.routes import BY_DIALECT
from smg.fleet.records import ModelRecord
from smg.pipeline.accumulator import Accumulator
from smg.pipeline.fanout import Generating, generate
from smg.pipeline.form_call import FormCall
from smg.pipeline.loading import loaded
from smg.pipeline.raw_call import forwarded
from smg.pipeline.services import Services
from smg.routing.models import resolve
from smg.routing.router import Query

_HEARS = frozenset({"generate", "audio"})
_PLAIN = "text/plain; charset=utf-8"


def handler(task: str) -> Handler:
    """The handler of ``audio_transcriptions`` or ``audio_translations``, rows of the engines' routes."""

    async def handle(request: Request) -> HTTPResponse | None:
        ctx: RequestContext = request.ctx.smg
        ctx.endpoint = task
        # Sanic stops reading while a body waits in its buffer; unless it reads on, a disconnect goes unnoticed.
        transport(request).resume_reading()
        try:
            form = await _form(request)
            _check(form)
            services: Services = request.app.ctx.services
            model = resolve(services.view.snapshot(), form.text("model"))
            if await _generates(task, services, model):
                decoded, plain = asr.decode(form, request.headers), asr.is_plain(form)
                # Nothing else is to hold the recording, which the generation lets go of once it is prepared.
                request.body = b""
                del form
                return await _generated(request, ctx, services, decoded, plain=plain)
            return await forward(PlainManner(), request, ctx, services, _call(task, request, ctx, model, form))
        except ConnectionError:
            ctx.notes.setdefault("error", "client_disconnected")
            return None
        except asyncio.CancelledError:
            ctx.notes["error"] = "client_disconnected" if gone(request) else "shutting_down"
            raise

    handle.__name__ = handle.__qualname__ = task
    return handle


async def _form(request: Request) -> Form:
    content_type = request.headers.get("content-type", "")
    if len(request.body) <= LARGE_BODY:
        return Form(request.body, content_type)
    return await background(Form, request.body, content_type)


def _check(form: Form) -> None:
    """Refuse a form without a model or a file. Raises GatewayError."""
    if not form.text("model"):
        raise bad_request("you must name a model", "model", code="missing_model")
    file = form.part("file")
    if file is None or file.filename is None:
        raise bad_request("a file is needed", "file")
    if file.start == file.end:
        raise bad_request("the file is empty", "file")


def _call(task: str, request: Request, ctx: RequestContext, model: ModelRecord, form: Form) -> FormCall:
    route = BY_DIALECT[task]
    return FormCall(
        model,
        form,
        route.paths,
        route.feature,
        {**forwarded(ctx, request.headers), "content-type": form.content_type},
        hints(ctx.headers),
        asr.streams(form),
    )


async def _generates(task: str, services: Services, model: ModelRecord) -> bool:
    """Whether engines that take ids are to be asked: they can, and no engine has the route itself.

    Raises GatewayError ``audio_transcription_model_not_supported`` for a model that hears, but does other things.
    """

    feature = BY_DIALECT[task].feature
    if task != "audio_transcriptions" or services.router.count(Query(model.id, needs=frozenset({feature}))):
        return False
    names = {model.id, *model.aliases}
    serving = [worker for worker in services.view.snapshot().workers if not names.isdisjoint(worker.models)]
    # Also while none of them is ready: the generation says so.
    if not any(worker.kind == "tokens" and worker.features and worker.features >= _HEARS for worker in serving):
        return False
    text = await loaded(services.texts, model)
    if not await services.media.transcribes(model, text):
        message = f"the model '{model.id}' does not transcribe; ask it in a chat completion"
        raise GatewayError("audio_transcription_model_not_supported", message, param="model")
    return True


async def _generated(
    request: Request, ctx: RequestContext, services: Services, decoded: GenerationRequest, *, plain: bool
) -> HTTPResponse | None:
    generation = generate(services, ctx, decoded)
    reason = "error"
    try:
        if decoded.stream:
            await Stream(Transcripts(), request, ctx, services, decoded, generation).run()
            response = None
        else:
            response = await _whole(ctx, services, generation, plain=plain)
        reason = "stop"
        return response
    except GatewayError as error:
        raise asr.located(error) from None
    except ConnectionError:
        reason = "client_disconnect"
        raise
    except asyncio.CancelledError:
        reason = "client_disconnect" if gone(request) else "shutdown"
        raise
    finally:
        await generation.aclose(reason)


async def _whole(ctx: RequestContext, services: Services, generation: Generating, *, plain: bool) -> HTTPResponse:
    await generation.start()
    accumulator = Accumulator(1)
    async for events in generation:
        accumulator.feed(events)
    done = accumulator.finish()
    words, headers = words_of(done.choices[0].text), worker_header(services, ctx)
    if plain:
        return HTTPResponse(words, headers=headers, content_type=_PLAIN)
    body = asr.Transcription(words, asr.usage(done.usage))
    return HTTPResponse(msgspec.json.encode(body), headers=headers, content_type=JSON)


ROUTES: tuple[Route, ...] = (
    Route(
        "POST", "/v1/audio/transcriptions", handler("audio_transcriptions"), "data", summary="The words of a recording"
    ),
    Route(
        "POST",
        "/v1/audio/translations",
        handler("audio_translations"),
        "data",
        summary="The words of a recording, in English",
    ),
)
