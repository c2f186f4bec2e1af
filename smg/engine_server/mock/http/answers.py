"""The answers of a mock HTTP engine's generating routes, as objects."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from smg.engine_server.mock.http.script import Answer, HttpScript

_WORDS = re.compile(r"\S+\s*|\s+")
_ID = "mock-1"
_CREATED = 1_700_000_000


def chat(script: HttpScript, body: Mapping[str, Any]) -> Answer:
    """A chat completion."""
    messages = body.get("messages") or []
    prompt = " ".join(str(message.get("content")) for message in messages)
    texts = _texts(script, prompt, body.get("n") or 1)
    finish = script.finish or ("tool_calls" if script.calls else "stop")
    events = [_chunk(body, _delta(0 if len(texts) == 1 else i, {"role": "assistant"})) for i in range(len(texts))]
    for index, text in enumerate(texts):
        deltas = [{"reasoning_content": word} for word in _WORDS.findall(script.reasoning)]
        deltas += [delta for number, call in enumerate(script.calls) for delta in _call_deltas(number, *call)]
        deltas += [{"content": word} for word in _WORDS.findall(text)]
        events += [_chunk(body, _delta(index, delta)) for delta in deltas]
        events.append(_chunk(body, _delta(index, {}, finish)))
    usage = _usage(script, prompt, texts)
    choices = [
        {
            "index": index,
            "message": {
                "role": "assistant",
                "content": text,
                **({"reasoning_content": script.reasoning} if script.reasoning else {}),
                **({"tool_calls": [_call(n, *call) for n, call in enumerate(script.calls)]} if script.calls else {}),
            },
            "finish_reason": finish,
        }
        for index, text in enumerate(texts)
    ]
    return _openai("chat.completion", body, events, choices, usage)


def completions(script: HttpScript, body: Mapping[str, Any]) -> Answer:
    """A completion of one or several prompts."""
    given = body.get("prompt")
    several = isinstance(given, list) and given and not isinstance(given[0], int)
    prompts = [str(each) for each in given] if several and isinstance(given, list) else [str(given)]
    texts = [text for prompt in prompts for text in _texts(script, prompt, body.get("n") or 1)]
    finish = script.finish or "stop"
    events = []
    for index, text in enumerate(texts):
        for word in _WORDS.findall(text):
            events.append(_chunk(body, {"index": index, "text": word, "finish_reason": None}))
        events.append(_chunk(body, {"index": index, "text": "", "finish_reason": finish}))
    choices = [{"index": index, "text": text, "finish_reason": finish} for index, text in enumerate(texts)]
    return _openai("text_completion", body, events, choices, _usage(script, " ".join(prompts), texts))


def generate(script: HttpScript, body: Mapping[str, Any]) -> Answer:
    """SGLang's own: each event repeats the text so far."""
    prompt = str(body.get("text") or body.get("input_ids"))
    text = _texts(script, prompt, 1)[0]
    words = _WORDS.findall(text)
    events = []
    for count in range(1, len(words) + 1):
        reason = {"type": "stop"} if count == len(words) else None
        meta = {
            "id": _ID,
            "finish_reason": reason,
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": count,
            "cached_tokens": script.cached_tokens,
            **({"input_token_logprobs": list(script.prompt_logprobs)} if body.get("return_logprob") else {}),
        }
        events.append({"text": "".join(words[:count]), "meta_info": meta})
    return Answer(events, events[-1])


def messages(script: HttpScript, body: Mapping[str, Any]) -> Answer:
    """Anthropic's Messages: one block of text."""
    prompt = " ".join(str(message.get("content")) for message in body.get("messages") or [])
    text = _texts(script, prompt, 1)[0]
    words = _WORDS.findall(text)
    cached = script.cached_tokens
    read = {"input_tokens": len(prompt.split()) - cached, "cache_read_input_tokens": cached}
    head = {"id": _ID, "type": "message", "role": "assistant", "model": body.get("model")}
    end = {"stop_reason": script.finish or "end_turn", "stop_sequence": None}
    usage = {**read, "output_tokens": len(words)}
    start: dict[str, Any] = {
        **head,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**read, "output_tokens": 0},
    }
    deltas = [{"type": "text_delta", "text": word} for word in words]
    events = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": usage},
        {"type": "message_stop"},
    ]
    return Answer(events, {**head, "content": [{"type": "text", "text": text}], **end, "usage": usage})


