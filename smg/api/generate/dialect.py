"""The dialect's row: what ``api.dialect.Dialect`` asks for."""

from collections.abc import Mapping
from typing import Any

from smg.api.dialect import Endpoint, ErrorAnswer, Meta
from smg.api.errors import openai_error
from smg.api.generate.answer import generated
from smg.api.generate.decode import decode
from smg.api.generate.encode import GenerateStream
from smg.api.generate.facts import Facts
from smg.api.generate.types import GenerateBody, Generated
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Answer


class Generate:
    """SGLang's native generate route."""

    name = "generate"
    label = "generate"
    id_prefix = "gnt-"
    routes = (Endpoint("/generate", summary="SGLang's generate", body=GenerateBody, reply=Generated | list[Generated]),)

    def decode(
        self, body: bytes, headers: Mapping[str, str], params: Mapping[str, str], ctx: RequestContext
    ) -> GenerationRequest:
        return decode(body, headers)

    def encoder(self, ctx: RequestContext, meta: Meta) -> GenerateStream:
        return GenerateStream(Facts(ctx, meta), meta.request.choices)

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        return generated(Facts(ctx, meta), answer)

    def headers(self, ctx: RequestContext) -> Mapping[str, str]:
        return {}

    def error(self, ctx: RequestContext, error: GatewayError) -> ErrorAnswer:
        return openai_error(error)
