"""Subscriptions to engines' KV events: against a bare gRPC server that says exactly what a test wants."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest
from smg_grpc_proto.generated import common_pb2 as pb

from smg._native.prefix_keys import PrefixKeys
from smg._native.region import Region
from smg.control import kv_events
from smg.control.kv_events import KvSubscriptions
from smg.core import clock
from smg.engines.driver import GrpcDriver
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.vllm.adapter import VllmAdapter
from smg.fleet.records import RankRecord, WorkerRecord
from smg.routing.index.facade import adapter_of, salt_of
from smg.telemetry.cells import LocalCells
from smg.telemetry.metrics import Metrics
from tests.engines.conftest import eventually, serve

BLOCK = 4
END = object()  # the stream ends


def told(sequence: int, *names: int, parent: int | None = None, rank: int = 0, **fields) -> pb.KvEventBatch:
    """A batch that stores blocks, each called by the token it consists of."""
    out = pb.KvEventBatch(sequence_number=sequence, timestamp=clock.wall(), dp_rank=rank, **fields)
    if names:
        stored = out.events.add().stored
        if parent is not None:
            stored.parent_block_hash = parent
        for name in names:
            stored.blocks.add(block_hash=name, token_ids=[name] * BLOCK, block_size=BLOCK)
    return out


class Engine:
    """``script`` holds a list for each subscription: batches, statuses to fail with, or END; then it stays silent."""

    def __init__(self, *script: list) -> None:
        self.script = list(script)
        self.starts: list[int] = []

    async def SubscribeKvEvents(self, request, context):
        self.starts.append(pb.SubscribeKvEventsRequest.FromString(request).start_sequence_number)
        for item in self.script.pop(0) if self.script else []:
            if item is END:
                return
            if isinstance(item, grpc.StatusCode):
                await context.abort(item, "as the test wants")
            yield item.SerializeToString()
        await asyncio.sleep(60)


class Setup:
    """One worker whose engine follows ``engine``'s script."""

    def __init__(self, address: str, region: Region) -> None:
        self.region = region
        self.index = region.index
        self.worker = WorkerRecord(
            "w",
            0,
            f"grpc://{address}",
            models=["m"],
            status="ready",
            features=frozenset({"kv_events"}),
        )
        self.index.admit(0)
        self.driver = GrpcDriver(self.worker.url, VllmAdapter(), GrpcioTransport(self.worker.url))
        self.workers = [self.worker]
        self.metrics = Metrics(LocalCells(), 0)
        self.wanted = True
        self.loads = []
        self.kv = KvSubscriptions(
            self.index,
            self.metrics,
            lambda: self.workers,
            lambda _: self.driver,
            lambda _: self.wanted,
            lambda worker, load: self.loads.append((worker.id, load.dp_rank, load.running)),
        )

    def held(self, *names: int, slot: int = 0, adapter: str = "") -> int:
        tokens = [name for name in names for _ in range(BLOCK)]
        keys = PrefixKeys.of_tokens(tokens, BLOCK, salt_of("m", "tokens"), adapter_of(adapter))
        return self.index.depth(keys, [slot], 1)[0]

    def value(self, name: str) -> int:
        return sum(
            value for key, _, value in self.metrics.cells.read_series() if key.startswith(b"smg_" + name.encode())
        )


@asynccontextmanager
async def following(engine: Engine, change=lambda setup: None):
    region = Region.create(processes=2, workers=8, snapshot_bytes=64)
    async with serve("vllm.grpc.engine.VllmEngine", SubscribeKvEvents=engine.SubscribeKvEvents) as address:
        setup = Setup(address, region)
        change(setup)
        task = asyncio.create_task(setup.kv.run())
        try:
            yield setup
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await setup.driver.close()
    region.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(kv_events, "LOOK_SECS", 0.02)
    monkeypatch.setattr(kv_events, "_FIRST_BACKOFF", 0.02)


async def test_loads_come_with_the_events_and_by_themselves():
    alone = told(0, rank=1)
    alone.load.load_only, alone.load.running_requests = True, 4
    both = told(1, 5)
    both.load.running_requests = 2
    async with following(Engine([alone, both])) as setup:
        await eventually(lambda: setup.loads == [("w", 1, 4), ("w", 0, 2)])
        await eventually(lambda: setup.held(5) == 1)


async def test_blocks_arrive_and_the_worker_is_scored_by_them():
    async with following(Engine([told(1, 5, 6), told(2, 7, parent=6)])) as setup:
        await eventually(lambda: setup.held(5, 6, 7) == 3)
        assert setup.index.live(0) == BLOCK
        await eventually(lambda: setup.value("kv_event_blocks") == 3)
        assert setup.value("kv_event_state") == 2
        assert setup.value("kv_events_total") == 2
        assert setup.value("kv_event_lag_seconds_bucket") == 2


async def test_a_short_loss_goes_on_where_it_was():
    engine = Engine([told(1, 5), END], [told(2, 6, parent=5)])
    async with following(engine) as setup:
        await eventually(lambda: setup.held(5, 6) == 2)
        assert engine.starts == [0, 2]
        assert setup.value("kv_event_gaps_total") == setup.value("kv_event_resyncs_total") == 0


