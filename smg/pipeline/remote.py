"""One generation on an HTTP engine that does not speak the client's dialect: request in, events out (DESIGN 3, events).

A prompt goes to the engine's completions API, where it has one, else it becomes a conversation of one turn.
"""

import msgspec
from msgspec.structs import replace

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.events import Event, Failure, Finish, Usage
from smg.core.request import GenerationRequest
from smg.core.stream import Decoder, NoDecoder, Sink
from smg.engines.http.chat_body import chat_body, completions_body
from smg.engines.http.chat_events import ChatEvents
from smg.engines.http.errors import message_of
from smg.engines.http.fields import Fields
from smg.engines.http.routes import ROUTES
from smg.engines.transport.errors import presentable
from smg.pipeline.counting import count_known
from smg.pipeline.custom_calls import CustomCalls, as_functions, unbound
from smg.pipeline.raw_call import RawCall, forwarded, is_events
from smg.pipeline.relay import Relay
from smg.pipeline.services import Services
from smg.pipeline.signing import signing, verified
from smg.routing.models import resolve
from smg.routing.router import Query

_MAX_WORDS = 64 << 10
_BODIES = {"completions_api": completions_body, "chat_api": chat_body}
_PATHS = {route.feature: route.paths for route in ROUTES}


class Remote:
    """Used like a ``Generation``; text is made by the engine, so there are no token ids and nothing goes direct."""

    def __init__(self, services: Services, ctx: RequestContext, request: GenerationRequest) -> None:
        self._services = services
        self._ctx = ctx
        self._request = request
        self._relay: Relay | None = None
        self._model = ""
        self._events = ChatEvents(request.choices)
        self._custom = CustomCalls(request.tools)
        self._signing = signing(services.signer, ctx, request)
        # The gateway's own count of the prompt, where one is needed before the engine's.
        self._counted = 0
        self._ends: list[Event] = []
        self._done = False

    @property
    def model(self) -> str:
        return self._model

    @property
    def done(self) -> bool:
        return self._done

    @property
    def decoder(self) -> Decoder:
        return NoDecoder()

    @property
    def usage(self) -> Usage:
        told = Usage() if self._relay is None else self._relay.usage
        return told if told.prompt_tokens else msgspec.structs.replace(told, prompt_tokens=self._counted)

    async def start(self) -> None:
        """Find an engine and wait for the beginning of its answer.

        Raises:
            GatewayError: whatever is wrong, the engine's refusal in its own words included.
        """
        self._request = await verified(self._services.signer, self._ctx, self._request)
        call = self._call()
        if self._request.counts_first:
            self._counted = await count_known(self._services, self._ctx, call.model, self._request)
        self._relay = relay = Relay(self._services, self._ctx, call)
        if loose := unbound(self._request):
            relay.ignored(loose)
        answer = await relay.start()
        if is_events(answer):
            return
        try:
            body = b""
            while len(body) < _MAX_WORDS and (data := await relay.read()):
                body += data
        finally:
            await relay.aclose("error")
        if answer.status < 400:
            message = "the engine answered in one piece, not as a stream"
            raise GatewayError("worker_failed", message, worker_fault=True)
        said = presentable(message_of(body))
        raise GatewayError("invalid_request", said or "the engine refused the request", status=answer.status)

    def _call(self) -> RawCall:
        request = self._request
        model = resolve(self._services.view.snapshot(), request.model)
        self._model = model.id
        feature = "chat_api"
        query = Query(model.id, needs=frozenset({"completions_api"}))
        if not request.messages and self._services.router.count(query):
            feature = "completions_api"
        body = _BODIES[feature](as_functions(replace(request, model=request.model or model.id)))
        return RawCall(
            model,
            Fields(msgspec.json.encode(body)),
            _PATHS[feature],
            feature,
            forwarded(self._ctx, {}),
            request.hints,
            request.stream,
        )

    def direct(self, sink: Sink, encoder: object) -> bool:
        return False

    def __aiter__(self) -> "Remote":
        return self

    async def __anext__(self) -> list[Event]:
        """Events of what has arrived. The last ones are each choice's Finish and one Usage, or one Failure."""
        if self._done:
            raise StopAsyncIteration
        assert self._relay is not None, "start() comes first"
        try:
            data = await self._relay.read()
        except GatewayError as error:
            self._done = True
            return [Failure(error.code, error.message, error.status, error.retry_after, error.param)]
        events = self._custom.translated(self._events.feed(data) if data else self._events.finish())
        if self._signing is not None:
            events = self._signing.signed(events)
        self._done = not data or self._events.failed
        # The counts come after the last choice's end, and dialects print them with it.
        self._ends += [event for event in events if isinstance(event, Finish)]
        events = [event for event in events if not isinstance(event, Finish)]
        if self._events.failed:
            return events
        return [*events, *self._ends, self.usage] if self._done else [*events, self.usage]

    async def aclose(self, reason: str = "stop") -> None:
        """Give everything back. Idempotent, never raises."""
        self._done = True
        if self._relay is not None:
            await self._relay.aclose(reason)
