"""Uploads of speech, passed on to the HTTP engines that serve the model (field case AD-01).

The form is read for the model's name and little else; what the engine gets is the body the client sent. It lies in
memory once, so that another engine can be tried, bounded by the limit of all bodies.
"""

import asyncio

from sanic import Request
from sanic.response import HTTPResponse

from smg.api.dialect import Handler
from smg.api.forward import forward
from smg.api.handler import LARGE_BODY, gone
from smg.api.hints import hints
from smg.api.manner import PlainManner
from smg.api.route import Route
from smg.api.stream import transport
from smg.core.background import background
from smg.core.context import RequestContext
from smg.core.errors import bad_request
from smg.engines.http.form import Form
from smg.engines.http.routes import BY_DIALECT
from smg.pipeline.form_call import FormCall
from smg.pipeline.raw_call import forwarded
from smg.pipeline.services import Services
from smg.routing.models import resolve

_TRUE = frozenset({"true", "1"})


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
            call = _call(task, request, ctx, request.app.ctx.services, form)
            return await forward(PlainManner(), request, ctx, request.app.ctx.services, call)
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


def _call(task: str, request: Request, ctx: RequestContext, services: Services, form: Form) -> FormCall:
    route = BY_DIALECT[task]
    return FormCall(
        resolve(services.view.snapshot(), form.text("model")),
        form,
        route.paths,
        route.feature,
        {**forwarded(ctx, request.headers), "content-type": form.content_type},
        hints(request.headers),
        form.text("stream").strip().lower() in _TRUE,
    )


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
