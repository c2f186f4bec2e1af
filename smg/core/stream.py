"""Interfaces of the token path: StreamTable, Sink and Tap (DESIGN 6).

A StreamTable has one row per request and choice. A Source's ids are fed into rows; a row decodes, scans for stops and
markers, and hands its text on in one of two ways:

* **direct**: finished bytes go to the row's Sink by the dialect's byte template, without Python per token: one event
  for each token that yields text, all events of a feed in one ``write``;
* **tapped**: the row's Tap gets one call per fed batch with the decoded text, for parsing, logprobs and hooks.

A row that a parser reads is both by turns. Where the parser says what it waits for (``Wait``), the row goes direct up
to there; then the Tap gets the rest of the feed, and the row is tapped until it is told to go direct again.

``smg.text.tables`` makes the one that runs, the native table; ``smg.text.stream_table`` is its Python twin.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from smg._native.counter import Counter
from smg._native.json_scan import JsonScan
from smg._native.python_scan import PythonScan
from smg.core.batch import TokenLogprobs

__all__ = [
    "SEAL",
    "ByteTemplate",
    "Counter",
    "Decoder",
    "Feeder",
    "Marker",
    "NoDecoder",
    "RowOutput",
    "RowSpec",
    "Sink",
    "SocketSink",
    "StreamTable",
    "Tap",
    "TextKind",
    "Wait",
]

# In the text that a row gives its tap, this stands in front of a sealed marker (``Marker``). No text meant for
# interchange has this character; where tokens spell it, a row with sealed markers gives U+FFFD.
SEAL = "\ufdd0"

# What a row's text is to the client: the answer, reasoning, or the JSON text of a call's arguments.
TextKind: TypeAlias = Literal["text", "reasoning", "arguments"]


class ByteTemplate(msgspec.Struct, frozen=True):
    """Bytes of one hot event with holes: ``pieces[0] hole[0] pieces[1] hole[1] … pieces[-1]``.

    Holes: ``text`` (JSON-escaped, without quotes), ``sequence`` (decimal, the response's running event number).
    ``len(pieces) == len(holes) + 1``.
    """

    pieces: tuple[bytes, ...]
    holes: tuple[str, ...]


class Sink(Protocol):
    """Takes finished bytes of one response."""

    def write(self, data: bytes) -> bool:
        """Queue ``data``; False when the consumer lags and ``drain`` should be awaited before more is fed."""
        ...

    async def drain(self) -> None:
        """Wait until the consumer has caught up. Raises ConnectionError when it has gone."""
        ...


class Feeder(Protocol):
    """Writes to a client's socket that a ``SocketSink`` has lent it."""

    @property
    def last_sent(self) -> float:
        """When the socket last took bytes, in seconds of the monotonic clock (0.0: never)."""
        ...

    def disarm(self) -> None:
        """Write no more and give the socket back at once. Idempotent."""
        ...


class SocketSink(Sink, Protocol):
    """A sink that lends its socket, so that a native source can write HTTP chunks to it."""

    def lend(self, feeder: Feeder) -> int:
        """Return a descriptor for whole chunks, valid until ``give_back``, or -1: not now, use ``write``."""
        ...

    def give_back(self, rest: bytes) -> None:
        """Take the socket back, with the end of a chunk that it has taken only the beginning of (mostly empty)."""
        ...


class Decoder(Protocol):
    """Id to bytes table of one tokenizer. ``token_bytes`` of a special token is its text's UTF-8.

    ``first_bytes`` is what the token gives at the very start of a text: decoders of the Metaspace kind drop a leading
    space there. Ids outside the vocabulary (engines pad it) give no bytes and are not special.
    """

    size: int

    def token_bytes(self, token: int) -> bytes: ...

    def first_bytes(self, token: int) -> bytes: ...

    def is_special(self, token: int) -> bool: ...


class NoDecoder:
    """Stands in for a tokenizer: the model is not known yet, or its engine makes text by itself."""

    size = 0

    def token_bytes(self, token: int) -> bytes:
        return b""

    def first_bytes(self, token: int) -> bytes:
        return b""

    def is_special(self, token: int) -> bool:
        return False


class Marker(msgspec.Struct, frozen=True):
    """A text that a parser reads: the special token that spells it, if there is one, is decoded in any case.

    ``sealed``: the text counts only when that token brings it, so the row puts ``SEAL`` in front of it.
    """

    text: str
    token: int | None = None
    sealed: bool = False


class Wait(msgspec.Struct, frozen=True):
    """What the parser of a row waits for in its present state. Text before that needs no parser: it is ``kind`` as it
    stands (``arguments``: of the choice's call number ``call``), and leaves the parser's state as it is.

    The parser has to be asked again from where one of ``markers`` (not empty, each the beginning of what it waits for)
    may begin. With ``json`` the text is also followed as JSON and goes on only as far as the scanner takes it; the
    scanner is the parser's own, so the parser knows where in the value the text is when it is asked again. ``quoted``:
    the text is what a JSON string says, and goes on as it stands between the string's quotes.

    ``held`` is text that the parser can do nothing with before it has come to an end: one of ``markers``, or the end of
    the expression that ``python`` follows. The row keeps it till then and gives it to the parser in one piece, from
    where the wait began; at times also earlier, so that the parser can give up.
    """

    kind: TextKind | Literal["held"]
    markers: tuple[str, ...] = ()
    json: JsonScan | None = None
    python: PythonScan | None = None
    quoted: bool = False
    call: int = 0


class RowSpec(msgspec.Struct, frozen=True):
    """How one row decodes and stops.

    ``end_ids`` are hidden end tokens (EOS and hidden stop ids): they end the row and never become text, unless
    ``stop_visible``; those also in ``eos_ids`` end it without a match to report. ``stop_strings`` follow spec
    text-pipeline 5: earliest end wins, ties to the longest; one that is complete within the first ``min_tokens`` tokens
    does not count. ``continues`` is True when the output goes on from text of
    the prompt (completions, a continued assistant message), so that its first token keeps a leading space.
    A row with sealed ``markers`` goes direct only with a ``Wait`` that has ``SEAL`` among its markers.
    """

    choice: int = 0
    skip_special_tokens: bool = True
    end_ids: frozenset[int] = frozenset()
    eos_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    stop_visible: bool = False
    min_tokens: int = 0
    markers: tuple[Marker, ...] = ()
    continues: bool = False


class RowOutput(msgspec.Struct, gc=False):
    """What one feed brought for a tapped row.

    ``text`` is whole characters that can no longer be part of a stop string, with a ``SEAL`` before each sealed marker,
    which is never held apart from it. ``ids`` and ``logprobs`` are those taken
    (also when their text is still held); a hidden end token is among the ids but has no row of logprobs. ``stopped`` is
    set once: the row takes nothing more; ``matched`` is the stop string or id (None for EOS). The output of ``finish``
    has no ids. ``ids`` may be the sequence that was fed: neither side changes it.
    """

    choice: int
    text: str
    ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs] | None
    stopped: bool = False
    matched: int | str | None = None


