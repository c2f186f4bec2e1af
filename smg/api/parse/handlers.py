"""Both handlers: a text through the parser that a stream would go through."""

import asyncio
from collections.abc import Callable

from sanic import Request

from smg.api.body import decoded
from smg.api.openai_chat.tools import tools
from smg.api.openai_chat.types import ChatBody
from smg.api.parse.types import (
    FunctionCallBody,
    ParsedCall,
    ParsedFunction,
    ParsedFunctionCalls,
    ParsedReasoning,
    ReasoningBody,
)
from smg.core import wire
from smg.core.errors import bad_request
from smg.core.stream import RowOutput
from smg.parsing.base import Start
from smg.parsing.chain import Chain
from smg.parsing.choose import Parsers, choose
from smg.parsing.format import Format
from smg.parsing.reasoning.delimiters import rules_of
from smg.parsing.table import REASONING, TOOLS
from smg.pipeline.accumulator import Accumulator, AnswerChoice
from smg.pipeline.loading import loaded
from smg.pipeline.services import Services
from smg.routing.models import resolve

# Characters that are parsed where they are: a thread would cost more than it saves.
INLINE = 16 << 10

_OPENER = "<think>"


async def parse_function_call(request: Request, services: Services) -> ParsedFunctionCalls:
    """``POST /parse/function_call``: the calls in a text, and what is left of it."""
    body = await decoded(wire.decode, request.body, FunctionCallBody)
    start = Start(tools=tools(ChatBody(tools=body.tools)))
    if body.tool_call_parser is not None:
        format_ = _named(TOOLS, body.tool_call_parser, "tool_call_parser")
    else:
        format_ = (await _parsers(services, body.model)).tools

    def parse() -> AnswerChoice:
        parser = None if format_.factory is None else format_.factory(start)
        return _read(Chain(0, start, None, parser, mint=format_.mint), body.text)

    found = await _run(body.text, parse)
    calls = [
        ParsedCall(call.id, call.kind, ParsedFunction(call.name, call.arguments), call.complete) for call in found.calls
    ]
    return ParsedFunctionCalls(found.text, calls, success=True)


async def parse_reasoning(request: Request, services: Services) -> ParsedReasoning:
    """``POST /parse/reasoning``: the reasoning in a text, and the rest."""
    body = await decoded(wire.decode, request.body, ReasoningBody)
    if body.reasoning_parser is not None:
        format_ = _named(REASONING, body.reasoning_parser, "reasoning_parser")
    else:
        format_ = (await _parsers(services, body.model)).reasoning
    start = Start(prompt_tail=_opener(format_) if body.in_reasoning else "", thinking=body.in_reasoning)

    def parse() -> AnswerChoice:
        parser = None if format_.factory is None else format_.factory(start)
        return _read(Chain(0, start, parser), body.text)

    found = await _run(body.text, parse)
    return ParsedReasoning(found.text, found.reasoning, success=True)


async def _run(text: str, parse: Callable[[], AnswerChoice]) -> AnswerChoice:
    return parse() if len(text) < INLINE else await asyncio.get_running_loop().run_in_executor(None, parse)


def _read(chain: Chain, text: str) -> AnswerChoice:
    answer = Accumulator()
    answer.feed(chain.feed(RowOutput(0, text, (), None)))
    answer.feed(chain.finish("stop"))
    return answer.finish().choices[0]


def _named(rows: tuple[Format, ...], name: str, path: str) -> Format:
    for row in rows:
        if name == row.name or name in row.aliases:
            return row
    known = ", ".join(sorted(row.name for row in rows))
    raise bad_request(f"there is no parser '{name}'; known: {known}", path)


async def _parsers(services: Services, name: str | None) -> Parsers:
    """The parsers of a model, the only one when it is not named. Raises GatewayError."""
    model = resolve(services.view.snapshot(), name or "")
    text = await loaded(services.texts, model)
    own = text.tokenizer.config.get("response_template")
    return choose(
        services.settings.model, model.id, text.source.default, text.tokenizer.token_id, response_template=own
    )


def _opener(format_: Format) -> str:
    """What a prompt ends with that has opened the reasoning."""
    rules = rules_of(format_.factory)
    return rules.openers[0] if rules is not None and rules.openers else _OPENER
