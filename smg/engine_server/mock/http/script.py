"""What a mock HTTP engine does: its texts, its pace, how it cuts its bytes, and its faults."""

from typing import Any, Literal, TypeAlias

import msgspec

Server: TypeAlias = Literal["vllm", "sglang", "openai"]
FaultKind: TypeAlias = Literal["status", "reset", "stall", "error"]


class HttpFault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that goes wrong with a generating request.

    ``status`` answers with ``status`` and ``message``; ``reset`` cuts the connection; ``stall`` sends nothing more;
    ``error`` sends an error event and ends the stream. ``after`` counts the events that come before it (0: right after
    the head, None: before the head). ``first`` limits it to the first so many requests since the script was set.
    """

    kind: FaultKind = "status"
    after: int | None = None
    status: int = 500
    message: str = "scripted failure"
    retry_after: str = ""
    first: int | None = None


class HttpScript(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of a mock HTTP engine.

    ``texts`` are the answers, one for all choices or one for each; without any, the answer repeats the prompt's last
    words. ``reasoning`` and ``calls`` (name, arguments) come before the text of each choice. ``delay`` is in seconds
    and comes before each event. ``piece`` writes that many bytes at a time (0: event by event); ``framing`` tells how
    a stream ends: as HTTP chunks, or with the connection. ``raw`` is sent as the whole stream, whatever was asked.
    ``ends`` are the line ends of events. ``prompt_logprobs`` are told by ``/generate`` with ``return_logprob``.

    ``models`` are what is listed, with ``context_length``; ``key`` has to be in the header ``authorization``.
    ``dp_size``, ``running``, ``waiting`` and ``usage`` are what SGLang-like and vLLM-like engines tell of themselves.
    ``audio``: speech is taken down too. ``responses``: the Responses API is there too, ``messages``: Anthropic's
    Messages. ``hidden`` are paths that
    are not there.
    """

    texts: tuple[str, ...] = ()
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    delay: float = 0.0
    piece: int = 0
    framing: Literal["chunked", "eof"] = "chunked"
    ends: Literal["\n", "\r\n"] = "\n"
    raw: bytes | None = None
    cached_tokens: int = 0
    prompt_logprobs: tuple[Any, ...] = ()
    faults: tuple[HttpFault, ...] = ()
    models: tuple[str, ...] = ("mock-model",)
    context_length: int = 4096
    key: str = ""
    dp_size: int = 1
    running: int = 0
    waiting: int = 0
    usage: float = 0.0
    healthy: bool = True
    audio: bool = False
    messages: bool = False
    responses: bool = False
    hidden: frozenset[str] = frozenset()
    headers: tuple[tuple[str, str], ...] = ()


class Answer(msgspec.Struct):
    """One generation in all forms: ``events`` are JSON objects of a stream, ``whole`` the buffered answer."""

    events: list[Any]
    whole: Any
