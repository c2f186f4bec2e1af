"""What the gateway puts around an answer that it only passes on: headers of its own, signs of life, a last word."""

import re
from collections.abc import Mapping
from typing import Protocol

import msgspec
from sanic import Request

from smg.api.dialect import Dialect, Meta, StreamEncoder
from smg.core import clock
from smg.core.context import RequestContext
from smg.core.errors import GatewayError, openai_shape
from smg.core.request import GenerationRequest
from smg.core.stream import NoDecoder

# In a text of an event the quotes would be escaped.
_NUMBER = re.compile(rb'"sequence_number" ?: ?(\d{1,18})\b')


class Manner(Protocol):
    """The form these things have for one request."""

    def headers(self) -> Mapping[str, str]:
        """Headers of every answer."""
        ...

    def keepalive(self) -> bytes:
        """Bytes that keep a silent event stream open and mean nothing."""
        ...

    def failure(self, error: GatewayError, sent: bytes = b"") -> bytes:
        """The error event that ends a broken stream, whose last whole events were ``sent``."""
        ...


class PlainManner:
    """That of routes which belong to no dialect: OpenAI's."""

    def headers(self) -> Mapping[str, str]:
        return {}

    def keepalive(self) -> bytes:
        return b": keep-alive\n\n"

    def failure(self, error: GatewayError, sent: bytes = b"") -> bytes:
        return b"data: " + msgspec.json.encode(openai_shape(error)) + b"\n\n"


class DialectManner:
    """A dialect's own, for ``request``, also where only the engine understands the body."""

    def __init__(
        self, dialect: Dialect, request: Request, params: Mapping[str, str], ctx: RequestContext, model: str
    ) -> None:
        self._dialect = dialect
        self._request = request
        self._params = params
        self._ctx = ctx
        self._model = model
        self._made: StreamEncoder | None = None

    def headers(self) -> Mapping[str, str]:
        return self._dialect.headers(self._ctx)

    def keepalive(self) -> bytes:
        return self._encoder().keepalive()

    def failure(self, error: GatewayError, sent: bytes = b"") -> bytes:
        encoder = self._encoder()
        if numbers := _NUMBER.findall(sent):
            # The engine's events are numbered, and so is this one.
            encoder.counter.value = int(numbers[-1]) + 1
        return encoder.failure(error)

    def _encoder(self) -> StreamEncoder:
        if self._made is None:
            try:
                decoded = self._dialect.decode(self._request.body, self._ctx.headers, self._params, self._ctx)
            except GatewayError:
                decoded = GenerationRequest(self._dialect.name, self._model, stream=True)
            meta = Meta(decoded, self._model, clock.created(), NoDecoder(), forwarded=True)
            self._made = self._dialect.encoder(self._ctx, meta)
        return self._made
