"""The media items of one attempt on their way through encode engines (spec engine-contract 5.4, routing 5).

Every item has an encode worker, chosen by its content, so that the same image meets the same engine's cache. The
engines that generate are not kept waiting: they are told where each item's embeddings will come from.
"""

import asyncio
from collections.abc import Callable, Sequence

from smg.core import clock
from smg.core.backends import Bootstrap
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.media import MediaInputs, MediaItem
from smg.fleet.breaker import Outcome
from smg.fleet.roles import meeting_point
from smg.pipeline.facts import Facts
from smg.pipeline.services import Services
from smg.routing.fleet_router import outcome_of
from smg.routing.handoff import ENCODE_ROOM_BITS
from smg.routing.pairing import PartnerFailed
from smg.routing.router import Lease

# What encode engines may take to answer, in seconds, after the prompt for which they worked has been computed.
_LATE_SECS = 2.0


class EncodeJobs:
    """The Encode calls of one attempt, in the background.

    ``on_failure`` is called with the first failure, at once, whereupon the others are cancelled: nobody has to wait for
    an engine to miss its embeddings. The error names the worker that a further attempt should leave out.
    """

    def __init__(
        self,
        services: Services,
        ctx: RequestContext,
        facts: Facts,
        on_failure: Callable[[PartnerFailed], None],
    ) -> None:
        self._services = services
        self._ctx = ctx
        self._facts = facts
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []
        self._detach: Callable[[], None] = lambda: None

    def start(self, leases: Sequence[Lease], request_id: str, media: MediaInputs) -> tuple[Bootstrap, ...]:
        """Send each item to the worker of its lease, which is given back when its call is over.

        Returns where the prefill engine gets the embeddings from, in the items' order.
        """
        rooms = self._services.rooms
        places = [Bootstrap(*meeting_point(lease.worker), rooms.next(ENCODE_ROOM_BITS)) for lease in leases]
        loop = asyncio.get_running_loop()
        for lease, item, place in zip(leases, media.items, places, strict=True):
            self._tasks.append(loop.create_task(self._encode(lease, request_id, item, media.token_id, place.room)))
        self._detach = self._ctx.cancel.on_cancel(lambda _: self.cancel())
        return tuple(places)

    def cancel(self) -> None:
        """Stop what runs. Idempotent."""
        self._detach()
        for task in self._tasks:
            task.cancel()

    def not_needed(self) -> None:
        """Nobody waits for embeddings any more: stop what still runs in a moment."""
        if not all(task.done() for task in self._tasks):
            asyncio.get_running_loop().call_later(_LATE_SECS, self.cancel)
        else:
            self._detach()

    async def _encode(self, lease: Lease, request_id: str, item: MediaItem, token_id: int, room: int) -> None:
        outcome: Outcome = "cancelled"
        began = clock.monotonic()
        try:
            driver = self._services.drivers.grpc(lease.worker)
            patience = self._services.settings.disaggregation.encode_timeout_secs
            await driver.encode(self._ctx, request_id, item, token_id, room, patience)
            outcome = "ok"
            self._facts.encoded(clock.monotonic() - began, lease.worker.id)
        except GatewayError as error:
            if not self._ctx.cancel:
                outcome = outcome_of(error)
                self._failed(PartnerFailed(error, lease.worker.id, "encode"))
        finally:
            self._services.router.release(lease, outcome)

    def _failed(self, error: PartnerFailed) -> None:
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        self._detach()
        for task in others:
            task.cancel()
        self._on_failure(error)
