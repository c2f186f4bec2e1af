"""The shared region against a plain-Python model, under concurrent processes, and after a kill."""

import os
import signal
import struct
import tempfile
from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from smg._native import region as native
from smg._native.region import COUNTER, GAUGE, MAX_SERIES_KEY, Region

PROCESSES, SLOTS, SERIES = 4, 5, 6
processes = st.integers(0, PROCESSES - 1)
slots = st.integers(0, SLOTS - 1)
fields = st.integers(native.STATUS, native.COMPUTED)
values = st.integers(-(1 << 40), 1 << 40)
keys = st.sampled_from([b"a", b"b", b"ab", b"", b"long" * 40, b"x\0y", b"g", b"h"])
kind_of = {b"g": GAUGE, b"h": GAUGE}


class Model:
    """What the region promises, with dictionaries."""

    def __init__(self) -> None:
        self.pids: dict[int, int] = defaultdict(int)
        self.requests: dict[int, int] = defaultdict(int)
        self.waiting: dict[int, int] = defaultdict(int)
        self.heads: dict[int, int] = defaultdict(int)
        self.tickets = 0
        self.inflight: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
        self.fields: dict[tuple[int, int], int] = defaultdict(int)
        self.generations: dict[int, int] = defaultdict(int)
        self.sequences: dict[int, int] = defaultdict(int)
        self.snapshot: tuple[int, bytes] = (0, b"")
        self.series: list[bytes] = []
        self.cells: dict[tuple[int, int], int] = defaultdict(int)

    def column(self, slot: int) -> tuple[int, int]:
        rows = [self.inflight[process, slot] for process in range(PROCESSES)]
        return sum(row[0] for row in rows), sum(row[1] for row in rows)

    def read_series(self) -> list[tuple[bytes, int, int]]:
        return [
            (key, kind_of.get(key, COUNTER), sum(self.cells[process, index] for process in range(PROCESSES)))
            for index, key in enumerate(self.series)
        ]


class Agreement(RuleBasedStateMachine):
    """Every call on the region gives what the model gives."""

    @initialize()
    def start(self) -> None:
        self.region = Region.create(PROCESSES, SLOTS, SERIES, snapshot_bytes=64)
        self.other = Region.attach(self.region.fd)
        self.model = Model()

    def teardown(self) -> None:
        self.other.close()
        self.region.close()

    @rule(process=processes, pid=st.integers(1, 1 << 22))
    def claim(self, process, pid):
        self.region.claim_process(process, pid)
        self.model.pids[process] = pid

    @rule(process=processes, slot=slots, requests=st.integers(-3, 3), tokens=st.integers(-(1 << 32), 1 << 32))
    def load(self, process, slot, requests, tokens):
        self.region.inflight_add(process, slot, requests, tokens)
        self.model.inflight[process, slot][0] += requests
        self.model.inflight[process, slot][1] += tokens

    @rule(process=processes, delta=st.integers(-3, 3))
    def admit(self, process, delta):
        self.model.requests[process] += delta
        assert self.region.requests_add(process, delta) == sum(self.model.requests.values())

    @rule(process=processes, delta=st.integers(-3, 3))
    def wait(self, process, delta):
        self.model.waiting[process] += delta
        assert self.region.waiting_add(process, delta) == sum(self.model.waiting.values())
        assert self.other.waiting_total() == sum(self.model.waiting.values())

    @rule(process=processes, shown=st.booleans())
    def queue_up(self, process, shown):
        self.model.tickets += 1
        ticket = self.region.waiting_ticket()
        assert ticket == self.model.tickets
        self.model.heads[process] = ticket if shown else 0
        self.region.waiting_head_set(process, self.model.heads[process])
        assert self.other.waiting_head() == min(filter(None, self.model.heads.values()), default=0)

    @rule(slot=slots, field=fields, value=values)
    def set_field(self, slot, field, value):
        self.region.worker_set(slot, field, value)
        self.model.fields[slot, field] = value

    @rule(slot=slots, field=fields, delta=values)
    def add_field(self, slot, field, delta):
        self.model.fields[slot, field] += delta
        assert self.region.worker_add(slot, field, delta) == self.model.fields[slot, field]

    @rule(slot=slots)
    def reset(self, slot):
        self.model.generations[slot] += 1
        for field in range(native.COMPUTED + 1):
            self.model.fields[slot, field] = 0
        assert self.region.worker_reset(slot) == self.model.generations[slot]

    @rule(sequence=st.sampled_from([0, 7, 255]))
    def draw(self, sequence):
        assert self.region.sequence_next(sequence) == self.model.sequences[sequence]
        self.model.sequences[sequence] += 1

    @rule(blob=st.binary(max_size=80))
    def publish(self, blob):
        if len(blob) > 64:
            with pytest.raises(ValueError, match="does not fit"):
                self.region.publish(blob)
            return
        self.model.snapshot = (self.model.snapshot[0] + 1, blob)
        assert self.region.publish(blob) == self.model.snapshot[0]

    @rule(process=processes, key=keys, amount=values, overwrite=st.booleans())
    def count(self, process, key, amount, overwrite):
        if key not in self.model.series and len(self.model.series) < SERIES:
            self.model.series.append(key)
        index = self.region.find_series(key, kind_of.get(key, COUNTER))
        assert index == (self.model.series.index(key) if key in self.model.series else -1)
        if overwrite and key in kind_of:
            self.region.cell_set(process, index, amount)
            self.model.cells[process, index] = amount
        else:
            self.region.cell_add(process, index, amount)
            self.model.cells[process, index] += amount

    @rule(process=processes)
    def die(self, process):
        self.region.clear_process(process)
        self.model.pids[process] = self.model.requests[process] = 0
        self.model.waiting[process] = self.model.heads[process] = 0
        for slot in range(SLOTS):
            self.model.inflight[process, slot] = [0, 0]
        for index, key in enumerate(self.model.series):
            if key in kind_of:
                self.model.cells[process, index] = 0

    @invariant()
    def agree(self):
        region, model = self.other, self.model
        assert [region.process_pid(i) for i in range(PROCESSES)] == [model.pids[i] for i in range(PROCESSES)]
        assert region.requests_total() == sum(model.requests.values())
        assert [region.inflight(i) for i in range(SLOTS)] == [model.column(i) for i in range(SLOTS)]
        assert region.inflight_many(range(SLOTS)) == [model.column(i)[0] for i in range(SLOTS)]
        assert [region.worker_generation(i) for i in range(SLOTS)] == [model.generations[i] for i in range(SLOTS)]
        for slot in range(SLOTS):
            for field in range(native.COMPUTED + 1):
                assert region.worker_get(slot, field) == model.fields[slot, field]
        assert region.snapshot() == model.snapshot
        assert region.snapshot_version() == model.snapshot[0]
        assert region.read_series() == model.read_series()
        assert region.series_end() == len(model.series)
        assert [*region.read_series(0, 2), *region.read_series(2, 1), *region.read_series(3)] == model.read_series()


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def children(*bodies) -> None:
    """Run each body in a forked process and wait; a body that raises fails the test."""
    pids = []
    for body in bodies:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                body()
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)


