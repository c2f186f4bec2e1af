"""What becomes of the workers of a pair: given back, counted and logged (spec routing 5)."""

import logging

from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.pipeline.facts import Facts
from smg.pipeline.services import Services
from smg.routing.fleet_router import outcome_of
from smg.routing.router import Lease

log = logging.getLogger("smg.pipeline")


class PairBooks:
    """The books of one attempt on the pair of ``lease``, whose prefill worker is given back once its part is over."""

    def __init__(self, services: Services, ctx: RequestContext, facts: Facts, lease: Lease) -> None:
        assert lease.prefill is not None
        self._services = services
        self._ctx = ctx
        self._facts = facts
        self._lease = lease
        self._prefill = lease.prefill

    def ended(self, error: GatewayError | None) -> None:
        """The prefill worker has done its work (None), or is to blame for a failure, whatever becomes of the rest."""
        router = self._services.router
        if error is None:
            router.commit(self._prefill)
            router.release(self._prefill, "ok")
            self._facts.prefilled()
            return
        router.release(self._prefill, outcome_of(error))
        if error.worker_fault:
            self.failed("prefill", self._prefill.worker.id, error)

    def failed(self, leg: str, worker: str, error: GatewayError) -> None:
        """``worker`` is to blame for the failure of the attempt."""
        self._facts.leg_failed(leg, error.code)
        facts = {"request_id": self._ctx.request_id, "worker": self._lease.worker.id, leg: worker}
        log.warning("%s engine failed", leg, extra={**facts, "error": error.detail or error.message})
