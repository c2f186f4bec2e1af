"""The dialect's row: what ``api.dialect.Dialect`` asks for."""

from collections.abc import Mapping
from typing import Any

from smg.api.dialect import Meta
from smg.api.openai_completions.answer import completion
from smg.api.openai_completions.decode import CompletionOptions, decode
from smg.api.openai_completions.encode import CompletionStream
from smg.api.openai_completions.types import Completion, CompletionBody
from smg.api.openai_parts import prefixed
from smg.core.context import RequestContext
from smg.core.errors import GatewayError, openai_shape
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Answer


class OpenAICompletions:
    """OpenAI completions."""

    name = "openai_completions"
    path = "/v1/completions"
    body = CompletionBody
    reply = Completion

    def decode(self, body: bytes, headers: Mapping[str, str], ctx: RequestContext) -> GenerationRequest:
        return decode(body, headers)

    def encoder(self, ctx: RequestContext, meta: Meta) -> CompletionStream:
        return CompletionStream(prefixed(ctx.request_id, self.path), meta, _options(meta))

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        return completion(prefixed(ctx.request_id, self.path), meta, _options(meta), answer)

    def error(self, ctx: RequestContext, error: GatewayError) -> Any:
        return openai_shape(error)


def _options(meta: Meta) -> CompletionOptions:
    options = meta.request.options
    assert isinstance(options, CompletionOptions)
    return options
