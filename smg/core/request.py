"""GenerationRequest: the canonical form all dialects decode into and all backends read from.

What only one dialect has (thinking signatures, response items) has its own place here or in that dialect's state;
the raw body is kept, so that raw and provider backends patch it instead of re-encoding it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from smg.core.media import Encoded


class TextPart(msgspec.Struct, frozen=True):
    text: str


class MediaPart(msgspec.Struct, frozen=True):
    """An image, video, audio clip or file: a URL (http, https, data) or bytes with their declared media type.

    ``path`` is where the body has it, for errors, where its place in the conversation does not tell.
    """

    kind: str  # image, video, audio, file
    url: str | None = None
    data: Encoded | None = None
    media_type: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)  # detail, fps, uuid, …
    path: str = ""


class ReasoningPart(msgspec.Struct, frozen=True):
    """Reasoning of an earlier assistant turn; ``signature`` and ``redacted`` survive a round trip to their provider."""

    text: str
    signature: str | None = None
    redacted: str | None = None


class RefusalPart(msgspec.Struct, frozen=True):
    text: str


class RawPart(msgspec.Struct, frozen=True):
    """A part this gateway does not know but an HTTP engine or a provider may: ``type`` and the whole object.

    No prompt is made of it: where the gateway writes the prompt, it is refused.
    """

    type: str
    raw: dict[str, Any]


Part: TypeAlias = TextPart | MediaPart | ReasoningPart | RefusalPart | RawPart


class ToolCall(msgspec.Struct, frozen=True):
    """A call the assistant made: ``arguments`` is JSON text exactly as given (custom tools: free-form input).

    ``path`` is where the body has ``arguments``, for errors, where its place in the conversation does not tell.
    """

    id: str
    name: str
    arguments: str
    kind: str = "function"
    path: str = ""


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Arguments that a client gave as an object, spelled as chat templates spell them, and so models."""
    return json.dumps(arguments, ensure_ascii=False)


class Message(msgspec.Struct):
    """One turn. ``role`` is system, developer, user, assistant or tool.

    ``content`` is None (absent), the plain string the client sent, or its list of parts: templates tell the
    difference. ``tool_call_id`` and ``is_error`` belong to role tool. ``name`` is the optional author.
    """

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] = msgspec.field(default_factory=list)
    tool_call_id: str | None = None
    is_error: bool = False
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


INPUT = "input"  # the one argument under which models are shown a custom tool's input
_FREE_FORM: dict[str, Any] = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}


class ToolGrammar(msgspec.Struct, frozen=True):
    """What a custom tool's input must match: ``syntax`` is lark (the rule ``start``) or regex (the whole text)."""

    syntax: str
    definition: str


class Tool(msgspec.Struct, frozen=True):
    """A tool offered to the model. ``parameters`` is a JSON schema, None for custom (free-form) tools.

    ``grammar`` is a custom tool's, None where any text will do.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    kind: str = "function"
    raw: dict[str, Any] = msgspec.field(default_factory=dict)
    grammar: ToolGrammar | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the arguments as a model is to write them."""
        return _FREE_FORM if self.kind == "custom" else self.parameters or {}


class ToolChoice(msgspec.Struct, frozen=True):
    """``mode`` is auto, none or required; ``names`` restricts the calls to those tools (a named choice: one name)."""

    mode: str = "auto"
    names: tuple[str, ...] = ()
    parallel: bool = True


class Sampling(msgspec.Struct):
    """Sampling parameters; None means the model's default (worker info), then the engine contract's neutral value."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)


class Constraint(msgspec.Struct, frozen=True):
    """Structured output: exactly one of json_schema, json_object, regex, grammar, structural_tag, choice.

    ``value`` is the text of the schema, regex, grammar or tag (JSON for schema and tag), empty for json_object;
    ``choices`` belongs to choice.
    """

    kind: str
    value: str = ""
    choices: tuple[str, ...] = ()


class StopRules(msgspec.Struct):
    """What ends a choice besides the model's own end of sequence.

    ``strings`` are matched by the gateway on generated text, ``ids`` by the engine; ``visible`` keeps the match in the
    text. ``ignore_eos`` lets generation run past the end-of-sequence token.
    """

    strings: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    visible: bool = False
    ignore_eos: bool = False


class Limits(msgspec.Struct):
    """``max_tokens`` None means up to the end of the context, but at most ``usual``; 0 that only the prompt counts.

    ``paths`` are where the body has the first two, for errors.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    usual: int | None = None
    paths: tuple[str, str] = ("max_tokens", "min_tokens")


