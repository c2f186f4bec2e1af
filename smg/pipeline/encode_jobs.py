"""The media items of one attempt on their way through encode engines (spec engine-contract 5.4, routing 5).

Every item goes to an encode worker of its own choice, by its content, so that the same image meets the same engine's
cache. The engines that generate are not kept waiting: they are told where each item's embeddings will come from.
"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from smg.core.backends import Bootstrap
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.media import MediaItem
from smg.fleet.breaker import Outcome
from smg.fleet.roles import meeting_point
from smg.pipeline.services import Services
from smg.routing.fleet_router import outcome_of
from smg.routing.handoff import ENCODE_ROOM_BITS
from smg.routing.pairing import PartnerFailed
from smg.routing.router import Lease, Query


class EncodeJobs:
    """The Encode calls of one attempt, in the background.

    ``on_failure`` is called with the first failure, at once, whereupon the others are cancelled: nobody has to wait for
    an engine to miss its embeddings. The error names the worker that a further attempt should leave out.
    """

    def __init__(self, services: Services, ctx: RequestContext, on_failure: Callable[[PartnerFailed], None]) -> None:
        self._services = services
        self._ctx = ctx
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[None]] = []
        self._detach: Callable[[], None] = lambda: None

    def start(self, query: Query, request_id: str, items: Sequence[MediaItem], token_id: int) -> tuple[Bootstrap, ...]:
        """Send each item to a worker; returns where the prefill engine gets its embeddings from, in the items' order.

        Raises:
            GatewayError: ``no_available_workers`` (503); nothing has been sent then.
        """
        leases: list[Lease] = []
        try:
            for item in items:
                hints = replace(query.hints, routing_key=item.digest, target_worker=None)
                chosen = Query(query.model, hints=hints, leg="encode", tried=query.tried)
                leases.append(self._services.router.select(chosen))
        except BaseException:
            for lease in leases:
                self._services.router.release(lease, "cancelled")
            raise
        places = [
            Bootstrap(*meeting_point(lease.worker), self._services.rooms.next(ENCODE_ROOM_BITS)) for lease in leases
        ]
        loop = asyncio.get_running_loop()
        for lease, item, place in zip(leases, items, places, strict=True):
            self._tasks.append(loop.create_task(self._encode(lease, request_id, item, token_id, place.room)))
        self._detach = self._ctx.cancel.on_cancel(lambda _: self.cancel())
        return tuple(places)

    def cancel(self) -> None:
        """Stop what runs. Idempotent."""
        self._detach()
        for task in self._tasks:
            task.cancel()

    async def _encode(self, lease: Lease, request_id: str, item: MediaItem, token_id: int, room: int) -> None:
        outcome: Outcome = "cancelled"
        try:
            await self._services.drivers.grpc(lease.worker).encode(self._ctx, request_id, item, token_id, room)
            outcome = "ok"
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
