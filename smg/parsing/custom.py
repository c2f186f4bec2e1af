"""The input of a custom tool: free text, which models are shown, and write, as a function's only argument.

Callers want the text itself. It is taken out of the arguments' JSON while that arrives.
"""

import contextlib

from msgspec.structs import replace

from smg.core import stream
from smg.core.request import INPUT
from smg.parsing.engine import json_text
from smg.parsing.engine.cursor import Cursor, Malformed, Wait


class Input:
    """Unwraps ``{"input": "…"}``; arguments of any other form are the input as they are, so that nothing is lost."""

    def __init__(self) -> None:
        self._cursor = Cursor()
        self._out: list[str] = []
        self._given: list[str] = []
        self._recognised = self._plain = False
        self._reader: Wait[None] | None = self._read()

    def feed(self, text: str) -> str:
        """Take more of the arguments; returns what it adds to the input."""
        if self._plain:
            return text
        if not self._recognised:
            self._given.append(text)
        self._cursor.feed(text)
        self._resume()
        out, self._out = "".join(self._out), []
        return out

    def wait(self, wait: stream.Wait) -> stream.Wait | None:
        """What ``wait``, which is for the arguments, is for the input; None where their text is not the input's.

        Inside of the string it is as far as the next escape or quote.
        """
        if self._plain:
            return wait
        if not self._recognised or self._reader is None or not self._cursor.idle:
            return None
        if wait.quoted:
            return replace(wait, quoted=False)
        return replace(wait, markers=(*wait.markers, '"', "\\"))

    def finish(self) -> str:
        """The arguments are over, or broke off; returns what the input still lacked."""
        self._cursor.final = True
        if not self._plain:
            self._resume()
        out, self._out = "".join(self._out), []
        return out

    def _resume(self) -> None:
        if self._reader is None:
            return
        try:
            next(self._reader)
        except StopIteration:
            self._reader = None
        except Malformed:
            self._reader = None
            if not self._recognised:
                self._recognised = True
                self._plain = True
                self._out = ["".join(self._given)]

    def _read(self) -> Wait[None]:
        cursor = self._cursor
        yield from cursor.visible()
        yield from json_text.object_head(cursor)
        cursor.at += 1
        if (yield from json_text.word(cursor)) != INPUT or (yield from cursor.visible()) != ":":
            raise Malformed
        cursor.at += 1
        if (yield from cursor.visible()) != '"':
            raise Malformed
        self._recognised = True
        self._given.clear()
        yield from json_text.string(cursor, self._take)

    def _take(self, fragment: str) -> None:
        # An escape that was cut off at the end stands for nothing.
        with contextlib.suppress(ValueError):
            self._out.append(json_text.unescape(fragment))
