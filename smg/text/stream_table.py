"""PythonStreamTable: ids to text, special tokens, stops, and the way out (``core.stream.StreamTable``).

The plain twin of the native table and its oracle in tests.
"""

import codecs
import re
from collections.abc import Sequence

from smg._native import sse
from smg.core.batch import TokenLogprobs
from smg.core.stream import SEAL, ByteTemplate, Counter, Decoder, RowOutput, RowSpec, Sink, Tap, Wait
from smg.text.stops import StopScanner
from smg.text.waits import Gate

_make_utf8 = codecs.getincrementaldecoder("utf-8")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")


class PythonStreamTable:
    """Rows of running choices. Not thread-safe: it belongs to one event loop."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._free: list[int] = []

    def open(self, spec: RowSpec, decoder: Decoder, tap: Tap) -> int:
        row = self._free.pop() if self._free else len(self._rows)
        self._rows[row] = _Row(spec, decoder, tap)
        return row

    def direct(self, row: int, sink: Sink, template: ByteTemplate, counter: Counter, wait: Wait | None = None) -> None:
        state = self._rows[row]
        if state.gate is not None:
            state.held = state.gate.take()
        state.out = _Direct(sink, template, counter)
        state.gate = None if wait is None else Gate(wait)

    def feed(self, row: int, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None = None) -> bool:
        state = self._rows[row]
        if state.over:
            return False
        if ids:
            state.deliver(row, *state.take(ids, logprobs))
        return not state.over

    def finish(self, row: int) -> None:
        state = self._rows[row]
        if not state.over:
            state.over = True
            texts = [state.flush()]
            output = RowOutput(state.spec.choice, "", (), None, state.matched is not None, state.matched)
            state.deliver(row, texts, output)

    def ids(self, row: int) -> Sequence[int]:
        return self._rows[row].ids

    def text(self, row: int) -> str:
        state = self._rows[row]
        text = "".join(state.sent)
        return text.replace(SEAL, "") if state.sealed else text

    def close(self, row: int) -> None:
        del self._rows[row]
        self._free.append(row)

    def __len__(self) -> int:
        return len(self._rows)


class _Direct:
    """Where a direct row's text goes."""

    __slots__ = ("_counter", "_numbered", "_sink", "_template")

    def __init__(self, sink: Sink, template: ByteTemplate, counter: Counter) -> None:
        self._sink = sink
        self._template = template
        self._counter = counter
        self._numbered = "sequence" in template.holes

    def write(self, texts: Sequence[str]) -> None:
        """Write one event for each text that is not empty, all together."""
        events = b"".join(self._event(text) for text in texts if text)
        if events:
            self._sink.write(events)

    def _event(self, text: str) -> bytes:
        number = self._counter.take() if self._numbered else 0
        return sse.fill(self._template.pieces, self._template.holes, text, number)


