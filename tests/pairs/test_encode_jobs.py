"""Media items over encode engines, one room each, and failures at once (spec engine-contract 5.4, routing 5)."""

import asyncio
from unittest.mock import Mock

import grpc
import pytest

from smg._native.region import FAILURES, PROCESSED
from smg.config.settings import DisaggregationSettings, RoutingSettings, Settings
from smg.core.context import RequestContext
from smg.core.errors import GatewayError
from smg.core.media import MediaInputs, MediaItem, Tensor
from smg.core.request import MediaPart, Message
from smg.engine_server.mock import Fault, Script
from smg.pipeline.encode_jobs import EncodeJobs
from smg.pipeline.facts import Facts
from smg.pipeline.media import WithMedia, routing_ids
from smg.routing.fleet_router import FleetRouter
from smg.routing.policies.base import Parts
from smg.routing.policies.per_model import PerModel
from smg.routing.router import Query
from smg.text.prepare import Prepared
from tests.pairs.pools import TEXT, eventually, pairs
from tests.routing.fleets import PROCESS

STALL = Script(faults=(Fault(rpc="Encode", kind="stall"),))
DEAD = Script(faults=(Fault(rpc="Encode", status=grpc.StatusCode.UNAVAILABLE),))
REFUSES = Script(faults=(Fault(rpc="Encode", status=grpc.StatusCode.INVALID_ARGUMENT, message="no such image"),))
TOKEN = 77
ONCE = RoutingSettings(disable_retries=True)


def item(number: int) -> MediaItem:
    tensor = Tensor("float32", (1,), (bytes(4),))
    side = {"image_grid_thw": Tensor("int64", (1, 1), (bytes(8),))}
    return MediaItem("image", f"{number:064x}", b"", (number, 1), ((number, 1),), tensor, side)


def inputs(count: int) -> MediaInputs:
    items = [item(number) for number in range(count)]
    return MediaInputs(items, items[0].tensor, {}, "", (), TOKEN, [TOKEN] * count, count)


class FakeMedia:
    """In place of ``pipeline.media``: ``count`` images that are preprocessed already."""

    def __init__(self, count: int) -> None:
        self._inputs = inputs(count)

    async def prepare(self, fleet, record, text, request) -> WithMedia:
        ids = [*self._inputs.anchored, 5]
        return WithMedia(Prepared(ids=ids), self._inputs, routing_ids(ids, self._inputs))

    def released(self, media: WithMedia) -> None:
        assert media.inputs is self._inputs


def by_content(place) -> None:
    """Let an item's content choose its encode engine, as it does in a gateway."""
    region = place.fleet.region
    policy = PerModel(Parts(RoutingSettings(policy="round_robin"), region), {"encode": "consistent_hashing"})
    place.services.router = FleetRouter(place.fleet, region, PROCESS, policy)


class Jobs:
    """The jobs of one lease, whose prefill and decode engines hear of nothing."""

    def __init__(self, place):
        by_content(place)
        self.services = place.services
        self.ctx = RequestContext("r")
        self.failures = []
        facts = Facts(place.services.metrics, self.ctx, streaming=False)
        self.jobs = EncodeJobs(place.services, self.ctx, facts, self.failures.append)

    def start(self, count: int = 1, **query):
        media = inputs(count)
        self.lease = self.services.router.select(Query("m", media=tuple(each.digest for each in media.items), **query))
        return self.jobs.start(self.lease.encode, "r-1", media)

    def end(self):
        self.services.router.release(self.lease, "cancelled")


def slots(place, field):
    return {name: place.fleet.region.worker_get(place.worker(name).slot, field) for name in place.engines}


