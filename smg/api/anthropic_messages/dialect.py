"""The dialect's row: what ``api.dialect.Dialect`` asks for."""

from collections.abc import Mapping

from smg.api.anthropic_messages import errors
from smg.api.anthropic_messages.answer import message
from smg.api.anthropic_messages.count import count_tokens
from smg.api.anthropic_messages.decode import NAME, decode
from smg.api.anthropic_messages.encode import MessageStream
from smg.api.anthropic_messages.options import Display, MessagesOptions
from smg.api.anthropic_messages.types import CountBody, MessageBody, MessagesBody, MessagesError, TokenCount
from smg.api.dialect import Endpoint, ErrorAnswer, Meta
from smg.api.forward import or_forward
from smg.api.json_handler import json_handler
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.ids import response_id
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Answer


class AnthropicMessages:
    """Anthropic's Messages."""

    name = NAME
    label = "messages"
    id_prefix = "msg_"
    routes = (
        Endpoint(
            "/v1/messages",
            summary="Anthropic's Messages",
            body=MessagesBody,
            reply=MessageBody,
            failure=MessagesError,
        ),
        Endpoint(
            "/v1/messages/count_tokens",
            handler=or_forward(f"{NAME}_count", json_handler(count_tokens)),
            summary="The number of tokens of a prompt for Messages",
            body=CountBody,
            reply=TokenCount,
            failure=MessagesError,
        ),
    )

    def decode(
        self, body: bytes, headers: Mapping[str, str], params: Mapping[str, str], ctx: RequestContext
    ) -> GenerationRequest:
        return decode(body, headers)

    def encoder(self, ctx: RequestContext, meta: Meta) -> MessageStream:
        return MessageStream(self._identity(ctx), ctx.request_id, meta, _display(meta))

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> MessageBody:
        return message(self._identity(ctx), meta.model, answer, _display(meta))

    def headers(self, ctx: RequestContext) -> Mapping[str, str]:
        return {"request-id": ctx.request_id}

    def error(self, ctx: RequestContext, error: GatewayError) -> ErrorAnswer:
        return ErrorAnswer(errors.status(error), errors.shape(error, ctx.request_id))

    def _identity(self, ctx: RequestContext) -> str:
        return response_id(ctx.request_id, self.id_prefix)


def _display(meta: Meta) -> Display:
    options = meta.request.options
    return options.thinking if isinstance(options, MessagesOptions) else "dropped"
