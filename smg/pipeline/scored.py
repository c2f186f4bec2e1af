"""Which rows of log probabilities go out with a row's output, and when (spec text-pipeline 10, 11)."""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from smg.core.batch import TokenLogprobs
from smg.core.stream import Decoder, RowOutput, RowSpec
from smg.text.positions import Positions


class Rows(Protocol):
    """Chooses the rows for each output of one choice; ``fed`` are the rows of the ids that were fed for it."""

    def take(self, output: RowOutput, fed: Sequence[TokenLogprobs]) -> list[TokenLogprobs]: ...


class TokenRows:
    """One row for each id that was taken, hidden ends included: for clients that read ids rather than text."""

    def take(self, output: RowOutput, fed: Sequence[TokenLogprobs]) -> list[TokenLogprobs]:
        return list(fed[: len(output.ids)])


class TextRows:
    """One row for each token whose text goes out, together with that text.

    Tokens that a hidden stop string consists of have none.
    """

    def __init__(self, spec: RowSpec, decoder: Decoder) -> None:
        self._positions = Positions(
            decoder,
            skip_special_tokens=spec.skip_special_tokens,
            shown=frozenset(marker.token for marker in spec.markers if marker.token is not None),
            continues=spec.continues,
        )
        self._visible = spec.stop_visible
        self._sent = 0
        self._waiting: deque[tuple[int, TokenLogprobs]] = deque()

    def take(self, output: RowOutput, fed: Sequence[TokenLogprobs]) -> list[TokenLogprobs]:
        self._waiting.extend((self._positions.feed(row.token), row) for row in output.logprobs or ())
        self._sent += len(output.text)
        over = output.stopped or not output.ids
        hidden = isinstance(output.matched, str) and not self._visible
        out = []
        while self._waiting and ((over and not hidden) or self._waiting[0][0] < self._sent):
            out.append(self._waiting.popleft()[1])
        return out
