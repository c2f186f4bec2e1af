"""The dialect's row: what ``api.dialect.Dialect`` asks for."""

from collections.abc import Mapping
from typing import Any

from smg.api.dialect import Meta
from smg.api.openai_chat.answer import completion
from smg.api.openai_chat.decode import ChatOptions, decode
from smg.api.openai_chat.encode import ChatStream
from smg.api.openai_chat.types import ChatBody
from smg.api.openai_parts import prefixed
from smg.core.context import RequestContext
from smg.core.errors import GatewayError, openai_shape
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Answer


class OpenAIChat:
    """OpenAI chat completions."""

    name = "openai_chat"
    path = "/v1/chat/completions"
    body = ChatBody
    reply = None

    def decode(self, body: bytes, headers: Mapping[str, str], ctx: RequestContext) -> GenerationRequest:
        return decode(body, headers)

    def encoder(self, ctx: RequestContext, meta: Meta) -> ChatStream:
        options = meta.request.options if isinstance(meta.request.options, ChatOptions) else ChatOptions()
        return ChatStream(
            prefixed(ctx.request_id, self.path), meta.model, meta.created, meta.request.n, options, meta.decoder
        )

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        probs = meta.request.logprobs is not None
        return completion(
            prefixed(ctx.request_id, self.path), meta.model, meta.created, answer, meta.decoder, probs=probs
        )

    def error(self, ctx: RequestContext, error: GatewayError) -> Any:
        return openai_shape(error)
