"""What a reasoning or tool-call format provides (spec parsers 1). Adding one: a file in ``reasoning/`` or ``tools/``
and a row in ``table.py``.

One parser object serves one choice of one request. ``feed`` gets whatever text is new, cut anywhere; ``finish`` gets
the end of the output. Nothing fed may be lost: what is neither reasoning nor a call comes back as ``Content``.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec

from smg.core.request import Tool
from smg.core.stream import Wait
from smg.parsing.markers import UNSEALED, Seals


class Content(msgspec.Struct, frozen=True):
    text: str


class Reasoning(msgspec.Struct, frozen=True):
    text: str


class CallStart(msgspec.Struct, frozen=True):
    """``name`` is complete; ``native_id`` is the model's own id, if its format has one."""

    name: str
    native_id: str | None = None


class CallArguments(msgspec.Struct, frozen=True):
    """A piece of the JSON text of the arguments of the call that started last."""

    text: str


class CallEnd(msgspec.Struct, frozen=True):
    complete: bool = True


class Surplus(msgspec.Struct, frozen=True):
    """A call begins that nobody wants: the request allows only one. Nothing of it follows."""


Piece: TypeAlias = Content | Reasoning | CallStart | CallArguments | CallEnd | Surplus


def _unheard(kind: str) -> None:
    """Nobody wants to know."""


class Start(msgspec.Struct, frozen=True):
    """What a parser is told before the first token.

    ``prompt_tail`` is the end of the rendered prompt (up to 256 characters): it tells whether the prompt has already
    opened a reasoning block. ``history`` is the text of an assistant message that is being continued; it follows the
    tail. ``thinking`` is the resolved toggle, None when the template has none. ``tools`` are those offered in the
    request. ``parallel`` False: only the first call counts (case OA-09). ``unknown_tools`` is what the operator wants
    done with a call of a tool that was not offered: ``forward``, ``drop`` or ``text``; None (not said): a marked call
    is forwarded, one without markers is text (case TP-10). ``failed`` is called with ``reasoning`` or ``tools`` when a
    parser breaks. ``seals`` are the markers that count only as tokens of their own; prompt and history have no seals.
    """

    prompt_tail: str = ""
    history: str = ""
    thinking: bool | None = None
    tools: Sequence[Tool] = ()
    parallel: bool = True
    unknown_tools: str | None = None
    failed: Callable[[str], None] = _unheard
    seals: Seals = UNSEALED


class Parser(Protocol):
    """A reasoning parser (yields Reasoning and Content) or a tool parser (Content and calls).

    ``markers`` are the texts it must be shown as text although they are special tokens of the vocabulary.
    """

    markers: tuple[str, ...]

    def feed(self, text: str) -> list[Piece]: ...

    def wait(self) -> Wait | None:
        """What the parser waits for now; None when it has to see all text.

        Text before it would come out as it is, Content (``text``), Reasoning or CallArguments, and leave the parser in
        the state that it is in. So nothing may be held.
        """
        ...

    def finish(self, cut: bool = False) -> list[Piece]:
        """``cut``: the output broke off (token limit, abort), so nothing that is open may be closed (case OA-05)."""
        ...


class ParserFactory(Protocol):
    def __call__(self, start: Start) -> Parser: ...
