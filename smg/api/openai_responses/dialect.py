"""The dialect's row: what ``api.dialect.Dialect`` asks for."""

from collections.abc import Mapping
from typing import Any

from smg.api.dialect import Endpoint, ErrorAnswer, Meta
from smg.api.errors import openai_error
from smg.api.json_handler import json_handler
from smg.api.openai_responses.answer import answered
from smg.api.openai_responses.count import InputTokens, input_tokens
from smg.api.openai_responses.decode import NAME, decode
from smg.api.openai_responses.encode import ResponsesStream
from smg.api.openai_responses.params import named
from smg.api.openai_responses.stored import missing
from smg.api.openai_responses.types import PromptBody, ResponsesBody
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.request import GenerationRequest
from smg.pipeline.accumulator import Answer

_ROUTE = "/v1/responses"
_ONE = f"{_ROUTE}/<response>"
_missing = json_handler(missing)


class OpenAIResponses:
    """OpenAI Responses, one turn at a time."""

    name = NAME
    label = "responses"
    id_prefix = "resp_"
    routes = (
        Endpoint(_ROUTE, summary="Responses", body=ResponsesBody),
        Endpoint(
            f"{_ROUTE}/input_tokens",
            handler=json_handler(input_tokens),
            summary="Length of a response's prompt",
            body=PromptBody,
            reply=InputTokens,
        ),
        Endpoint(_ONE, "GET", _missing, "A response that was kept: there are none"),
        Endpoint(_ONE, "DELETE", _missing, "Delete a response that was kept: there are none"),
        Endpoint(f"{_ONE}/cancel", handler=_missing, summary="Cancel a response in the background: there are none"),
        Endpoint(f"{_ONE}/input_items", "GET", _missing, "Input of a response that was kept: there are none"),
    )

    def decode(
        self, body: bytes, headers: Mapping[str, str], params: Mapping[str, str], ctx: RequestContext
    ) -> GenerationRequest:
        return decode(body, headers)

    def encoder(self, ctx: RequestContext, meta: Meta) -> ResponsesStream:
        return ResponsesStream(meta)

    def answer(self, ctx: RequestContext, meta: Meta, answer: Answer) -> Any:
        return answered(meta, answer)

    def headers(self, ctx: RequestContext) -> Mapping[str, str]:
        return {}

    def error(self, ctx: RequestContext, error: GatewayError) -> ErrorAnswer:
        return openai_error(named(error))
