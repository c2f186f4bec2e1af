"""The client side of a generation: one typed stream of events that every dialect encodes in its own way.

Delta events may carry ``logprobs`` (one row per token that the text came from) and ``ids``. Buffered answers are these
events folded by one accumulator (``smg.pipeline.accumulator``), so streamed and buffered answers agree by construction.
"""

from typing import Any, TypeAlias

import msgspec

from smg.core.batch import TokenLogprobs


class TextDelta(msgspec.Struct, frozen=True):
    """More answer text. ``text`` may be empty when the event only brings logprobs."""

    choice: int
    text: str
    logprobs: tuple[TokenLogprobs, ...] | None = None
    ids: tuple[int, ...] | None = None


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More reasoning text; ``signature`` is set once, on the last delta, by providers that sign their thinking."""

    choice: int
    text: str
    signature: str | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    ids: tuple[int, ...] | None = None


class ToolCallStart(msgspec.Struct, frozen=True):
    """A call begins: ``index`` counts calls within the choice from 0, ``name`` is complete, ``id`` is final."""

    choice: int
    index: int
    id: str
    name: str
    kind: str = "function"
    logprobs: tuple[TokenLogprobs, ...] | None = None
    ids: tuple[int, ...] | None = None


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A piece of the arguments' JSON text (or of a custom tool's free-form input)."""

    choice: int
    index: int
    arguments: str
    logprobs: tuple[TokenLogprobs, ...] | None = None
    ids: tuple[int, ...] | None = None


class ToolCallEnd(msgspec.Struct, frozen=True):
    """The call is over; ``complete`` is False when the output broke off inside it."""

    choice: int
    index: int
    complete: bool = True


class Refusal(msgspec.Struct, frozen=True):
    """More text of a refusal (providers, Harmony)."""

    choice: int
    text: str


class Annotation(msgspec.Struct, frozen=True):
    """A citation or file reference on the text sent so far, in the provider's own JSON form."""

    choice: int
    annotation: dict[str, Any]


class PromptLogprobs(msgspec.Struct, frozen=True):
    """Log probabilities of the choice's prompt, one row per prompt token; before the choice's first delta."""

    choice: int
    rows: tuple[TokenLogprobs, ...]


class Finish(msgspec.Struct, frozen=True):
    """The choice is over: ``reason`` is ``stop``, ``length``, ``tool_calls`` or ``content_filter``.

    ``matched_stop`` is the stop string or stop token id that ended it, None for the model's own end of sequence.
    """

    choice: int
    reason: str
    matched_stop: int | str | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts of the whole request so far: each prompt once, outputs summed over the choices.

    The last Usage before the end of the stream is the final one. ``parts`` has the counts of each prompt when the
    request has several. ``weight_version`` names the weights, where the engine tells.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    spec_accepted_tokens: int = 0
    spec_draft_tokens: int = 0
    weight_version: str = ""
    parts: "tuple[Usage, ...]" = ()

    def part(self, number: int) -> "Usage":
        """The counts of one prompt."""
        return self.parts[number] if self.parts else self


class Failure(msgspec.Struct, frozen=True):
    """The generation broke: always the last event. Before the first byte it becomes an HTTP error, after it an error
    event in the dialect's shape; ``code``, ``message``, ``status`` are those of ``core.errors.GatewayError``."""

    code: str
    message: str
    status: int
    retry_after: float | None = None
    param: str | None = None


Event: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | Refusal
    | Annotation
    | PromptLogprobs
    | Finish
    | Usage
    | Failure
)


class ItemEvent(msgspec.Struct, frozen=True):
    """Frame around events in a tool loop, from which Responses, Messages and Interactions number their items.

    ``phase`` is ``opened``, ``progress`` or ``closed``; ``kind`` names the item (``message``, ``reasoning``,
    ``function_call``, ``mcp_call``, ``web_search_call``, …); ``item`` counts items of the response from 0;
    ``call`` counts model calls of the loop from 0; ``data`` is the item's JSON (whole when closed).
    """

    phase: str
    kind: str
    item: int
    call: int = 0
    data: dict[str, Any] = msgspec.field(default_factory=dict)
