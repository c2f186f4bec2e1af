"""What a client dialect of generations provides. Adding one: a package in ``api/`` and a row in ``table.py``.

``handler.py`` runs any dialect: it decodes the body, lets the pipeline generate, and encodes the events, streamed or
buffered. A dialect never sees an engine, a socket or a worker.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Event
from smg.core.request import GenerationRequest
from smg.core.stream import ByteTemplate, Counter, Decoder
from smg.pipeline.accumulator import Answer


class Meta(msgspec.Struct, frozen=True):
    """Facts of one response that encoders print: canonical model id, creation time, the request.

    ``decoder`` tells the bytes of a token id (logprobs print each token's text).
    """

    request: GenerationRequest
    model: str
    created: int
    decoder: Decoder


class StreamEncoder(Protocol):
    """Encodes one streamed response. The bytes of all calls in order are the body."""

    counter: Counter

    def preamble(self) -> bytes:
        """What precedes the first event; called when the first batch has arrived."""
        ...

    def template(self, choice: int) -> ByteTemplate | None:
        """The bytes of a plain TextDelta of ``choice``, or None when this request needs Python per delta."""
        ...

    def events(self, events: list[Event]) -> bytes: ...

    def failure(self, error: GatewayError) -> bytes:
        """The error event that ends a broken stream. No end marker of a complete stream may follow it."""
        ...

    def closing(self) -> bytes:
        """What follows the last event of a complete stream."""
        ...

    def keepalive(self) -> bytes:
        """Bytes that keep an idle connection open and mean nothing (an SSE comment, a ping event)."""
        ...


class Dialect(Protocol):
    """One client API of generations.

    ``body`` and ``reply`` are the wire types of its requests and of its buffered answers (None: of no fixed type), for
    the OpenAPI document.
    """

    name: str
    path: str

    @property
    def body(self) -> type[msgspec.Struct]: ...
    @property
    def reply(self) -> Any: ...

    def decode(self, body: bytes, headers: Mapping[str, str], ctx: RequestContext) -> GenerationRequest:
        """Decode and validate. Raises GatewayError (400) naming the field."""
        ...

    def encoder(self, ctx: RequestContext, meta: Meta) -> StreamEncoder: ...

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        """The buffered body, as plain objects or msgspec Structs."""
        ...

    def error(self, ctx: RequestContext, error: GatewayError) -> Any:
        """The error body in this dialect's shape."""
        ...
