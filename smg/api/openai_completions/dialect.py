"""The dialect's row: what ``api.dialect.Dialect`` asks for."""

from collections.abc import Mapping
from typing import Any

from smg.api.dialect import Endpoint, ErrorAnswer, Meta
from smg.api.errors import openai_error
from smg.api.openai_completions.answer import completion
from smg.api.openai_completions.decode import CompletionOptions, decode
from smg.api.openai_completions.encode import CompletionStream
from smg.api.openai_completions.types import Completion, CompletionBody
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.ids import response_id
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Answer


class OpenAICompletions:
    """OpenAI completions."""

    name = "openai_completions"
    label = "completions"
    id_prefix = "cmpl-"
    routes = (Endpoint("/v1/completions", summary="Completions of prompts", body=CompletionBody, reply=Completion),)

    def decode(
        self, body: bytes, headers: Mapping[str, str], params: Mapping[str, str], ctx: RequestContext
    ) -> GenerationRequest:
        return decode(body, headers)

    def encoder(self, ctx: RequestContext, meta: Meta) -> CompletionStream:
        return CompletionStream(response_id(ctx.request_id, self.id_prefix), meta, _options(meta))

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        return completion(response_id(ctx.request_id, self.id_prefix), meta, _options(meta), answer)

    def headers(self, ctx: RequestContext) -> Mapping[str, str]:
        return {}

    def error(self, ctx: RequestContext, error: GatewayError) -> ErrorAnswer:
        return openai_error(error)


def _options(meta: Meta) -> CompletionOptions:
    options = meta.request.options
    return options if isinstance(options, CompletionOptions) else CompletionOptions()