@pytest.fixture
def shared():
    region = Region.create(processes=5, workers=8, series=512, snapshot_bytes=1 << 16)
    yield region
    region.close()


def test_counts_of_concurrent_processes_add_up(shared):
    def body(process):
        def run():
            for i in range(3000):
                shared.inflight_add(process, i % 8, 1, 10)
                shared.requests_add(process, 1)
                shared.worker_add(3, native.PROCESSED, 1)
                shared.sequence_next(9)
                shared.cell_add(process, shared.find_series(b"s%d" % (i % 50), COUNTER), 1)

        return run

    children(*(body(process) for process in range(4)))
    assert [shared.inflight(slot) for slot in range(8)] == [(1500, 15000)] * 8
    assert shared.requests_total() == 12000
    assert shared.worker_get(3, native.PROCESSED) == 12000
    assert shared.sequence_next(9) == 12000
    read = {key: value for key, _, value in shared.read_series()}
    assert read == {b"s%d" % i: 240 for i in range(50)}


def test_a_snapshot_read_while_it_is_written_is_never_torn(shared):
    blobs = [bytes([65 + i]) * size for i, size in enumerate((1, 60_001, 7, 65_536, 30_000))]

    def write():
        for i in range(4000):
            shared.publish(blobs[i % 5])

    def read():
        last = 0
        while last < 4000:
            version, blob = shared.snapshot()
            assert version >= last
            assert version == 0 or blob == blobs[(version - 1) % 5]
            last = version

    children(write, read, read)


def test_no_admission_exceeds_the_limit(shared):
    """Reserve, look at the sum, take it back when over: never more than the limit hold at once."""

    def body(process):
        def run():
            for _ in range(2000):
                if shared.requests_add(process, 1) <= 2:
                    assert shared.worker_add(0, native.RUNNING, 1) <= 2
                    shared.worker_add(0, native.RUNNING, -1)
                shared.requests_add(process, -1)

        return run

    children(*(body(process) for process in range(4)))
    assert shared.requests_total() == 0


def test_a_killed_process_is_undone_and_its_counters_stay(shared):
    counter, gauge = shared.find_series(b"done", COUNTER), shared.find_series(b"open", GAUGE)
    for process in (1, 2):
        shared.cell_add(process, gauge, 5)
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        shared.claim_process(1, os.getpid())
        shared.inflight_add(1, 4, 3, 300)
        shared.requests_add(1, 3)
        shared.cell_add(1, counter, 11)
        os.write(told, b"x")
        signal.pause()
        os._exit(0)
    os.read(ready, 1)
    os.close(ready)
    os.close(told)
    assert shared.process_pid(1) == pid
    assert shared.inflight(4) == (3, 300)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    shared.clear_process(1)
    assert (shared.process_pid(1), shared.inflight(4), shared.requests_total()) == (0, (0, 0), 0)
    assert shared.read_series() == [(b"done", COUNTER, 11), (b"open", GAUGE, 5)]


