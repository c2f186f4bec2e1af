"""Decodes a chat request into a GenerationRequest."""

from collections.abc import Mapping

import msgspec

from smg.api.hints import hints
from smg.api.openai_chat.messages import messages
from smg.api.openai_chat.rules import check, limit_paths, max_tokens, template_kwargs
from smg.api.openai_chat.tools import tool_choice, tools
from smg.api.openai_chat.types import ChatBody
from smg.api.output_format import of_openai, path_of
from smg.api.sampling import UsageOptions, limits, sampling, stop_rules, usage_options
from smg.core import wire
from smg.core.errors import bad_request
from smg.core.request import GenerationRequest, Logprobs


class ChatOptions(msgspec.Struct, frozen=True):
    """What only the encoder of this dialect needs to know of the request."""

    usage: UsageOptions = UsageOptions()
    stream_reasoning: bool = True


def decode(body: bytes, headers: Mapping[str, str]) -> GenerationRequest:
    """Decode and validate a body. Raises GatewayError (400) naming the field."""
    chat = wire.decode(body, ChatBody)
    turns = messages(chat.messages)
    check(chat)
    if chat.continue_final_message and turns[-1].role != "assistant":
        raise bad_request("continue_final_message needs an assistant message at the end", "continue_final_message")
    offered = tools(chat)
    bound = of_openai(chat)
    return GenerationRequest(
        dialect="openai_chat",
        model=chat.model or "",
        messages=turns,
        tools=offered,
        tool_choice=tool_choice(chat, offered),
        sampling=sampling(chat),
        constraint=bound,
        constraint_path="" if bound is None else path_of(chat),
        stop=stop_rules(chat),
        limits=limits(max_tokens(chat), chat.min_tokens, paths=limit_paths(chat)),
        n=chat.n or 1,
        stream=bool(chat.stream),
        logprobs=Logprobs(chat.top_logprobs or 0) if chat.logprobs else None,
        skip_special_tokens=chat.skip_special_tokens is not False,
        continue_final_message=bool(chat.continue_final_message),
        separate_reasoning=chat.separate_reasoning is not False,
        reasoning_effort=None if chat.reasoning_effort is None else str(chat.reasoning_effort),
        template_kwargs=template_kwargs(chat),
        lora=chat.lora_path or None,
        hints=hints(headers, dp_rank=chat.data_parallel_rank),
        raw=body,
        options=ChatOptions(usage_options(chat), chat.stream_reasoning is not False),
    )