async def test_every_item_has_a_room_of_its_own_and_its_worker_is_told_it():
    async with pairs("tokenspeed", "p1", "d1", "e1", "e2") as place:
        jobs = Jobs(place)
        places = jobs.start(12)
        assert len({each.room for each in places}) == 12
        assert {each.port for each in places} == {place.engines[name].bootstrap_port for name in ("e1", "e2")}
        await eventually(lambda: sum(slots(place, PROCESSED).values()) == 12)
        jobs.end()
        told = {
            request.mm_inputs.items[0].content_hash.hex(): (name, request.items[0].bootstrap_room)
            for name, engine in place.engines.items()
            for request in engine.encoded
        }
        assert [told[each.digest][1] for each in inputs(12).items] == [each.room for each in places]
        assert {name for name, _ in told.values()} == {"e1", "e2"}
        assert jobs.failures == []
        assert place.fleet.idle()


async def test_a_failure_is_told_at_once_and_ends_the_others():
    async with pairs("tokenspeed", "p1", "d1", "e1", "e2", scripts={"e1": DEAD, "e2": STALL}) as place:
        jobs = Jobs(place)
        jobs.start(12)
        await eventually(lambda: bool(jobs.failures))
        (error,) = jobs.failures[:1]
        assert (error.worker, error.leg, error.status) == ("e1", "encode", 503)
        jobs.end()
        await eventually(place.fleet.idle)
        assert slots(place, FAILURES)["e1"] > 0
        assert slots(place, FAILURES)["e2"] == 0


async def test_one_that_takes_too_long_is_to_blame():
    settings = Settings(disaggregation=DisaggregationSettings(encode_timeout_secs=0.1))
    async with pairs("tokenspeed", "p1", "d1", "e1", scripts={"e1": STALL}, settings=settings) as place:
        jobs = Jobs(place)
        jobs.start()
        await eventually(lambda: bool(jobs.failures))
        assert (jobs.failures[0].status, jobs.failures[0].worker_fault) == (504, True)
        jobs.end()
        assert place.fleet.idle()


async def test_a_client_that_leaves_ends_them_and_nobody_is_blamed():
    async with pairs("tokenspeed", "p1", "d1", "e1", scripts={"e1": STALL}) as place:
        jobs = Jobs(place)
        jobs.start(3)
        await eventually(lambda: len(place.engines["e1"].encoded) == 3)
        assert place.fleet.inflight()["e1"][0] == 3
        jobs.ctx.cancel.cancel("client_disconnect")
        await eventually(lambda: place.fleet.inflight()["e1"][0] == 0)
        jobs.end()
        assert jobs.failures == []
        assert set(slots(place, FAILURES).values()) == {0}


# Images are shared out by content over engines whose ports differ from run to run: of so many each engine gets some.
MANY = 24


class Asked:
    """A fleet of one model whose requests have ``count`` images."""

    def __init__(self, place, count: int = 3) -> None:
        by_content(place)
        place.services.media = FakeMedia(count)
        self.place = place
        self.ctx = RequestContext("r", endpoint="/t")

    async def text(self) -> str:
        parts = [MediaPart("image", "data:,x")]
        return await self.place.text(self.ctx, messages=[Message("user", parts)])