async def test_a_long_loss_drops_everything(monkeypatch):
    monkeypatch.setattr(kv_events, "LOST_SECS", 0.05)
    monkeypatch.setattr(kv_events, "_FIRST_BACKOFF", 0.2)
    engine = Engine([told(1, 5), END], [told(4, 6)])
    async with following(engine) as setup:
        await eventually(lambda: setup.held(5) == 1)
        await eventually(lambda: setup.held(6) == 1)
        assert (engine.starts, setup.held(5)) == ([0, 0], 0)


@pytest.mark.parametrize("status", [grpc.StatusCode.DATA_LOSS, grpc.StatusCode.OUT_OF_RANGE])
async def test_kv_restart_is_told_by_a_status(status):
    engine = Engine([told(7, 5), status], [told(1, 6, snapshot=pb.KvSnapshotChunk(index=0, count=1))])
    async with following(engine) as setup:
        await eventually(lambda: setup.held(6) == 1)
        assert (engine.starts, setup.held(5), setup.index.live(0)) == ([0, 0], 0, BLOCK)


async def test_kv_gap_recovers_through_a_new_snapshot():
    whole = pb.KvSnapshotChunk(index=0, count=1)
    engine = Engine([told(1, 5, snapshot=whole), told(5, 6, parent=5)], [told(5, 5, 6, snapshot=whole)])
    async with following(engine) as setup:
        await eventually(lambda: setup.held(5, 6) == 2)
        assert engine.starts == [0, 0]
        await eventually(lambda: setup.value("kv_event_gaps_total") == 1)


async def test_an_engine_without_events_is_left_alone():
    engine = Engine([grpc.StatusCode.UNIMPLEMENTED])
    async with following(engine) as setup:
        await eventually(lambda: setup.value("kv_event_subscription_failures_total") == 1)
        await asyncio.sleep(0.2)
        assert len(engine.starts) == 1


async def test_a_failing_stream_is_not_asked_all_the_time():
    engine = Engine(*([grpc.StatusCode.UNAVAILABLE] for _ in range(50)))
    async with following(engine):
        await asyncio.sleep(0.5)
        # 0.04 + 0.08 + 0.16 + 0.32 seconds of back-off, jittered.
        assert 2 <= len(engine.starts) <= 6


async def test_kv_dp_rank_each_has_its_own_slot_and_numbers():
    def ranks(setup: Setup) -> None:
        setup.worker.ranks = [RankRecord(0, 1), RankRecord(1, 2)]
        setup.worker.labels = {"dp_size": "2"}
        for slot in (1, 2):
            setup.index.admit(slot)

    engine = Engine([told(1, 5), told(1, 6, rank=1), told(2, 7, parent=6, rank=1), told(9, 8, rank=3)])
    async with following(engine, ranks) as setup:
        await eventually(lambda: setup.held(6, 7, slot=2) == 2)
        assert (setup.held(5, slot=1), setup.held(6, slot=1), setup.held(5, slot=2)) == (1, 0, 0)
        assert [setup.index.live(slot) for slot in range(3)] == [0, BLOCK, BLOCK]


async def test_kv_dp_rank_several_behind_one_slot_are_not_followed():
    engine = Engine([told(1, 5)])
    async with following(engine, lambda setup: setup.worker.labels.update(dp_size="2")):
        await asyncio.sleep(0.1)
        assert engine.starts == []


async def test_lora_prefix_isolation():
    batch = told(1, 5)
    batch.events[0].stored.lora_name = "sql"
    async with following(Engine([batch])) as setup:
        await eventually(lambda: setup.held(5, adapter="sql") == 1)
        assert setup.held(5) == 0


async def test_who_leaves_or_is_routed_otherwise_is_not_followed_any_more():
    async with following(Engine([told(1, 5)], [told(1, 5)])) as setup:
        await eventually(lambda: setup.held(5) == 1)
        setup.wanted = False
        await eventually(lambda: setup.index.live(0) == 0)
        assert setup.held(5) == 0
        setup.wanted = True
        await eventually(lambda: setup.held(5) == 1)
        setup.workers.clear()
        await eventually(lambda: setup.held(5) == 0)
        assert setup.value("kv_event_state") == 0


async def test_another_engine_at_the_address_is_followed_anew():
    async with following(Engine([told(1, 5)], [told(1, 6)])) as setup:
        await eventually(lambda: setup.held(5) == 1)
        # As the registry does when it learns of it.
        for plane in (0, 1):
            setup.index.renew(0, plane)
        await eventually(lambda: setup.held(6) == 1)
        assert (setup.held(5), setup.index.live(0)) == (0, BLOCK)


async def test_blocks_come_back_after_a_part_of_the_index_was_emptied(monkeypatch):
    async with following(Engine([told(1, 5, 6)])) as setup:
        await eventually(lambda: setup.held(5, 6) == 2)
        seen = []
        monkeypatch.setattr(kv_events.KvFeed, "repair", lambda feed, *, emptied: emptied and seen.append(feed))
        setup.kv._resets -= 1
        await eventually(lambda: len(seen) == 1)
