"""Decodes a responses request into a GenerationRequest."""

from collections.abc import Mapping
from typing import Any

import msgspec

from smg.api.hints import hints
from smg.api.openai_responses import types
from smg.api.openai_responses.input import turns
from smg.api.openai_responses.items import response_id
from smg.api.openai_responses.params import named
from smg.api.openai_responses.response import ResponsesOptions
from smg.api.openai_responses.rules import LOGPROBS, check, check_prompt, refuse_chat
from smg.api.openai_responses.tools import tool_choice, tools
from smg.api.output_format import constraint, path_of
from smg.api.sampling import limits, sampling, stop_rules
from smg.core import wire
from smg.core.errors import GatewayError
from smg.core.request import Constraint, GenerationRequest, Logprobs

NAME = "openai_responses"


def decode(body: bytes, headers: Mapping[str, str]) -> GenerationRequest:
    """Decode and validate a body. Raises GatewayError (400) naming the field."""
    asked = wire.decode(body, types.ResponsesBody)
    refuse_chat(asked)
    try:
        return _decode(asked, body, headers)
    except GatewayError as error:
        raise named(error) from None


def decode_prompt(body: bytes) -> GenerationRequest:
    """Decode what of a body makes the prompt. Raises as ``decode``."""
    asked = wire.decode(body, types.PromptBody)
    refuse_chat(asked)
    try:
        check_prompt(asked)
        return _prompt(asked)
    except GatewayError as error:
        raise named(error) from None


def _decode(asked: types.ResponsesBody, body: bytes, headers: Mapping[str, str]) -> GenerationRequest:
    check(asked)
    request = _prompt(asked)
    request.sampling = sampling(asked)
    request.stop = stop_rules(asked)
    request.limits = limits(asked.max_output_tokens, asked.min_tokens)
    request.stream = bool(asked.stream)
    request.logprobs = Logprobs(asked.top_logprobs or 0) if LOGPROBS in (asked.include or ()) else None
    request.skip_special_tokens = asked.skip_special_tokens is not False
    request.lora = asked.lora_path or None
    request.hints = hints(headers, dp_rank=asked.data_parallel_rank)
    request.raw = body
    request.options = ResponsesOptions(response_id(), msgspec.json.encode(_echo(asked)))
    return request


def _prompt(asked: types.PromptBody) -> GenerationRequest:
    messages = turns(asked)
    offered = tools(asked.tools)
    bound = _constraint(asked)
    return GenerationRequest(
        dialect=NAME,
        model=asked.model or "",
        messages=messages,
        prompt_path="input",
        tools=offered,
        tool_choice=tool_choice(asked, offered),
        constraint=bound,
        constraint_path="" if bound is None else path_of(asked, form="text.format"),
        reasoning_effort=None if asked.reasoning is None else asked.reasoning.effort,
        template_kwargs=asked.chat_template_kwargs or {},
    )


def _constraint(asked: types.PromptBody) -> Constraint | None:
    """What bounds the output: ``text.format``, which is chat's ``response_format`` but for its shape."""
    form = None if asked.text is None else asked.text.format
    if form is not None and form.get("type") == "json_schema":
        schema = wire.convert(form, types.SchemaFormat, "text.format")
        given = {name: value for name, value in msgspec.structs.asdict(schema).items() if value is not None}
        form = {"type": "json_schema", "json_schema": given}
    return constraint(regex=asked.regex, ebnf=asked.ebnf, response_format=form)


def _echo(asked: types.ResponsesBody) -> dict[str, Any]:
    """The request's own fields as the response object repeats them, with what holds where they are absent."""
    reasoning, text = asked.reasoning or types.Reasoning(), asked.text or types.TextOptions()
    choice = asked.tool_choice if asked.tool_choice is not None else "auto" if asked.tools else "none"
    return {
        "background": False,
        "conversation": None,
        "frequency_penalty": asked.frequency_penalty,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "max_tool_calls": asked.max_tool_calls,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "presence_penalty": asked.presence_penalty,
        "previous_response_id": None,
        "prompt_cache_key": asked.prompt_cache_key,
        "prompt_cache_retention": asked.prompt_cache_retention,
        "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
        "safety_identifier": asked.safety_identifier,
        "service_tier": asked.service_tier,
        "store": False,
        "temperature": asked.temperature,
        "text": {"format": text.format or {"type": "text"}, "verbosity": text.verbosity},
        "tool_choice": choice,
        "tools": asked.tools or [],
        "top_logprobs": asked.top_logprobs,
        "top_p": asked.top_p,
        "truncation": asked.truncation or "disabled",
        "user": asked.user,
    }
