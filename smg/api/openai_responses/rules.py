"""Rules between the fields of a request, and fields that ask for what is not here (spec agentic-apis 4.1 to 4.3)."""

from smg.api.openai_responses import types
from smg.api.sampling import refuse, refuse_sampling
from smg.core.errors import GatewayError, bad_request

LOGPROBS = "message.output_text.logprobs"
_NO_HISTORY = "this gateway keeps no history; send the whole conversation as input"


# What chat calls its fields, and how they are called here.
_OF_CHAT = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "functions": "tools",
    "n": "",
}


def refuse_chat(body: types.PromptBody) -> None:
    """Refuse fields of chat, which would be without effect. Raises GatewayError naming the first."""
    for name, ours in _OF_CHAT.items():
        value = getattr(body, name)
        if value and not (name == "n" and value == 1):
            message = f"{name} is no field of responses" + (f"; what it asks for is {ours}" if ours else "")
            raise GatewayError("unsupported_parameter", message, param=name)


def check_prompt(body: types.PromptBody) -> None:
    """Check what all routes have. Raises GatewayError naming the first field that is wrong."""
    refuse_sampling(body)
    # An object without fields asks for a stored prompt as well.
    refuse(body, ("context_management",), given=("prompt",))
    if body.previous_response_id is not None and body.conversation is not None:
        raise bad_request("previous_response_id and conversation exclude each other", "conversation")
    if body.previous_response_id is not None:
        raise GatewayError("previous_response_not_found", _NO_HISTORY, param="previous_response_id")
    if body.conversation is not None:
        raise GatewayError("unsupported_parameter", _NO_HISTORY, param="conversation")


def check(body: types.ResponsesBody) -> None:
    """Check everything that concerns plain fields. Raises as ``check_prompt``."""
    check_prompt(body)
    if body.background:
        message = "this gateway keeps no responses, so none can be made in the background"
        raise GatewayError("unsupported_parameter", message, param="background")
    if body.stream_options is not None and not body.stream:
        raise bad_request("stream_options needs stream to be true", "stream_options")
    for index, name in enumerate(body.include or ()):
        if name not in types.INCLUDES:
            known = ", ".join(types.INCLUDES)
            raise bad_request(f"unknown value '{name}', expected one of {known}", f"include[{index}]")
    if body.top_logprobs and LOGPROBS not in (body.include or ()):
        raise bad_request(f"top_logprobs needs '{LOGPROBS}' in include", "top_logprobs")
