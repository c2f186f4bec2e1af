"""Media items over encode engines, one room each, and failures at once (spec engine-contract 5.4, routing 5)."""

import asyncio

import grpc
import pytest

from smg._native.region import FAILURES, PROCESSED
from smg.config.settings import RoutingSettings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.media import MediaItem, Tensor
from smg.engine_server.mock import Fault, Script
from smg.pipeline.encode_jobs import EncodeJobs
from smg.routing.fleet_router import FleetRouter
from smg.routing.policies.base import Parts
from smg.routing.policies.per_model import PerModel
from smg.routing.router import Query
from tests.pairs.pools import eventually, pairs
from tests.routing.fleets import PROCESS

STALL = Script(faults=(Fault(rpc="Encode", kind="stall"),))
DEAD = Script(faults=(Fault(rpc="Encode", status=grpc.StatusCode.UNAVAILABLE),))


def item(number: int) -> MediaItem:
    tensor = Tensor("float32", (1,), (bytes(4),))
    return MediaItem("image", f"{number:064x}", b"", (0, 1), ((0, 1),), tensor, {})


class Jobs:
    def __init__(self, place):
        region = place.fleet.region
        policy = PerModel(Parts(RoutingSettings(), region), {"encode": "consistent_hashing"})
        place.services.router = FleetRouter(place.fleet, region, PROCESS, policy)
        self.ctx = RequestContext("r")
        self.failures = []
        self.jobs = EncodeJobs(place.services, self.ctx, self.failures.append)

    def start(self, items, **query):
        return self.jobs.start(Query("m", **query), "r-1", items, 77)


def slots(place, field):
    return {name: place.fleet.region.worker_get(place.worker(name).slot, field) for name in place.engines}


async def test_every_item_has_a_room_of_its_own_and_its_worker_is_told_it():
    async with pairs("tokenspeed", "e1", "e2") as place:
        jobs = Jobs(place)
        items = [item(number) for number in range(12)]
        places = jobs.start(items)
        assert len({each.room for each in places}) == 12
        await eventually(place.idle)
        told = {
            request.mm_inputs.items[0].content_hash.hex(): (name, request.items[0].bootstrap_room)
            for name, engine in place.engines.items()
            for request in engine.encoded
        }
        assert [told[each.digest][1] for each in items] == [each.room for each in places]
        assert {name for name, _ in told.values()} == {"e1", "e2"}
        assert jobs.failures == []
        assert sum(slots(place, PROCESSED).values()) == 12


async def test_the_same_image_goes_to_the_same_engine():
    async with pairs("tokenspeed", "e1", "e2", "e3") as place:
        for _ in range(4):
            Jobs(place).start([item(7)])
            await eventually(place.idle)
        assert sorted(len(engine.encoded) for engine in place.engines.values()) == [0, 0, 4]


async def test_a_failure_is_told_at_once_and_ends_the_others():
    async with pairs("tokenspeed", "e1", "e2", scripts={"e1": DEAD, "e2": STALL}) as place:
        jobs = Jobs(place)
        jobs.start([item(number) for number in range(12)])
        await eventually(lambda: bool(jobs.failures))
        (error,) = jobs.failures[:1]
        assert (error.worker, error.leg, error.status) == ("e1", "encode", 503)
        await eventually(place.fleet.idle)
        assert slots(place, FAILURES)["e1"] > 0
        assert slots(place, FAILURES)["e2"] == 0


async def test_another_attempt_leaves_the_failed_one_out():
    async with pairs("tokenspeed", "e1", "e2") as place:
        Jobs(place).start([item(number) for number in range(6)], tried=frozenset({"e1"}))
        await eventually(place.idle)
        assert (len(place.engines["e1"].encoded), len(place.engines["e2"].encoded)) == (0, 6)


async def test_a_client_that_leaves_ends_them_and_nobody_is_blamed():
    async with pairs("tokenspeed", "e1", scripts={"e1": STALL}) as place:
        jobs = Jobs(place)
        jobs.start([item(number) for number in range(3)])
        await eventually(lambda: len(place.engines["e1"].encoded) == 3)
        assert place.fleet.inflight()["e1"][0] == 3
        jobs.ctx.cancel.cancel("client_disconnect")
        await eventually(place.fleet.idle)
        assert jobs.failures == []
        assert slots(place, FAILURES) == {"e1": 0}


async def test_no_encode_engine_is_503_and_nothing_is_sent():
    async with pairs("tokenspeed", "e1") as place:
        place.fleet.set("e1", "not_ready")
        with pytest.raises(GatewayError) as caught:
            Jobs(place).start([item(1), item(2)])
        assert caught.value.status == 503
        await asyncio.sleep(0)
        assert place.idle()
        assert place.engines["e1"].encoded == []
