"""What is known of a request before a worker is looked for, and what a worker and its engine are asked from it."""

import msgspec

from smg.core.backends import EngineRequest
from smg.core.context import RequestContext
from smg.core.ids import dispatch_id
from smg.core.request import GenerationRequest, Limits
from smg.core.stream import Decoder
from smg.fleet.records import ModelRecord
from smg.pipeline.limits import with_defaults
from smg.pipeline.media import WithMedia
from smg.pipeline.reading import Reading
from smg.pipeline.stops import Stops
from smg.routing import needs
from smg.routing.router import Query
from smg.text.prepare import Prepared
from smg.text.registry import TextModel


class Plan(msgspec.Struct):
    """A request whose model is found, whose prompt is ids and whose limits are numbers."""

    model: ModelRecord
    text: TextModel
    decoder: Decoder
    prepared: Prepared
    limits: Limits
    stops: Stops
    reading: Reading
    media: WithMedia | None = None

    def query(self, request: GenerationRequest) -> Query:
        """What the router is asked."""
        ids = self.prepared.ids
        return Query(
            self.model.id,
            ids if self.media is None else self.media.routing_ids,
            hints=request.hints,
            tokens=len(ids),
            needs=needs.required(request, self.reading.output.constraint),
            wishes=needs.wished(request),
            adapter=request.lora or "",
            media=() if self.media is None else tuple(item.digest for item in self.media.inputs.items),
        )

    def engine_request(self, ctx: RequestContext, request: GenerationRequest, attempt: int) -> EngineRequest:
        """What the engine of attempt number ``attempt`` is asked."""
        output = self.reading.output
        return EngineRequest(
            id=dispatch_id(ctx.request_id, attempt),
            ids=self.prepared.ids,
            sampling=with_defaults(self.model, request.sampling),
            # Engines generate at least one token.
            limits=self.limits if self.limits.max_tokens != 0 else Limits(1),
            stop_ids=self.stops.engine_ids,
            ignore_eos=request.stop.ignore_eos,
            n=request.n,
            logprobs=request.logprobs,
            constraint=output.constraint,
            dp_rank=request.hints.dp_rank,
            lora=request.lora,
            require_reasoning=output.require_reasoning,
            from_first_token=output.from_first_token,
            vocab_size=self.model.vocab_size,
            trace=ctx.trace.header() if ctx.trace else None,
            media=None if self.media is None else self.media.inputs,
        )