def test_a_writer_killed_while_publishing_harms_nobody(shared):
    shared.publish(b"good")
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            while True:
                shared.publish(b"good")
        os.sched_yield()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert shared.snapshot()[1] == b"good"
        version = shared.publish(b"next")
        assert shared.snapshot() == (version, b"next")
        shared.publish(b"good")


def test_attach_shares_memory_and_identity(shared):
    other = Region.attach(shared.fd)
    assert (other.boot_id, other.processes, other.workers, other.series) == (shared.boot_id, 5, 8, 512)
    assert other.fd != shared.fd
    other.worker_set(7, native.STATUS, 2)
    assert shared.worker_get(7, native.STATUS) == 2
    other.close()
    assert shared.worker_get(7, native.STATUS) == 2


def damaged(shared, position: int, value: int) -> int:
    copy = os.memfd_create("damaged")
    os.write(copy, os.pread(shared.fd, os.fstat(shared.fd).st_size, 0))
    os.pwrite(copy, struct.pack("<q", value), 8 * position)
    return copy


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, 1, "magic"),
        (1, 99, "layout 99"),
        (3, 4096, "bytes"),
        (4, -1, "damaged"),
        (5, 1 << 60, "damaged"),
        (6, 0, "damaged"),
        (7, 1 << 50, "damaged"),
        (5, 9, "bytes"),
    ],
)
def test_attach_refuses_a_header_that_does_not_fit(shared, position, value, message):
    copy = damaged(shared, position, value)
    with pytest.raises(ValueError, match=message):
        Region.attach(copy)
    os.close(copy)


def test_attach_refuses_a_truncated_region(shared):
    copy = damaged(shared, 0, struct.unpack("<q", os.pread(shared.fd, 8, 0))[0])
    os.ftruncate(copy, os.fstat(copy).st_size - 4096)
    with pytest.raises(ValueError, match="bytes"):
        Region.attach(copy)
    os.close(copy)


def test_attach_refuses_what_is_no_region():
    with tempfile.TemporaryFile() as file:
        file.write(b"short")
        file.flush()
        with pytest.raises(ValueError, match="too short"):
            Region.attach(file.fileno())
    ends = os.pipe()
    with pytest.raises(ValueError, match="not a region"):
        Region.attach(ends[0])
    for end in ends:
        os.close(end)
    with pytest.raises(ValueError, match="not a region"):
        Region.attach(ends[0])


@pytest.mark.parametrize("arguments", [(0,), (5000,), (1, 0), (1, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1 << 40)])
def test_create_refuses_sizes_out_of_range(arguments):
    with pytest.raises(ValueError, match="must be between"):
        Region.create(*arguments)


def test_numbers_out_of_range_are_errors(shared):
    for call in (
        lambda: shared.process_pid(5),
        lambda: shared.clear_process(-1),
        lambda: shared.inflight_add(0, 8, 1, 1),
        lambda: shared.inflight(-1),
        lambda: shared.inflight_many([0, 8]),
        lambda: shared.worker_get(0, 9),
        lambda: shared.worker_set(8, 0, 1),
        lambda: shared.worker_reset(8),
        lambda: shared.sequence_next(256),
        lambda: shared.cell_add(0, 512, 1),
        lambda: shared.cell_add(5, 0, 1),
    ):
        with pytest.raises(IndexError):
            call()


def test_series_keys_have_limits(shared):
    longest = b"k" * MAX_SERIES_KEY
    assert shared.find_series(longest, COUNTER) == 0
    assert shared.find_series(longest, COUNTER) == 0
    with pytest.raises(ValueError, match="longer"):
        shared.find_series(longest + b"k", COUNTER)
    with pytest.raises(ValueError, match="another kind"):
        shared.find_series(longest, GAUGE)
    with pytest.raises(ValueError, match="kind"):
        shared.find_series(b"new", 3)


def test_a_full_table_says_so_and_its_index_is_ignored(shared):
    for i in range(512):
        assert shared.find_series(b"%d" % i, COUNTER) == i
    assert shared.find_series(b"one more", COUNTER) == -1
    assert shared.find_series(b"7", COUNTER) == 7
    shared.cell_add(0, -1, 1)
    shared.cell_set(0, -1, 1)
    assert sum(value for _, _, value in shared.read_series()) == 0


def test_draining_is_told_to_all(shared):
    other = Region.attach(shared.fd)
    assert not other.draining()
    shared.set_draining()
    assert other.draining()
    other.close()


def test_a_closed_region_refuses_calls():
    region = Region.create(1, 1, 1, 8)
    region.close()
    region.close()
    for call in (region.snapshot, region.read_series, region.requests_total, region.draining):
        with pytest.raises(ValueError, match="closed"):
            call()
    with pytest.raises(TypeError):
        Region()


def test_what_is_in_flight_is_counted_within_limits(shared):
    for requests, tokens in ((1 << 21, 0), (-(1 << 21), 0), (0, 1 << 37), (0, -(1 << 37))):
        with pytest.raises(ValueError, match="more than can be counted"):
            shared.inflight_add(0, 0, requests, tokens)
    shared.inflight_add(0, 0, 1 << 20, 1 << 36)
    assert shared.inflight(0) == (1 << 20, 1 << 36)
