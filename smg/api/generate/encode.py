"""Encodes a streamed answer: each frame is the whole object so far, with the ids that are new (text-pipeline 13).

What is repeated from frame to frame is kept as JSON, so that a frame costs copying and no second encoding.
"""

from collections.abc import Sequence

import msgspec

from smg._native import sse
from smg.api.generate.facts import Facts, known
from smg.core.batch import TokenLogprobs
from smg.core.errors import GatewayError, openai_shape
from smg.core.events import Event, Finish, PromptLogprobs, TextDelta, Usage
from smg.core.stream import ByteTemplate, Counter, TextKind

_encode = msgspec.json.encode


class _Growing:
    """A JSON list that only grows, as its encoded items."""

    def __init__(self) -> None:
        self._items = bytearray()

    def add(self, values: Sequence[object]) -> None:
        if values:
            self._items += b"," * bool(self._items) + _encode(values)[1:-1]

    def clear(self) -> None:
        self._items.clear()

    def json(self) -> bytes:
        return b"[" + self._items + b"]"


class _Choice:
    """What one choice's frames carry; ``lists`` are those of log probabilities, by their names in ``meta_info``."""

    def __init__(self, lists: Sequence[str]) -> None:
        self.text = bytearray()
        self.ids: list[int] = []
        self.count = 0
        self.lists = {name: _Growing() for name in lists}
        self.finish: Finish | None = None

    def info(self) -> bytes:
        """The lists as members of an object."""
        return b"".join(b',"%b":%b' % (name.encode(), rows.json()) for name, rows in self.lists.items())

    def clear(self, *, everything: bool) -> None:
        """Forget what the next frame does not repeat."""
        self.ids = []
        if everything:
            self.text.clear()
            for rows in self.lists.values():
                rows.clear()


class GenerateStream:
    """Implements ``api.dialect.StreamEncoder``."""

    def __init__(self, facts: Facts, choices: int) -> None:
        self.counter = Counter()
        self._facts = facts
        self._usage = Usage()
        kinds = ("token", "top") if facts.top else ("token",)
        names = [f"{side}_{kind}_logprobs" for side in ("input", "output") for kind in kinds] if facts.probs else []
        self._choices = [_Choice(names) for _ in range(choices)]

    def preamble(self, *, direct: bool) -> bytes:
        return b""

    def template(self, choice: int, kind: TextKind = "text", call: int = 0) -> ByteTemplate | None:
        """Every frame has counts and ids: Python per delta."""
        return None

    def events(self, events: list[Event]) -> bytes:
        """One frame for each choice that something happened to."""
        changed: dict[int, None] = {}
        for event in events:
            match event:
                case Usage():
                    self._usage = event
                case TextDelta():
                    changed[event.choice] = None
                    self._add(self._choices[event.choice], event)
                case PromptLogprobs():
                    self._add_rows(self._choices[event.choice], "input", self._facts.wanted(event.rows))
                case Finish():
                    changed[event.choice] = None
                    self._choices[event.choice].finish = event
        return b"".join(self._frame(choice) for choice in changed)

    def failure(self, error: GatewayError) -> bytes:
        return b"data: " + _encode(openai_shape(error)) + b"\n\n"

    def closing(self) -> bytes:
        return b"data: [DONE]\n\n"

    def keepalive(self) -> bytes:
        return b": ping\n\n"

    def _add(self, state: _Choice, event: TextDelta) -> None:
        state.text += sse.escape(event.text)
        state.ids += event.ids or ()
        state.count += len(event.ids or ())
        self._add_rows(state, "output", known(event.logprobs or ()))

    def _add_rows(self, state: _Choice, side: str, rows: Sequence[TokenLogprobs]) -> None:
        if self._facts.probs:
            state.lists[f"{side}_token_logprobs"].add(self._facts.tokens(rows))
        if self._facts.top:
            state.lists[f"{side}_top_logprobs"].add(self._facts.tops(rows))

    def _frame(self, choice: int) -> bytes:
        state, options = self._choices[choice], self._facts.options
        info = _encode(self._facts.info(choice, self._usage, state.count, state.finish))[:-1] + state.info() + b"}"
        index = b',"index":%d' % choice if options.several else b""
        text, ids = bytes(state.text), _encode(state.ids)
        state.clear(everything=options.incremental)
        return b'data: {"text":"%b","output_ids":%b,"meta_info":%b%b}\n\n' % (text, ids, info, index)
