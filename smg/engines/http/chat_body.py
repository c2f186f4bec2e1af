"""A GenerationRequest as the body of an engine's chat or completions API, for engines that don't speak its dialect."""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from smg.core.errors import GatewayError
from smg.core.request import (
    Constraint,
    GenerationRequest,
    MediaPart,
    Message,
    Part,
    RawPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    Tool,
    ToolChoice,
)

# Under these names templates have a switch for thinking.
_TOGGLES = ("enable_thinking", "thinking")
_MEDIA = {"image": "image_url", "video": "video_url", "audio": "audio_url"}


def chat_body(request: GenerationRequest) -> dict[str, Any]:
    """The body of ``/v1/chat/completions``; a prompt of text becomes what the user says.

    Raises:
        GatewayError: ``unsupported_parameter`` for what that API has no place for.
    """
    if request.prompt_ids is not None or request.prompts:
        what = "several prompts, or token ids as a prompt,"
        raise _unsupported(request.prompt_path, what)
    if request.suffix is not None:
        raise _unsupported("suffix", "a suffix")
    body = _common(request)
    if request.prompt_text is not None:
        body["messages"] = [{"role": "user", "content": request.prompt_text}]
    else:
        body["messages"] = [_message(message) for message in request.messages]
    if request.tools:
        body.update(_tools(request.tools, request.tool_choice))
    if request.reasoning_effort is not None:
        body["reasoning_effort"] = request.reasoning_effort
    wish = {} if request.thinking is None else dict.fromkeys(_TOGGLES, request.thinking)
    if wish or request.template_kwargs:
        body["chat_template_kwargs"] = wish | request.template_kwargs
    if request.continue_final_message:
        body.update(continue_final_message=True, add_generation_prompt=False)
    return body


def completions_body(request: GenerationRequest) -> dict[str, Any]:
    """The body of ``/v1/completions``. Raises GatewayError as ``chat_body``."""
    body = _common(request)
    body["prompt"] = next(
        prompt for prompt in (request.prompt_text, request.prompt_ids, request.prompts) if prompt is not None
    )
    if request.suffix is not None:
        body["suffix"] = request.suffix
    if not request.add_special_tokens:
        body["add_special_tokens"] = False
    return body


def _common(request: GenerationRequest) -> dict[str, Any]:
    """What both have: always a stream, whose end tells the usage."""
    if request.logprobs is not None:
        raise _unsupported("logprobs", "log probabilities")
    if request.lora is not None:
        raise _unsupported("lora_path", "LoRA adapters")
    body: dict[str, Any] = {"model": request.model, "stream": True, "stream_options": {"include_usage": True}}
    given = {
        **msgspec.structs.asdict(request.sampling),
        "logit_bias": {str(token): bias for token, bias in request.sampling.logit_bias.items()} or None,
        "max_tokens": request.limits.max_tokens if request.limits.max_tokens is not None else request.limits.usual,
        "min_tokens": request.limits.min_tokens or None,
        "n": request.n if request.n > 1 else None,
        "stop": list(request.stop.strings) or None,
        "stop_token_ids": list(request.stop.ids) or None,
        # The names of vLLM and of SGLang for the same.
        "include_stop_str_in_output": request.stop.visible or None,
        "no_stop_trim": request.stop.visible or None,
        "ignore_eos": request.stop.ignore_eos or None,
        "skip_special_tokens": None if request.skip_special_tokens else False,
        "response_format": None if request.constraint is None else _format(request.constraint),
        "data_parallel_rank": request.hints.dp_rank,
    }
    return body | {name: value for name, value in given.items() if value is not None}


def _format(constraint: Constraint) -> dict[str, Any]:
    match constraint.kind:
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            schema = {"name": "output", "schema": msgspec.json.decode(constraint.value)}
            return {"type": "json_schema", "json_schema": schema}
        case _:
            raise _unsupported("response_format", f"the output constraint '{constraint.kind}'")


def _message(message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role, "content": _content(message.content)}
    reasoning = message.reasoning or "".join(
        part.text for part in message.content or () if isinstance(part, ReasoningPart)
    )
    given = {
        "name": message.name,
        "reasoning_content": reasoning or None,
        "tool_call_id": message.tool_call_id,
        "tool_calls": [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
        or None,
    }
    return out | {name: value for name, value in given.items() if value is not None}


def _content(content: str | list[Part] | None) -> Any:
    if not isinstance(content, list):
        return content
    return [_part(part) for part in content if not isinstance(part, ReasoningPart)]


def _part(part: Part) -> Mapping[str, Any]:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case RefusalPart(text=text):
            return {"type": "refusal", "refusal": text}
        case RawPart(raw=raw):
            return raw
        case MediaPart() if part.kind in _MEDIA:
            name = _MEDIA[part.kind]
            return {"type": name, name: {**part.options, "url": _url(part)}}
        case _:
            raise _unsupported("messages", "this kind of content")


def _url(part: MediaPart) -> str:
    if part.url is not None:
        return part.url
    data = base64.b64encode(part.data or b"").decode()
    return f"data:{part.media_type or 'application/octet-stream'};base64,{data}"


def _tools(tools: list[Tool], choice: ToolChoice) -> dict[str, Any]:
    offered = [tool for tool in tools if not choice.names or tool.name in choice.names]
    out: dict[str, Any] = {"tools": [_tool(tool) for tool in offered], "tool_choice": choice.mode}
    if len(choice.names) == 1 and choice.mode != "auto":
        out["tool_choice"] = {"type": "function", "function": {"name": choice.names[0]}}
    if not choice.parallel:
        out["parallel_tool_calls"] = False
    return out


def _tool(tool: Tool) -> dict[str, Any]:
    if tool.kind != "function":
        # The pipeline makes functions of custom tools.
        raise _unsupported("tools", f"tools of type '{tool.kind}'")
    given = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    return {
        "type": "function",
        "function": {"name": tool.name, **{name: value for name, value in given.items() if value is not None}},
    }


def _unsupported(param: str, what: str) -> GatewayError:
    return GatewayError("unsupported_parameter", f"the engine's API has no {what} for this request", param=param)