class Hints(msgspec.Struct, frozen=True):
    """Routing hints from headers and body (spec api-and-ops 2.1)."""

    routing_key: str | None = None
    target_worker: str | None = None
    priority: str | None = None
    dp_rank: int | None = None


class Logprobs(msgspec.Struct, frozen=True):
    """``top`` best candidates per token (0: only the sampled one); ``prompt`` asks for the prompt's own too."""

    top: int = 0
    prompt: bool = False


class GenerationRequest(msgspec.Struct):
    """One generation, whatever dialect asked for it.

    Exactly one of ``messages`` (chat), ``prompt_text``, ``prompt_ids`` and ``prompts`` is the input. ``prompts`` are
    several texts, or several lists of ids, each generated from by itself: choice ``i`` of prompt ``p`` has the index
    ``p * n + i``. ``prompt_path`` is where the body has the prompt, and ``constraint_path``
    where it has the constraint, for errors. ``suffix`` is to follow the output.
    ``return_ids`` asks for token ids on the events. ``dialect`` and ``raw`` (the body as received) let raw backends
    forward it. ``template_kwargs`` overlay the chat template's context. ``options``
    is what the dialect's own encoder reads back (``stream_options`` and the like); no other layer looks at it.
    ``thinking`` is the client's own wish (Messages ``thinking``), None when it has not said. ``lora`` names a LoRA
    adapter as the engine knows it. ``sign_reasoning`` wants a signature behind each block of reasoning, and with
    ``verify_reasoning`` only earlier reasoning that has one counts. ``counts_first``: the answer begins with the number
    of the prompt's tokens, so it is needed before an engine may have told it.

    ``attachments`` are media of prompts that have their placeholders themselves, one list per prompt, and
    ``attachments_path`` where the body has them. ``placeholders`` (kind of media to token) are what a chat template's
    media parts become; the pipeline puts in what the model takes.
    """

    dialect: str
    model: str
    messages: list[Message] = msgspec.field(default_factory=list)
    prompt_text: str | None = None
    prompt_ids: list[int] | None = None
    prompts: list[str] | list[list[int]] = msgspec.field(default_factory=list)
    prompt_path: str = "prompt"
    constraint_path: str = ""
    add_special_tokens: bool = True
    suffix: str | None = None
    tools: list[Tool] = msgspec.field(default_factory=list)
    tool_choice: ToolChoice = ToolChoice()
    sampling: Sampling = msgspec.field(default_factory=Sampling)
    constraint: Constraint | None = None
    stop: StopRules = msgspec.field(default_factory=StopRules)
    limits: Limits = msgspec.field(default_factory=Limits)
    n: int = 1
    stream: bool = False
    logprobs: Logprobs | None = None
    return_ids: bool = False
    skip_special_tokens: bool = True
    continue_final_message: bool = False
    separate_reasoning: bool = True
    reasoning_effort: str | None = None
    thinking: bool | None = None
    sign_reasoning: bool = False
    verify_reasoning: bool = False
    counts_first: bool = False
    template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    lora: str | None = None
    attachments: Sequence[Sequence[MediaPart]] = ()
    attachments_path: str = ""
    placeholders: Mapping[str, str] = {}
    hints: Hints = Hints()
    raw: bytes = b""
    options: Any = None

    @property
    def choices(self) -> int:
        """Number of choices of the whole answer."""
        return self.n * (len(self.prompts) or 1)

    def media(self) -> Iterator[tuple[str, MediaPart]]:
        """All media in the order of the prompt, each with the path of its part in the body."""
        for index, message in enumerate(self.messages):
            if isinstance(message.content, list):
                for number, part in enumerate(message.content):
                    if isinstance(part, MediaPart):
                        yield part.path or f"messages[{index}].content[{number}]", part
        several = len(self.attachments) > 1
        for prompt, parts in enumerate(self.attachments):
            path = f"{self.attachments_path}[{prompt}]" if several else self.attachments_path
            yield from ((f"{path}[{number}]", part) for number, part in enumerate(parts))
