"""How the output of one request will be read, and what it is bound to."""

import msgspec
from msgspec.structs import replace

from smg.constraints.plan import Output, offered, plan
from smg.core.request import GenerationRequest
from smg.fleet.records import ModelRecord
from smg.parsing.base import Start
from smg.parsing.call_ids import recalled
from smg.parsing.chain import Chain
from smg.parsing.choose import Parsers
from smg.parsing.markers import UNSEALED
from smg.parsing.reasoning.counting import Counter, TokenId, TokenText, counter
from smg.pipeline.services import Services
from smg.pipeline.spelled import Seen, warn
from smg.text.prepare import Prepared
from smg.text.registry import TextModel


class Reading(msgspec.Struct, frozen=True):
    """The formats of the model, what its parsers are told, what its engines are, and who is told of markers that the
    model spells without their tokens."""

    parsers: Parsers
    start: Start
    output: Output
    spelled: Seen

    def chain(self, request: GenerationRequest, index: int) -> Chain:
        """The parsers of choice ``index``."""
        return self.parsers.chain(request, index, self.start, with_ids=request.return_ids, forced=self.output.tools)

    def counter(self, token_id: TokenId, text_of: TokenText) -> Counter | None:
        """What counts one choice's ids of reasoning; None where they can't be told."""
        return counter(self.parsers.reasoning, self.start, token_id, text_of)


def own_ids(parsers: Parsers, request: GenerationRequest) -> GenerationRequest:
    """``request`` with earlier calls under ids that the model can read back, whatever the client made of them."""
    recall = parsers.tools.recall
    if recall is None or not any(message.tool_calls for message in request.messages):
        return request
    return replace(request, messages=recalled(request.messages, recall))


def read(
    services: Services,
    model: ModelRecord,
    text: TextModel,
    parsers: Parsers,
    request: GenerationRequest,
    prepared: Prepared,
) -> Reading:
    """Decide for ``request``, whose prompt is ``prepared`` and whose model has ``parsers``.

    Raises:
        GatewayError: 400, as ``constraints.plan``.
    """
    token_id = text.tokenizer.token_id

    def failed(kind: str) -> None:
        format_ = parsers.tools if kind == "tools" else parsers.reasoning
        services.metrics.parser_failures_total.inc(model.id, kind, format_.name)

    def spelled(marker: str) -> None:
        services.metrics.markers_spelled_total.inc(model.id, marker)
        warn(model.id, marker)

    tools = offered(request) if request.tools else ()
    sealed = Start(prepared.prompt_tail, prepared.history, prepared.thinking, tools, failed=failed, seals=parsers.seals)
    if request.constraint is None and not request.tools:
        return Reading(parsers, sealed, Output(require_reasoning=prepared.thinking is True), spelled)
    start = replace(sealed, seals=UNSEALED)
    able = services.abilities.of(services.view.snapshot(), model)
    template = text.source.default or ""

    def has(token: str) -> bool:
        return token_id(token) is not None and token in template

    output = plan(request, parsers, start, able, has)
    # A grammar binds the text: where it asks for a marker, any tokens that spell it will do.
    return Reading(parsers, sealed if output.constraint is None else start, output, spelled)