def count_tokens(script: HttpScript, body: Mapping[str, Any]) -> Answer:
    """The tokens of a prompt for Messages: one for each word."""
    prompt = " ".join(str(message.get("content")) for message in body.get("messages") or [])
    return Answer([], {"input_tokens": len(prompt.split())})


def tokenize(script: HttpScript, body: Mapping[str, Any]) -> Answer:
    """vLLM's tokenize: a token for each word."""
    words = str(body.get("prompt")).split()
    whole = {"count": len(words), "max_model_len": script.context_length, "tokens": list(range(len(words)))}
    return Answer([], whole)


def detokenize(script: HttpScript, body: Mapping[str, Any]) -> Answer:
    """vLLM's detokenize."""
    return Answer([], {"prompt": " ".join(f"t{token}" for token in body.get("tokens") or ())})


def transcription(script: HttpScript, body: Mapping[str, Any]) -> Answer:
    """Speech to text: the form's fields are the body; what was said is the script's to know."""
    text = script.texts[0] if script.texts else ""
    usage = {"type": "tokens", "input_tokens": 10, "output_tokens": len(text.split())}
    events = [{"type": "transcript.text.delta", "delta": word} for word in _WORDS.findall(text)]
    events.append({"type": "transcript.text.done", "text": text, "usage": usage})
    return Answer(events, text if body.get("response_format") == "text" else {"text": text, "usage": usage})


def responses(script: HttpScript, body: Mapping[str, Any]) -> Answer:
    """A response: one message, and of the object as much as clients look for."""
    prompt = body.get("input")
    text = _texts(script, prompt if isinstance(prompt, str) else str(prompt), 1)[0]
    counts = _usage(script, str(prompt), [text])
    usage = {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": script.cached_tokens},
        "output_tokens": counts["completion_tokens"],
        "total_tokens": counts["total_tokens"],
    }
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    head = {**_head(body), "object": "response"}
    whole = {**head, "status": "completed", "output": [message], "usage": usage}
    events = [
        {"type": "response.created", "response": {**head, "output": [], "usage": None}},
        *({"type": "response.output_text.delta", "delta": word} for word in _WORDS.findall(text)),
        {"type": "response.completed", "response": whole},
    ]
    return Answer([{**event, "sequence_number": number} for number, event in enumerate(events)], whole)


RESPONSES = "/v1/responses"
ANSWERS: Mapping[str, Callable[[HttpScript, Mapping[str, Any]], Answer]] = {
    "/v1/chat/completions": chat,
    "/v1/completions": completions,
    "/generate": generate,
    "/v1/messages": messages,
    "/v1/messages/count_tokens": count_tokens,
    RESPONSES: responses,
    "/tokenize": tokenize,
    "/detokenize": detokenize,
    "/v1/audio/transcriptions": transcription,
    "/v1/audio/translations": transcription,
}
MESSAGES = frozenset({"/v1/messages", "/v1/messages/count_tokens"})
# Those whose bodies are forms.
FORMS = frozenset({"/v1/audio/transcriptions", "/v1/audio/translations"})


def _openai(kind: str, body: Mapping[str, Any], events: list[Any], choices: list[Any], usage: Any) -> Answer:
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append({**_chunk(body), "choices": [], "usage": usage})
    whole = {**_head(body), "object": kind, "choices": choices, "usage": usage}
    return Answer([{**event, "object": f"{kind}.chunk"} for event in events], whole)


def _head(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": _ID, "created": _CREATED, "model": body.get("model")}


def _chunk(body: Mapping[str, Any], *choices: Any) -> dict[str, Any]:
    return {**_head(body), "choices": list(choices)}


def _delta(index: int, delta: Any, finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish}


def _call(number: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _call_deltas(number: int, name: str, arguments: str) -> list[dict[str, Any]]:
    middle = len(arguments) // 2
    first = {"index": number, **_call(number, name, "")}
    rest = [{"index": number, "function": {"arguments": part}} for part in (arguments[:middle], arguments[middle:])]
    return [{"tool_calls": [part]} for part in (first, *rest)]


def _texts(script: HttpScript, prompt: str, count: int) -> list[str]:
    if not script.texts:
        return [" ".join(prompt.split()[-8:])] * count
    return [script.texts[index % len(script.texts)] for index in range(count)]


def _usage(script: HttpScript, prompt: str, texts: list[str]) -> dict[str, Any]:
    read, written = len(prompt.split()), sum(len(_WORDS.findall(text)) for text in texts)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": script.cached_tokens},
    }
