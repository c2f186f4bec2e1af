"""A dialect that is unlike the others wherever a dialect may be: what the seam promises, made use of once.

Its model is a parameter of the path; its events have names and running numbers; its text stands in blocks that are
opened when something comes for them; it has headers, a status and an error shape of its own, and a second route.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from sanic import Request

from smg._native import sse
from smg.api.dialect import Endpoint, ErrorAnswer, Meta
from smg.api.json_handler import json_handler
from smg.core import wire
from smg.core.context import RequestContext
from smg.core.errors import GatewayError, bad_request
from smg.core.events import Event, Finish, ReasoningDelta, TextDelta, Usage
from smg.core.ids import response_id
from smg.core.request import GenerationRequest, Limits, Message, StopRules
from smg.core.stream import ByteTemplate, Counter, TextKind
from smg.pipeline.accumulator import Answer
from smg.pipeline.services import Services
from smg.routing.models import resolve

TEXT = ByteTemplate((b'event: delta\ndata: {"n":', b',"text":"', b'"}\n\n'), ("sequence", "text"))
BUSY = 529


BLOCKS = {"text": "text", "reasoning": "thought"}


class ToyBody(msgspec.Struct):
    say: str
    stream: bool = False
    most: int | None = None
    stop: list[str] = []


class ToyStream:
    """Implements ``api.dialect.StreamEncoder``."""

    def __init__(self, identity: str, request: str, meta: Meta) -> None:
        self.counter = Counter()
        self._identity = identity
        self._request = request
        self._meta = meta
        self._usage = meta.usage
        self._why = ""
        self._block = ""
        self._begun = False

    def preamble(self, *, direct: bool) -> bytes:
        self._begun = True
        start = self._event("open", id=self._identity, model=self._meta.model, usage=counts(self._usage))
        return start + (self._to("text") if direct else b"")

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        # Asked before the preamble, text will go direct from the beginning, and its block is opened there.
        return TEXT if not self._begun or self._block == BLOCKS.get(kind) else None

    def events(self, events: list[Event]) -> bytes:
        out = b""
        for event in events:
            match event:
                case TextDelta(text=text) if text:
                    out += self._to("text") + sse.fill(TEXT.pieces, TEXT.holes, text, self.counter.take())
                case ReasoningDelta(text=text) if text:
                    out += self._to("thought") + self._event("delta", text=text)
                case Finish(reason=reason):
                    self._why = reason
                case Usage():
                    self._usage = event
        return out

    def failure(self, error: GatewayError) -> bytes:
        return self._event("error", **shape(self._request, error))

    def closing(self) -> bytes:
        # There is always a block, as there is in a buffered answer.
        last = b"" if self._block else self._to("text")
        return last + self._close() + self._event("end", why=self._why, usage=counts(self._usage))

    def keepalive(self) -> bytes:
        return b'event: ping\ndata: {"n":null}\n\n'

    def _to(self, kind: str) -> bytes:
        """Close the open block, if it is another one, and open one of ``kind``."""
        if self._block == kind:
            return b""
        closed, self._block = self._close(), kind
        return closed + self._event("block", kind=kind)

    def _close(self) -> bytes:
        return self._event("block_end") if self._block else b""

    def _event(self, name: str, **fields: Any) -> bytes:
        data = msgspec.json.encode({"n": self.counter.take(), **fields})
        return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def counts(usage: Usage) -> dict[str, int]:
    return {"in": usage.prompt_tokens, "cached": usage.cached_tokens, "out": usage.completion_tokens}


def shape(request: str, error: GatewayError) -> dict[str, Any]:
    return {"toy_error": {"code": error.code, "message": error.message, "request": request}}


async def count(request: Request, services: Services, model: str) -> dict[str, int]:
    """``POST /toy/<model>/count``: not a generation."""
    body = wire.decode(request.body, ToyBody)
    text = services.texts.get(resolve(services.view.snapshot(), model))
    return {"tokens": len(text.tokenizer.encode(body.say))}


class Toy:
    name = "toy"
    label = "toy"
    id_prefix = "toy_"
    routes = (Endpoint("/toy/<model>/say"), Endpoint("/toy/<model>/count", handler=json_handler(count)))

    def decode(
        self, body: bytes, headers: Mapping[str, str], params: Mapping[str, str], ctx: RequestContext
    ) -> GenerationRequest:
        asked = wire.decode(body, ToyBody)
        if not asked.say:
            raise bad_request("there is nothing to say", "say")
        return GenerationRequest(
            dialect=self.name,
            model=params["model"],
            messages=[Message("user", asked.say)],
            stop=StopRules(tuple(asked.stop)),
            limits=Limits(asked.most),
            stream=asked.stream,
        )

    def encoder(self, ctx: RequestContext, meta: Meta) -> ToyStream:
        return ToyStream(response_id(ctx.request_id, self.id_prefix), ctx.request_id, meta)

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        (choice,) = answer.choices
        assert choice.finish is not None
        texts = {"thought": choice.reasoning, "text": choice.text}
        blocks = [{"kind": kind, "text": text} for kind, text in texts.items() if text]
        return {
            "id": response_id(ctx.request_id, self.id_prefix),
            "model": meta.model,
            "blocks": blocks or [{"kind": "text", "text": ""}],
            "why": choice.finish.reason,
            "usage": counts(answer.usage),
        }

    def headers(self, ctx: RequestContext) -> Mapping[str, str]:
        return {"toy-request": ctx.request_id}

    def error(self, ctx: RequestContext, error: GatewayError) -> ErrorAnswer:
        status = BUSY if error.status == 503 else error.status
        return ErrorAnswer(status, shape(ctx.request_id, error), {"toy-error": error.code})
