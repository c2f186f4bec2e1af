"""The dialect's row: what ``api.dialect.Dialect`` asks for."""

from collections.abc import Mapping
from typing import Any

from smg.api.dialect import Meta
from smg.api.openai_chat.answer import completion
from smg.api.openai_chat.decode import ChatOptions, decode
from smg.api.openai_chat.encode import ChatStream
from smg.core.context import RequestContext
from smg.core.errors import GatewayError, openai_shape
from smg.core.ids import PREFIXES
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Answer


class OpenAIChat:
    """OpenAI chat completions."""

    name = "openai_chat"
    path = "/v1/chat/completions"

    def decode(self, body: bytes, headers: Mapping[str, str], ctx: RequestContext) -> GenerationRequest:
        return decode(body, headers)

    def encoder(self, ctx: RequestContext, meta: Meta) -> ChatStream:
        options = meta.request.options if isinstance(meta.request.options, ChatOptions) else ChatOptions()
        return ChatStream(self._id(ctx), meta.model, meta.created, meta.request.n, options, meta.decoder)

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        probs = meta.request.logprobs is not None
        return completion(self._id(ctx), meta.model, meta.created, answer, meta.decoder, probs=probs)

    def error(self, ctx: RequestContext, error: GatewayError) -> Any:
        return openai_shape(error)

    def _id(self, ctx: RequestContext) -> str:
        """The request id, which a client may have chosen itself, behind the prefix SDKs expect."""
        prefix = PREFIXES[self.path]
        return ctx.request_id if ctx.request_id.startswith(prefix) else prefix + ctx.request_id
