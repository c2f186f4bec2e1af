"""Decodes a Messages request into a GenerationRequest."""

from collections.abc import Mapping

from smg.api.anthropic_messages import types
from smg.api.anthropic_messages.messages import messages, system
from smg.api.anthropic_messages.options import MessagesOptions
from smg.api.anthropic_messages.thinking import thinking
from smg.api.anthropic_messages.tools import tool_choice, tools
from smg.api.hints import hints
from smg.api.output_format import constraint
from smg.api.sampling import refuse
from smg.core import wire
from smg.core.errors import GatewayError, bad_request
from smg.core.request import Constraint, GenerationRequest, Limits, Sampling, StopRules

NAME = "anthropic_messages"


def decode(body: bytes, headers: Mapping[str, str]) -> GenerationRequest:
    """Decode and validate a body. Raises GatewayError (400) naming the field."""
    wired = wire.decode(body, types.MessagesBody)
    request = _prompt(wired, wired.max_tokens)
    refuse(wired, ("container",))
    if wired.max_tokens is None:
        raise bad_request("the limit on generated tokens is missing", "max_tokens")
    request.sampling = Sampling(
        temperature=wired.temperature,
        top_p=wired.top_p,
        # 0 is no limit here, which engines spell -1.
        top_k=-1 if wired.top_k == 0 else wired.top_k,
    )
    request.stop = _stops(wired.stop_sequences or [])
    request.limits = Limits(wired.max_tokens)
    request.stream = request.counts_first = bool(wired.stream)
    request.hints = hints(headers)
    request.raw = body
    return request


def decode_prompt(body: bytes) -> GenerationRequest:
    """Decode what the prompt of a body is made of, for who only counts it. Raises GatewayError as ``decode``."""
    request = _prompt(wire.decode(body, types.CountBody), None)
    request.raw = body
    return request


def _prompt(wired: types.PromptBody, max_tokens: int | None) -> GenerationRequest:
    if wired.mcp_servers:
        raise GatewayError("unsupported_parameter", "this gateway runs no MCP servers' tools", param="mcp_servers")
    turns = messages(wired.messages)
    last = turns[-1]
    if last.tool_calls:
        message = "the tool_use blocks at the end need tool_result blocks in a user message behind them"
        raise bad_request(message, f"messages[{len(wired.messages or []) - 1}]")
    offered = tools(wired.tools)
    wanted = thinking(wired, max_tokens)
    return GenerationRequest(
        dialect=NAME,
        model=wired.model or "",
        messages=[*system(wired.system), *turns],
        tools=offered,
        tool_choice=tool_choice(wired.tool_choice, offered),
        constraint=_format(wired),
        constraint_path="output_format" if wired.output_format is not None else "output_config.format",
        # An answer that the client has begun is gone on with.
        continue_final_message=last.role == "assistant",
        reasoning_effort=wanted.effort,
        thinking=wanted.wish,
        sign_reasoning=wanted.display != "dropped",
        verify_reasoning=True,
        options=MessagesOptions(wanted.display),
    )


def _format(wired: types.PromptBody) -> Constraint | None:
    path, form = "output_config.format", None if wired.output_config is None else wired.output_config.format
    if form is None:
        path, form = "output_format", wired.output_format
    if form is None:
        return None
    # Told where the body has it.
    try:
        return constraint(json_schema=form.schema)
    except GatewayError as error:
        inner = (error.param or "").removeprefix("json_schema")
        raise GatewayError(error.code, error.message, param=f"{path}.schema{inner}") from None


def _stops(texts: list[str]) -> StopRules:
    for index, text in enumerate(texts):
        if not text:
            raise bad_request("a stop sequence must not be empty", f"stop_sequences[{index}]")
    return StopRules(tuple(texts))
