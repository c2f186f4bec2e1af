"""What a worker costs: the prefill a held beginning saves against the queue that comes with it (spec routing 1.4).

    price = tokens sent and not begun to be answered + request_price · requests
            + tokens of the prompt not held · (base + turnover + congestion²)

All of it is in tokens of prefill, and all of it is known exactly and at once in every process. A long match is worth a
detour through some queue; a short head that most prompts share is soon outweighed by the requests it attracts, the next
worker computes it once, and from then on holds it too.

A token that is computed once more costs more than the time it takes. Others wait for it: few while nobody waits, but
when the whole fleet falls behind, what counts is no longer this request's own way through the shortest queue but that
the fleet computes as little as it can; so congestion, the mean backlog, enters as its square. And its blocks drive out
others: the more a worker has computed lately, the younger are those that have to go, so turnover is what it has
computed by the mean of all (1 while there is little traffic). That also spreads what is new over the caches, which
matters once they are full. ``smg-bench routing`` shows the difference on six traces.

Two guards around it carry the reference's names: a match counts above ``cache_threshold`` of the prompt, or above a
number of tokens that is worth a detour whatever comes after them; and a worker that is ``balance_abs_threshold``
requests and ``balance_rel_threshold`` times above the least loaded one is passed over whatever it holds. Only such a
worker: among the others a warm one still wins (field case RO-03).
"""

from typing import NamedTuple

from smg._native import placement as native
from smg._native.placement import Placement
from smg.config.settings import RoutingSettings

# How long a token is on average; only the weight of text against queues depends on it.
BYTES_PER_TOKEN = 4
# Chosen on traces of seeds 0 to 4; the benchmark judges them on others.
_BASE = 0.25
_TURNOVER = 1.0
# Tokens of mean backlog that cost as much as one token computed again; twice as many cost four times that.
_BACKLOG = 1000.0
_MOST_CONGESTION = 32.0
# Held tokens that always count, however long the prompt is.
_ENOUGH = 512
REASONS = {native.SPREAD: "spread", native.PREFIX: "prefix", native.LOAD: "load"}


class Cost(NamedTuple):
    """The parameters. ``request_price`` is in tokens: how much prefill one running request weighs."""

    request_price: float
    threshold: float
    absolute: int
    relative: float

    @staticmethod
    def of(settings: RoutingSettings) -> "Cost":
        return Cost(
            settings.cache_request_price,
            settings.cache_threshold,
            settings.balance_abs_threshold,
            settings.balance_rel_threshold,
        )

    def cheapest(self, placement: Placement, length: int, start: int, *, text: bool) -> tuple[int, str, int]:
        """(position, reason, tokens held) of the cheapest ready worker for a prompt of ``length`` tokens or bytes.

        Ties go to the first from position ``start`` on. Reasons: ``prefix``, ``load``, ``spread``.
        """
        size = 1 / BYTES_PER_TOKEN if text else 1.0
        backlog = placement.backlog() / _BACKLOG
        congestion = backlog * backlog
        weight = _BASE + (congestion if congestion < _MOST_CONGESTION else _MOST_CONGESTION)
        position, why = placement.cheapest(
            length,
            self.request_price,
            min(self.threshold, _ENOUGH / (length * size)) if length else self.threshold,
            self.absolute,
            self.relative,
            start,
            size * weight,
            size * _TURNOVER,
        )
        return position, REASONS[why], int(placement.matched(position) * size)
