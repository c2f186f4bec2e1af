"""What a worker costs: the prefill a held beginning saves against the queue that comes with it (spec routing 1.4).

    price = tokens sent and not begun to be answered + weight · tokens of the prompt not held + request_price · requests

All of it is in tokens of prefill, and all of it is known exactly and at once in every process. A long match is worth a
detour through some queue; a short head that most prompts share is soon outweighed by the requests it attracts, the next
worker computes it once, and from then on holds it too.

``weight`` is what others pay for a token that is computed once more: they wait for it, and its blocks drive out theirs.
That is little while nobody waits. When the whole fleet falls behind, what counts is no longer this request's own way
through the shortest queue but that the fleet computes as little as it can: the weight grows with the mean backlog.
``smg-bench routing`` shows the difference on six traces.

Two guards around it carry the reference's names: a match counts only above ``cache_threshold`` of the prompt, and a
worker that is ``balance_abs_threshold`` requests and ``balance_rel_threshold`` times above the least loaded one is
passed over whatever it holds. Only such a worker: among the others a warm one still wins (field case RO-03).
"""

from typing import NamedTuple

from smg._native import placement as native
from smg._native.placement import Placement
from smg.config.settings import RoutingSettings

# How long a token is on average; only the weight of text against queues depends on it.
BYTES_PER_TOKEN = 4
_WEIGHT = 1.5
_MOST_WEIGHT = 32.0
# Tokens of mean backlog that add 1 to the weight; twice as many add 4.
_BACKLOG = 600.0
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
        weight = min(_WEIGHT + (placement.backlog() / _BACKLOG) ** 2, _MOST_WEIGHT)
        position, why = placement.cheapest(
            length, self.request_price, self.threshold, self.absolute, self.relative, start, size * weight
        )
        return position, REASONS[why], int(placement.matched(position) * size)