class TestOnTheWayOfARequest:
    async def test_pixels_go_to_the_encode_engines_only(self):
        async with pairs("tokenspeed", "p1", "d1", "e1", "e2") as place:
            asked = Asked(place)
            assert await asked.text() == TEXT
            (prefill,), (decode,) = ([entry.request for entry in place.engines[name].requests] for name in ("p1", "d1"))
            encoded = [request for name in ("e1", "e2") for request in place.engines[name].encoded]
            rooms = {one.mm_inputs.items[0].content_hash: one.items[0].bootstrap_room for one in encoded}
            assert all(one.mm_inputs.items[0].HasField("encoder_input") for one in encoded)
            for leg in (prefill, decode):
                assert [each.content_hash.hex() for each in leg.mm_inputs.items] == [f"{n:064x}" for n in range(3)]
                assert not any(each.HasField("encoder_input") for each in leg.mm_inputs.items)
                assert all(each.model_specific_tensors["image_grid_thw"].inline for each in leg.mm_inputs.items)
                assert [(each.offset, each.length) for one in leg.mm_inputs.items for each in one.placeholders] == [
                    (0, 1),
                    (1, 1),
                    (2, 1),
                ]
            told = prefill.encode_bootstrap_info.items
            assert [each.item_index for each in told] == [0, 1, 2]
            assert [each.bootstrap_room for each in told] == [
                rooms[each.content_hash] for each in prefill.mm_inputs.items
            ]
            assert not decode.HasField("encode_bootstrap_info")
            assert prefill.kv_bootstrap_info == decode.kv_bootstrap_info
            await eventually(place.idle)

    @pytest.mark.parametrize(("told", "again"), [({"block_size": "16"}, False), ({}, True)])
    async def test_pixels_go_to_vllm_s_prefill_engine_and_their_hashes_to_both(self, told, again):
        async with pairs("vllm") as place:
            place.fleet.workers["d1"].labels |= told
            assert await Asked(place).text() == TEXT
            (prefill,), (decode,) = ([entry.request for entry in place.engines[name].requests] for name in ("p1", "d1"))
            assert prefill.mm_inputs.pixel_values.inline
            assert decode.mm_inputs.HasField("pixel_values") is again
            assert ("pixel_values" in decode.mm_inputs.batched_keys) is again
            for leg in (prefill, decode):
                assert list(leg.mm_inputs.mm_hashes) == [f"{n:064x}" for n in range(3)]
                assert [(each.offset, each.length) for each in leg.mm_inputs.mm_placeholders] == [
                    (0, 1),
                    (1, 1),
                    (2, 1),
                ]
            await eventually(place.idle)

    async def test_vllm_s_decode_engine_gets_pixels_to_compute_the_prompt_itself(self):
        async with pairs("vllm") as place:
            place.fleet.workers["d1"].labels["block_size"] = "16"
            asked = Asked(place)
            parts = [MediaPart("image", "data:,x")]
            await place.answer(asked.ctx, n=2, messages=[Message("user", parts)])
            assert place.engines["p1"].requests == []
            assert place.engines["d1"].requests[0].request.mm_inputs.pixel_values.inline

    async def test_notes_and_metrics_name_them(self):
        async with pairs("tokenspeed", "p1", "d1", "e1") as place:
            asked = Asked(place)
            await asked.text()
            assert asked.ctx.notes["encode"] == "e1"
            assert "encode=e1" in asked.ctx.notes["decision"]
            assert place.metric("smg_pd_encode_duration_seconds_bucket\0m\0e1") == 3
            assert place.metric("smg_worker_selection_total\0e1") == 3

    async def test_without_encode_engines_the_prefill_engine_gets_them(self):
        async with pairs("tokenspeed", "p1", "d1") as place:
            assert await Asked(place).text() == TEXT
            prefill, decode = (place.engines[name].requests[0].request for name in ("p1", "d1"))
            assert all(each.HasField("encoder_input") for each in prefill.mm_inputs.items)
            assert not any(each.HasField("encoder_input") for each in decode.mm_inputs.items)

    # However busy the machine is: the one that works answers in the time that the one that hangs is given.
    @pytest.mark.parametrize(("script", "patience"), [(DEAD, 30.0), (STALL, 1.0)], ids=["fails", "hangs"])
    async def test_another_one_is_tried_and_only_the_failed_one_is_blamed(self, script, patience):
        settings = Settings(
            routing=RoutingSettings(retry_initial_backoff_ms=1),
            disaggregation=DisaggregationSettings(encode_timeout_secs=patience),
        )
        async with pairs("tokenspeed", "p1", "d1", "e1", "e2", scripts={"e1": script}, settings=settings) as place:
            assert await Asked(place, MANY).text() == TEXT
            assert place.metric("smg_pd_leg_failures_total\0m\0encode") == 1
            failed = slots(place, FAILURES)
            assert failed["e1"] > 0
            assert {failed[name] for name in ("e2", "p1", "d1")} == {0}
            await eventually(place.idle)

    async def test_a_killed_one_is_blamed_although_the_prefill_engine_complains_as_well(self):
        scripts = {"e1": Script(first_delay=5.0), "d1": Script.text(TEXT)}
        async with pairs("tokenspeed", "p1", "d1", "e1", "e2", scripts=scripts) as place:
            running = asyncio.create_task(Asked(place, MANY).text())
            await eventually(lambda: bool(place.engines["e1"].encoded) and place.engines["p1"].running == 1)
            await place.engines["e1"].kill()
            assert await running == TEXT
            failed = slots(place, FAILURES)
            assert failed["e1"] > 0
            assert {failed[name] for name in ("e2", "p1", "d1")} == {0}
            await eventually(place.idle)

    async def test_the_only_one_fails_and_both_engines_hear_of_it_at_once(self):
        settings = Settings(routing=ONCE)
        async with pairs("tokenspeed", "p1", "d1", "e1", scripts={"e1": DEAD}, settings=settings) as place:
            async with asyncio.timeout(2):
                with pytest.raises(GatewayError) as caught:
                    await Asked(place).text()
            assert caught.value.status == 503
            await eventually(place.idle)
            for name in ("p1", "d1"):
                engine = place.engines[name]
                # One that was stopped before the request reached it may only have the abort.
                asked = {entry.id for entry in engine.requests}
                await eventually(lambda engine=engine, asked=asked: asked <= set(engine.aborted) and not engine.running)

    async def test_a_bad_image_is_the_clients_and_is_not_tried_again(self):
        async with pairs("tokenspeed", "p1", "d1", "e1", "e2", scripts={"e1": REFUSES, "e2": REFUSES}) as place:
            with pytest.raises(GatewayError) as caught:
                await Asked(place, 1).text()
            assert caught.value.status == 400
            assert sum(len(place.engines[name].encoded) for name in ("e1", "e2")) == 1
            assert set(slots(place, FAILURES).values()) == {0}
            await eventually(place.idle)

    @pytest.mark.parametrize("leg", ["p1", "d1"])
    async def test_encode_calls_end_with_an_attempt_that_fails_elsewhere(self, leg):
        scripts = {"e1": STALL, leg: Script(faults=(Fault(after_chunks=None, status=grpc.StatusCode.UNAVAILABLE),))}
        async with pairs("tokenspeed", "p1", "d1", "e1", scripts=scripts, settings=Settings(routing=ONCE)) as place:
            with pytest.raises(GatewayError):
                await Asked(place).text()
            await eventually(place.idle)
            failed = slots(place, FAILURES)
            assert (failed.pop(leg), set(failed.values())) == (1, {0})

    async def test_RL_04_a_client_that_leaves_ends_all_legs(self):
        async with pairs("tokenspeed", "p1", "d1", "e1", scripts={"e1": STALL}) as place:
            asked = Asked(place)
            running = asyncio.create_task(asked.text())
            await eventually(lambda: len(place.engines["e1"].encoded) == 3 and place.engines["d1"].running == 1)
            asked.ctx.cancel.cancel("client_disconnect")
            with pytest.raises(GatewayError) as caught:
                await running
            assert caught.value.status == 499
            await eventually(place.idle)
            assert set(slots(place, FAILURES).values()) == {0}

    async def test_an_engine_that_never_answers_is_let_go_once_the_prompt_is_computed(self, monkeypatch):
        monkeypatch.setattr("smg.pipeline.encode_jobs._LATE_SECS", 0.05)
        async with pairs("tokenspeed", "p1", "d1", "e1", scripts={"e1": STALL}) as place:
            place.engines["p1"]._servicer.contract.embeddings = Mock(return_value=())
            assert await Asked(place).text() == TEXT
            await eventually(place.idle)
            assert set(slots(place, FAILURES).values()) == {0}