class Tap(Protocol):
    """Gets a tapped row's output, once per fed batch, never per token."""

    def on_output(self, row: int, output: RowOutput) -> None: ...


class StreamTable(Protocol):
    """Rows of running choices. Handles are small ints, reused after ``close``."""

    def open(self, spec: RowSpec, decoder: Decoder, tap: Tap) -> int:
        """Open a tapped row and return its handle."""
        ...

    def direct(self, row: int, sink: Sink, template: ByteTemplate, counter: Counter, wait: Wait | None = None) -> None:
        """Send the row's further text straight to ``sink``; the tap then only hears of the stop and the end.

        With ``wait`` only up to what a parser waits for. When that comes, or may have begun where the row ends, the tap
        gets the text from there on, after the sink has got what is before it, and the row is tapped again.
        """
        ...

    def feed(self, row: int, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None = None) -> bool:
        """Feed new ids; False when the row has stopped (now or before) and the engine should be told.

        Ids after a stop are discarded and not counted.
        """
        ...

    def finish(self, row: int) -> None:
        """End of the engine's stream: flush held text and undecoded bytes (as U+FFFD) to the sink or the tap."""
        ...

    def ids(self, row: int) -> Sequence[int]:
        """All ids the row has taken (resume, budgets, storage)."""
        ...

    def text(self, row: int) -> str:
        """All text the row has emitted, without seals."""
        ...

    def close(self, row: int) -> None:
        """Forget the row."""
        ...

    def __len__(self) -> int:
        """Number of open rows (0 when idle: a leak test reads it)."""
        ...
