"""Policy ``passthrough``: the first ready worker (spec routing 1.1); for a gateway in front of one engine."""

import logging

from smg.routing.candidates import Candidates
from smg.routing.policies.base import Choice
from smg.routing.router import Query

log = logging.getLogger("smg.routing")


class Passthrough:
    """No choice at all. Says so once when there would be one."""

    name = "passthrough"

    def __init__(self) -> None:
        self._warned = False

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        if len(candidates.everyone) > 1 and not self._warned:
            self._warned = True
            log.warning("policy passthrough uses the first of several workers", extra={"model": query.model})
        return Choice(0, self.name)
