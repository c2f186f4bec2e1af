"""One small question in every dialect, and how its answer ended: what the tests of failures ask of each of them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import httpx

from tests.api.serving import frames

How = Literal["answer", "error", "reset"]
QUESTION = "Tell me about the sea."
_MESSAGES = [{"role": "user", "content": QUESTION}]


class End(NamedTuple):
    """How a request ended, the text it had brought by then, and the code of its error.

    ``answer``; ``error``: in the dialect's shape, as the answer or as a stream's last event; ``reset``: the connection
    broke visibly (no status line, or a body without its last chunk).
    """

    how: How
    text: str = ""
    code: str = ""


class Dialect(NamedTuple):
    """A dialect as its clients see it.

    ``asks`` are the fields besides model and stream, the limit of tokens under ``limit``. ``whole`` is the text of a
    buffered answer, ``delta`` that of an event. ``ends`` says what the event is to a stream: its end, its failure (with
    the code, where the dialect tells it) or neither. ``code`` is that of an error answer, which must have its shape.
    """

    name: str
    path: str
    limit: str
    asks: Mapping[str, object]
    whole: Callable[[Any], str]
    delta: Callable[[Any], str]
    ends: Callable[[Any], tuple[How, str] | None]
    code: Callable[[Any], str]


def _openai_code(value: Any) -> str:
    assert set(value) == {"error"}, value
    assert set(value["error"]) == {"message", "type", "param", "code"}, value
    return str(value["error"]["code"])


def _openai_ends(frame: Any) -> tuple[How, str] | None:
    if frame == "data: [DONE]":
        return "answer", ""
    return ("error", _openai_code(frame)) if "error" in frame else None


def _messages_code(value: Any) -> str:
    assert set(value) == {"type", "error", "request_id"}, value
    assert value["type"] == "error"
    assert set(value["error"]) == {"type", "message"}, value
    # The dialect has types and no codes.
    return ""


def _messages_ends(frame: Any) -> tuple[How, str] | None:
    name, value = frame
    if name == "error":
        return "error", _messages_code(value)
    return ("answer", "") if name == "message_stop" else None


def _responses_ends(frame: Any) -> tuple[How, str] | None:
    name, value = frame
    if name == "response.failed":
        assert value["response"]["status"] == "failed"
        return "error", value["response"]["error"]["code"]
    return ("answer", "") if name in ("response.completed", "response.incomplete") else None


def _responses_whole(value: Any) -> str:
    return "".join(part["text"] for item in value["output"] for part in item.get("content", ()))


CHAT = Dialect(
    *("chat", "/v1/chat/completions", "max_tokens", {"messages": _MESSAGES}),
    whole=lambda value: value["choices"][0]["message"]["content"],
    delta=lambda frame: "".join(choice["delta"].get("content") or "" for choice in frame.get("choices", ())),
    ends=_openai_ends,
    code=_openai_code,
)
COMPLETIONS = Dialect(
    *("completions", "/v1/completions", "max_tokens", {"prompt": QUESTION}),
    whole=lambda value: value["choices"][0]["text"],
    delta=lambda frame: "".join(choice["text"] for choice in frame.get("choices", ())),
    ends=_openai_ends,
    code=_openai_code,
)
MESSAGES = Dialect(
    *("messages", "/v1/messages", "max_tokens", {"messages": _MESSAGES}),
    whole=lambda value: "".join(block["text"] for block in value["content"]),
    delta=lambda frame: frame[1].get("delta", {}).get("text", "") if frame[0] == "content_block_delta" else "",
    ends=_messages_ends,
    code=_messages_code,
)
RESPONSES = Dialect(
    *("responses", "/v1/responses", "max_output_tokens", {"input": QUESTION}),
    whole=_responses_whole,
    delta=lambda frame: frame[1]["delta"] if frame[0] == "response.output_text.delta" else "",
    ends=_responses_ends,
    code=_openai_code,
)
DIALECTS = (CHAT, COMPLETIONS, MESSAGES, RESPONSES)
# Every dialect, streamed and buffered.
KINDS = tuple((dialect, stream) for dialect in DIALECTS for stream in (True, False))

_BROKEN = (httpx.RemoteProtocolError, httpx.ReadError, httpx.ConnectError)


async def ask(
    url: str,
    dialect: Dialect,
    stream: bool,
    *,
    model: str = "mock-model",
    limit: int = 1000,
    timeout: float = 60.0,
    began: Callable[[], object] = lambda: None,
) -> End:
    """Ask on a connection of its own; ``began`` is called with the first text of a stream. Hanging is an exception."""
    body = json.dumps({**dialect.asks, "model": model, "stream": stream, dialect.limit: limit}).encode()
    content = b""
    async with httpx.AsyncClient(timeout=timeout) as client:
        try:
            async with client.stream("POST", url + dialect.path, content=body) as answer:
                async for piece in answer.aiter_raw():
                    if not content:
                        began()
                    content += piece
        except _BROKEN:
            return End("reset", read_stream(dialect, content, cut=True).text if stream else "")
    if answer.status_code != 200:
        value = json.loads(content)
        dialect.code(value)
        return End("error", code=answer.headers["x-smg-error-code"])
    if stream:
        return read_stream(dialect, content)
    return End("answer", dialect.whole(json.loads(content)))


def read_stream(dialect: Dialect, content: bytes, *, cut: bool = False) -> End:
    """How a stream ended: nothing follows its end or failure, and of one that was ``cut`` there is neither."""
    if cut:
        content = content[: content.rfind(b"\n\n") + 2] if b"\n\n" in content else b""
    text, end = "", None
    for frame in frames(content) if content else ():
        if isinstance(frame, str) and frame.startswith(":"):
            continue
        assert end is None, f"{frame} after the end of a stream"
        end = dialect.ends(frame)
        text += "" if end else dialect.delta(frame)
    if cut:
        assert end is None, "a stream that was cut looks whole"
        return End("reset", text)
    assert end is not None, f"a stream without an end: {content[-300:]!r}"
    how, code = end
    return End(how, text, code)
