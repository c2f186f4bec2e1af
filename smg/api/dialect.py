"""What a client dialect of generations provides. Adding one: a package in ``api/`` and a row in ``table.py``.

``handler.py`` runs any dialect: it decodes the body, lets the pipeline generate, and encodes the events, streamed or
buffered. A dialect never sees an engine, a socket or a worker.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec
from sanic.response import HTTPResponse

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Event, Usage
from smg.core.request import GenerationRequest
from smg.core.stream import ByteTemplate, Counter, Decoder, TextKind
from smg.pipeline.accumulator import Answer

# ``handler(request, **parameters)`` with Sanic's request and the path's parameters, unquoted strings: an answer, or
# None when it has sent one itself. It finds the RequestContext in ``request.ctx.smg`` and the Services in
# ``request.app.ctx.services``, and raises GatewayError.
Handler: TypeAlias = Callable[..., Awaitable[HTTPResponse | None]]


class Endpoint(msgspec.Struct, frozen=True):
    """One route of a dialect; ``path`` may have parameters (``/v1/things/<name>``, always strings).

    Without a ``handler`` the route generates: its body goes through ``Dialect.decode``. A route with a handler of its
    own does something else (counts tokens, say), and shares the dialect's headers and errors.

    The rest is for the OpenAPI document: one line of ``summary``, and the types of body, buffered answer and error
    (None: of no fixed type; of errors: OpenAI's).
    """

    path: str
    method: str = "POST"
    handler: Handler | None = None
    summary: str = ""
    body: Any = None
    reply: Any = None
    failure: Any = None


class ErrorAnswer(msgspec.Struct, frozen=True):
    """An error as a dialect shows it: ``body`` is plain objects or Structs, sent as JSON.

    ``headers`` come on top of ``GatewayError.headers`` and ``Dialect.headers``.
    """

    status: int
    body: Any
    headers: Mapping[str, str] = {}


class Meta(msgspec.Struct, frozen=True):
    """Facts of one response that encoders print: canonical model id, creation time (Unix seconds), the request.

    ``decoder`` tells the bytes of a token id (logprobs print each token's text). ``usage`` has what is known when the
    first batch has arrived: the tokens of the prompt, and how many of them the engine had cached. It is zero for an
    encoder that is made before then, to keep a connection alive or to tell of a failure. ``forwarded``: the answer is
    an engine's own, and the encoder is only asked for signs of life and a last word.
    """

    request: GenerationRequest
    model: str
    created: int
    decoder: Decoder
    usage: Usage = Usage()
    forwarded: bool = False


class StreamEncoder(Protocol):
    """Encodes one streamed response. The bytes of all calls in order are the body.

    Text reaches the client in one of two ways. *Tapped*, ``events`` gets every delta. *Direct*, the StreamTable writes
    each piece of text by ``template`` without telling the encoder, and ``events`` only gets what is not text. Where a
    parser reads the text, the two take turns, and all that ``events`` was given has been written before.
    """

    counter: Counter

    def preamble(self, *, direct: bool) -> bytes:
        """What precedes the first event; called once, when the first batch has arrived.

        ``direct`` tells that text will be written by the template: whatever must stand before the first piece of text
        has to be written now, because nobody tells when that comes.
        """
        ...

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        """The bytes of a plain TextDelta of ``choice``, or None when that needs Python per delta.

        Other ``kind``s are those of a ReasoningDelta, and of a ToolCallDelta of call number ``call``. Asked again for
        each turn, so the answer may depend on what has been written. Running numbers are for dialects of one prompt:
        events of several generations leave in no order of theirs.
        """
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

    ``label`` is the value of the metrics' label ``endpoint`` (spec api-and-ops 6.1); ``id_prefix`` begins the ids of
    requests and answers (2.1 there). Unknown paths below one of ``routes`` get this dialect's errors too.
    """

    name: str
    label: str
    id_prefix: str

    @property
    def routes(self) -> tuple[Endpoint, ...]: ...

    def decode(
        self, body: bytes, headers: Mapping[str, str], params: Mapping[str, str], ctx: RequestContext
    ) -> GenerationRequest:
        """Decode and validate. ``params`` are the parameters of the path, unquoted.

        Raises:
            GatewayError: 400, naming the field.
        """
        ...

    def encoder(self, ctx: RequestContext, meta: Meta) -> StreamEncoder:
        """An encoder of one stream. Without ``options`` of this dialect in ``meta.request`` it only has to tell of a
        failure and keep a connection alive: the body was one that only an engine understands."""
        ...

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        """The buffered body, as plain objects or msgspec Structs."""
        ...

    def headers(self, ctx: RequestContext) -> Mapping[str, str]:
        """Headers of every answer, good or bad, that this dialect's clients look for."""
        ...

    def error(self, ctx: RequestContext, error: GatewayError) -> ErrorAnswer:
        """``error`` in this dialect's shape."""
        ...