class _Row:
    """One choice: what it has taken, what it holds, and where its text goes (``out`` None: to the tap)."""

    def __init__(self, spec: RowSpec, decoder: Decoder, tap: Tap) -> None:
        self.spec = spec
        self.out: _Direct | None = None
        self.gate: Gate | None = None
        # What an earlier gate held.
        self.held = ""
        self.ids: list[int] = []
        self.sent: list[str] = []
        self.over = False
        self.matched: int | str | None = None
        self._decoder = decoder
        self._tap = tap
        self._utf8 = _make_utf8("replace")
        self._stops = StopScanner(spec.stop_strings, spec.stop_visible) if spec.stop_strings else None
        self._shown = frozenset(marker.token for marker in spec.markers if marker.token is not None)
        self.sealed = frozenset(marker.token for marker in spec.markers if marker.sealed and marker.token is not None)
        self._seals = _Seals()
        self._at_start = not spec.continues
        # Tokens taken, the one at work included.
        self._taken = 0

    def take(self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] | None) -> tuple[list[str], RowOutput]:
        """Take ``ids`` up to the end of the row, if it comes; returns each one's text and the rest of the output."""
        texts: list[str] = []
        taken = scored = 0
        for token in ids:
            taken += 1
            self._taken += 1
            if token in self.spec.end_ids:
                scored += self.spec.stop_visible
                texts.append(self._end(token))
                break
            scored += 1
            texts.append(self._scan(self._decode(token)))
            if self._stops is not None and self._stops.matched is not None:
                self.over, self.matched = True, self._stops.matched
                break
        kept = ids[:taken]
        self.ids += kept
        rows = None if logprobs is None else logprobs[:scored]
        return texts, RowOutput(self.spec.choice, "", kept, rows, self.over, self.matched)

    def deliver(self, row: int, texts: list[str], output: RowOutput) -> None:
        """Send a feed's outcome on. The tap of a direct row hears only of its end, or when its parser is due."""
        texts[0], self.held = self.held + texts[0], ""
        if self.gate is not None:
            texts = [self.gate.feed(text) for text in texts]
        self.sent += texts
        if self.out is not None:
            self.out.write(texts if self.gate is None else [self.gate.told(text) for text in texts])
            if not (self.over or (self.gate is not None and self.gate.due)):
                return
        if self.gate is not None:
            texts, self.gate, self.out = [self.gate.take()], None, None
            self.sent += texts
        if self.out is None:
            output.text = "".join(texts)
        self._tap.on_output(row, output)

    def flush(self) -> str:
        """The engine's stream is over: everything held, undecoded bytes as U+FFFD."""
        text = self._scan(self._utf8.decode(b"", True))
        if self._stops is None:
            return text
        if self._stops.matched is not None:
            self.matched = self._stops.matched
        return text + self._seals.put(self._stops.flush())

    def _end(self, token: int) -> str:
        """An end token came: show it if asked, and release everything held."""
        text = self._scan(self._sealed(token)) if self.spec.stop_visible else ""
        text += self.flush()
        self.over = True
        if self.matched is None and token not in self.spec.eos_ids:
            self.matched = token
        return text

    def _decode(self, token: int) -> str:
        if self.spec.skip_special_tokens and self._decoder.is_special(token) and token not in self._shown:
            return ""
        return self._sealed(token)

    def _sealed(self, token: int) -> str:
        """The token's text, with the seal in front that it may have."""
        if token not in self.sealed:
            return self._characters(token)
        unfinished = self._utf8.decode(b"", True)
        return unfinished + SEAL + self._characters(token)

    def _characters(self, token: int) -> str:
        """What the token completes. U+FFFD stands for bytes as soon as they can become no character."""
        text = self._utf8.decode(self._bytes(token))
        if _SURROGATE.fullmatch(self._utf8.getstate()[0]):
            # The half of a surrogate pair, where this decoder waits for a third byte only to refuse all three.
            text += self._utf8.decode(b"", True)
        return text.replace(SEAL, "\ufffd") if self.sealed else text

    def _bytes(self, token: int) -> bytes:
        if self._at_start:
            self._at_start = False
            return self._decoder.first_bytes(token)
        return self._decoder.token_bytes(token)

    def _scan(self, text: str) -> str:
        if self._stops is None or not text:
            return text
        return self._seals.put(self._stops.feed(self._seals.take(text), self._taken <= self.spec.min_tokens))


class _Seals:
    """Takes seals out of text that is scanned for stops, and puts them back into what comes out."""

    def __init__(self) -> None:
        self._taken = 0  # characters without seals
        self._given = 0
        self._places: list[int] = []

    def take(self, text: str) -> str:
        parts = text.split(SEAL)
        for part in parts[:-1]:
            self._taken += len(part)
            self._places.append(self._taken)
        self._taken += len(parts[-1])
        return "".join(parts)

    def put(self, text: str) -> str:
        out, start = "", 0
        while self._places and self._places[0] < self._given + len(text):
            end = self._places.pop(0) - self._given
            out, start = out + text[start:end] + SEAL, end
        self._given += len(text)
        return out + text[start:]
