"""Chain: the parsers of one choice, from decoded text to Events.

Text goes through the reasoning parser, what is Content there through the tool parser. Log probabilities and ids ride on
the first event that comes after them, so that each appears exactly once and in order (case OA-06), whatever the text
became and however long a parser held it.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from smg.core import ids
from smg.core.batch import TokenLogprobs
from smg.core.events import Event, Finish, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from smg.core.stream import SEAL, RowOutput, Wait
from smg.parsing import call_ids
from smg.parsing.base import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Parser,
    Piece,
    Reasoning,
    Start,
    Surplus,
)
from smg.parsing.call_ids import Mint
from smg.parsing.custom import Input
from smg.parsing.held import Held
from smg.parsing.passthrough import Passthrough

logger = logging.getLogger(__name__)


class Chain:
    """Parsers of one choice; ``reasoning`` and ``tools`` are fresh objects, None where there is nothing to parse.

    ``enough`` is True once nothing that follows will be wanted, which may come to be so where ``ends_early``; what is
    fed then becomes nothing. ``with_ids`` puts token ids on the events. ``mint`` makes the id of a tool call,
    ``earlier`` is how many calls the conversation has had.
    """

    def __init__(
        self,
        choice: int,
        start: Start,
        reasoning: Parser | None = None,
        tools: Parser | None = None,
        *,
        with_ids: bool = False,
        mint: Mint = call_ids.default,
        earlier: int = 0,
    ) -> None:
        self.choice = choice
        self.plain = reasoning is None and tools is None
        self.markers: tuple[str, ...] = ()
        if not self.plain:
            self.markers = tuple(marker for parser in (reasoning, tools) if parser for marker in parser.markers)
        self._reasoning = reasoning or Passthrough(start)
        self._tools = tools or Passthrough(start)
        # Text that passes through is never held.
        self._held = {} if self.plain else {"reasoning": Held(), "tools": Held()}
        self._failed = start.failed
        self.seals = start.seals
        self._mint = mint
        self._number = earlier
        self._with_ids = with_ids
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._calls: list[str] = []
        self._kinds = {tool.name: tool.kind for tool in start.tools} if start.tools else {}
        self._input: Input | None = None  # of the custom tool that is being called
        self.enough = False
        self.ends_early = tools is not None and not start.parallel
        self._open = False
        self._broken_off = False
        if start.history and not self.plain:
            # The client has this text already: the parser reads it only to know where the output goes on.
            self._guard("reasoning", self._reasoning, start.seals.put(start.history))
            self._held["reasoning"] = Held()

    def feed(self, output: RowOutput) -> list[Event]:
        """Turn one output of the choice's row into events."""
        if self._with_ids:
            self._ids += output.ids
        if output.logprobs:
            self._logprobs += output.logprobs
        if not output.text or self.enough:
            return []
        if self.plain:
            return [TextDelta(self.choice, output.text, *self._take())]
        return self._events(self._parse(output.text))

    def wait(self) -> Wait | None:
        """What the parsers wait for; text before it may go past the chain and is not missed. None: none may."""
        if self._with_ids or self._logprobs or self.enough:
            return None
        wait = self._reasoning.wait()
        if wait is None:
            return None
        if wait.kind == "text":
            inner = self._tools.wait()
            if inner is None:
                return None
            wait = msgspec.structs.replace(inner, markers=wait.markers + inner.markers)
            if wait.kind != "held" and not self.plain:
                self._held["tools"].settle()
        if wait.kind == "arguments" and self._input is not None:
            of_input = self._input.wait(wait)
            if of_input is None:
                return None
            wait = of_input
        if not self.plain:
            self._held["reasoning"].settle()
        if self.seals.texts:
            wait = msgspec.structs.replace(wait, markers=(*wait.markers, SEAL))
        return msgspec.structs.replace(wait, call=len(self._calls) - 1) if wait.kind == "arguments" else wait

    def finish(self, reason: str, matched: int | str | None = None) -> list[Event]:
        """The output is over: release what parsers held, and end with Finish.

        ``reason`` is the engine's or ``stop`` for a stop the gateway found; a ``stop`` with calls becomes
        ``tool_calls``, ``length`` stays what it is (case OA-05). A call that broke off is kept as far as it was sent
        and marked by its ToolCallEnd; the reason then stays ``stop``, because ``tool_calls`` would ask clients to run
        calls whose arguments are cut off.
        """
        if self.plain:
            last = [TextDelta(self.choice, "", *self._take())] if self._logprobs or self._ids else []
            return [*last, Finish(self.choice, reason, matched)]
        # A client's stop string may have cut anything; a stop id is where the model meant to end.
        cut = reason not in ("stop", "tool_calls") or isinstance(matched, str)
        pieces: list[Piece] = []
        for piece in self._guard("reasoning", self._reasoning, None, cut):
            pieces += self._tool_pieces(piece)
        pieces += self._guard("tools", self._tools, None, cut)
        if self.enough:
            # The output was broken off inside a call that nobody wants.
            pieces = [piece for piece in pieces if not isinstance(piece, Content)]
        events = self._events(pieces)
        if self._open:
            events += self._events([CallEnd(complete=False)])
        if self._logprobs or self._ids:
            events.append(TextDelta(self.choice, "", *self._take()))
        if reason == "stop" and self._calls and not self._broken_off:
            reason = "tool_calls"
        return [*events, Finish(self.choice, reason, matched)]

    def _parse(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        for piece in self._guard("reasoning", self._reasoning, text):
            pieces += self._tool_pieces(piece)
        return pieces

    def _tool_pieces(self, piece: Piece) -> list[Piece]:
        return self._guard("tools", self._tools, piece.text) if isinstance(piece, Content) else [piece]

    def _guard(self, kind: str, parser: Parser, text: str | None, cut: bool = False) -> list[Piece]:
        """Feed ``text`` (None: finish). A parser that fails is replaced, because model output is never an error.

        Text that it may have held then comes out as Content, behind the end of a call that it has left open.
        """
        held = self._held[kind]
        try:
            if text is None:
                return parser.finish(cut)
            pieces = parser.feed(text)
        except Exception:
            logger.exception("the %s parser failed; the rest of the output is passed on unparsed", kind)
            self._failed(kind)
        else:
            held.took(text, pieces)
            return pieces
        plain = Passthrough(Start())
        if kind == "tools":
            self._tools = plain
        else:
            self._reasoning = plain
        broken: list[Piece] = [CallEnd(complete=False)] if held.open else []
        self._held[kind] = Held()
        return [*broken, Content(held.take() + (text or ""))]

    def _events(self, pieces: Sequence[Piece]) -> list[Event]:
        events: list[Event] = []
        for piece in _merged(map(self._unsealed, pieces) if self.seals.texts else pieces):
            match piece:
                case Content(text=text):
                    events.append(TextDelta(self.choice, text, *self._take()))
                case Reasoning(text=text):
                    events.append(ReasoningDelta(self.choice, text, None, *self._take()))
                case CallStart():
                    events.append(self._start(piece))
                case CallArguments(text=text):
                    events += self._arguments(text if self._input is None else self._input.feed(text))
                case Surplus():
                    self.enough = True
                    break
                case CallEnd(complete=complete):
                    if self._input is not None:
                        events += self._arguments(self._input.finish())
                    self._open = False
                    self._broken_off = self._broken_off or not complete
                    events.append(ToolCallEnd(self.choice, len(self._calls) - 1, complete))
        return events

    def _unsealed(self, piece: Piece) -> Piece:
        """``piece`` as the client gets it: a marker that nobody has read is text."""
        match piece:
            case Content(text=text) | Reasoning(text=text) | CallArguments(text=text) if SEAL in text:
                return msgspec.structs.replace(piece, text=self.seals.off(text))
            case CallStart(name=name, native_id=native_id) if SEAL in name + (native_id or ""):
                return CallStart(self.seals.off(name), native_id and self.seals.off(native_id))
        return piece

    def _arguments(self, text: str) -> list[Event]:
        return [ToolCallDelta(self.choice, len(self._calls) - 1, text, *self._take())] if text else []

    def _start(self, piece: CallStart) -> ToolCallStart:
        call = self._id(piece)
        kind = self._kinds.get(piece.name, "function")
        self._input = Input() if kind == "custom" else None
        self._calls.append(call)
        self._number += 1
        self._open = True
        return ToolCallStart(self.choice, len(self._calls) - 1, call, piece.name, kind, *self._take())

    def _id(self, piece: CallStart) -> str:
        """The model's own id if it can be one, else a new one: unique in the choice either way."""
        native = piece.native_id
        if native is not None and ids.acceptable(native) and native not in self._calls:
            return native
        while (minted := self._mint(piece.name, self._number)) in self._calls:
            self._number += 1
        return minted

    def _take(self) -> tuple[tuple[TokenLogprobs, ...] | None, tuple[int, ...] | None]:
        """What has come since the last event."""
        if not self._logprobs and not self._ids:
            return None, None
        logprobs, tokens = tuple(self._logprobs) or None, tuple(self._ids) or None
        self._logprobs.clear()
        self._ids.clear()
        return logprobs, tokens


def _merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbours of one kind and drop empty texts: one event per batch and kind."""
    out: list[Piece] = []
    for kind, group in groupby(pieces, type):
        if kind in (CallStart, CallEnd, Surplus):
            out += group
            continue
        text = "".join(piece.text for piece in group if isinstance(piece, Content | Reasoning | CallArguments))
        if text:
            out.append(
                Content(text) if kind is Content else Reasoning(text) if kind is Reasoning else CallArguments(text)
            )
    return out
