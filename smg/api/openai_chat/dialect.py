"""The dialect's row: what ``api.dialect.Dialect`` asks for."""

from collections.abc import Mapping
from typing import Any

from smg.api.dialect import Endpoint, ErrorAnswer, Meta
from smg.api.errors import openai_error
from smg.api.openai_chat.answer import completion
from smg.api.openai_chat.decode import ChatOptions, decode
from smg.api.openai_chat.encode import ChatStream
from smg.api.openai_chat.types import ChatBody
from smg.api.openai_chat.whole_reasoning import WholeReasoningStream
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.ids import response_id
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Answer


class OpenAIChat:
    """OpenAI chat completions."""

    name = "openai_chat"
    label = "chat"
    id_prefix = "chatcmpl-"
    routes = (Endpoint("/v1/chat/completions", summary="Chat completions", body=ChatBody),)

    def decode(
        self, body: bytes, headers: Mapping[str, str], params: Mapping[str, str], ctx: RequestContext
    ) -> GenerationRequest:
        return decode(body, headers)

    def encoder(self, ctx: RequestContext, meta: Meta) -> ChatStream:
        options = meta.request.options if isinstance(meta.request.options, ChatOptions) else ChatOptions()
        kind = ChatStream if options.stream_reasoning else WholeReasoningStream
        return kind(response_id(ctx.request_id, self.id_prefix), meta, options)

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        probs = meta.request.logprobs is not None
        return completion(
            response_id(ctx.request_id, self.id_prefix), meta.model, meta.created, answer, meta.decoder, probs=probs
        )

    def headers(self, ctx: RequestContext) -> Mapping[str, str]:
        return {}

    def error(self, ctx: RequestContext, error: GatewayError) -> ErrorAnswer:
        return openai_error(error)
