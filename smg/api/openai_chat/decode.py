"""Decodes a chat request into a GenerationRequest."""

from collections.abc import Mapping

import msgspec

from smg.api.hints import hints
from smg.api.openai_chat.messages import messages
from smg.api.openai_chat.rules import check, logit_bias, max_tokens
from smg.api.openai_chat.tools import constraint, tool_choice, tools
from smg.api.openai_chat.types import ChatBody
from smg.core import wire
from smg.core.errors import bad_request
from smg.core.request import GenerationRequest, Limits, Logprobs, Sampling, StopRules


class ChatOptions(msgspec.Struct, frozen=True):
    """What only the encoder of this dialect needs to know of the request."""

    include_usage: bool = False
    continuous_usage: bool = False


def decode(body: bytes, headers: Mapping[str, str]) -> GenerationRequest:
    """Decode and validate a body. Raises GatewayError (400) naming the field."""
    chat = wire.decode(body, ChatBody)
    turns = messages(chat.messages)
    check(chat)
    if chat.continue_final_message and turns[-1].role != "assistant":
        raise bad_request("continue_final_message needs an assistant message at the end", "continue_final_message")
    offered = tools(chat)
    return GenerationRequest(
        dialect="openai_chat",
        model=chat.model or "",
        messages=turns,
        tools=offered,
        tool_choice=tool_choice(chat, offered),
        sampling=_sampling(chat),
        constraint=constraint(chat),
        stop=_stop(chat),
        limits=Limits(max_tokens(chat), chat.min_tokens or 0),
        n=chat.n or 1,
        stream=bool(chat.stream),
        logprobs=Logprobs(chat.top_logprobs or 0) if chat.logprobs else None,
        skip_special_tokens=chat.skip_special_tokens is not False,
        continue_final_message=bool(chat.continue_final_message),
        separate_reasoning=chat.separate_reasoning is not False,
        reasoning_effort=None if chat.reasoning_effort is None else str(chat.reasoning_effort),
        template_kwargs=chat.chat_template_kwargs or {},
        lora=chat.lora_path or None,
        hints=hints(headers, dp_rank=chat.data_parallel_rank),
        raw=body,
        options=_options(chat),
    )


def _sampling(chat: ChatBody) -> Sampling:
    return Sampling(
        temperature=chat.temperature,
        top_p=chat.top_p,
        top_k=chat.top_k,
        min_p=chat.min_p,
        frequency_penalty=chat.frequency_penalty,
        presence_penalty=chat.presence_penalty,
        repetition_penalty=chat.repetition_penalty,
        seed=chat.seed if chat.seed is not None else chat.sampling_seed,
        logit_bias=logit_bias(chat),
    )


def _stop(chat: ChatBody) -> StopRules:
    return StopRules(
        strings=(chat.stop,) if isinstance(chat.stop, str) else tuple(chat.stop or ()),
        ids=tuple(chat.stop_token_ids or ()),
        visible=bool(chat.no_stop_trim),
        ignore_eos=bool(chat.ignore_eos),
    )


def _options(chat: ChatBody) -> ChatOptions:
    options = chat.stream_options
    if options is None or not options.include_usage:
        # Without include_usage the other option has no effect (field case OA-04).
        return ChatOptions()
    return ChatOptions(include_usage=True, continuous_usage=bool(options.continuous_usage_stats))
