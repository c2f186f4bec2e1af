"""The memory of the prefix index: its workers and their tickets, sizes, headers and limits."""

import os
import struct

import pytest

from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from smg._native.prefix_segment import MAX_WORKERS

BLOCK = 2
BYTES = 1 << 20


def keys_of(prompt: list[int]) -> PrefixKeys:
    return PrefixKeys.of_tokens(prompt, BLOCK)


def planes(index: PrefixIndex, keys: PrefixKeys, slots) -> list[tuple[int, int]]:
    """(approximate, exact) depth of each slot."""
    return list(zip(index.depth(keys, slots, 0), index.depth(keys, slots, 1), strict=True))


@pytest.fixture
def index():
    made = PrefixIndex.create(BYTES, processes=4, slots=256)
    yield made
    made.close()


class TestWorkers:
    def test_worker_removed_instant(self, index):
        keys, ticket = keys_of([1, 2, 3, 4]), index.admit(3)
        index.insert(keys, ticket)
        other = PrefixIndex.attach(index.fd)
        index.dismiss(3)
        assert planes(other, keys, [3]) == [(0, 0)]
        assert other.ticket(3) == 0
        other.close()

    def test_a_ticket_of_a_former_worker_learns_nothing(self, index):
        keys, former = keys_of([1, 2, 3, 4]), index.admit(3)
        index.dismiss(3)
        assert index.insert(keys, former) == 0
        successor = index.admit(3)
        assert successor != former
        assert index.insert(keys, former) == 0
        assert planes(index, keys, [3]) == [(0, 0)]
        assert index.insert(keys, successor) == 2

    def test_a_successor_inherits_nothing(self, index):
        """Also when the same column comes round again, and in every group."""
        keys = keys_of(list(range(20)))
        for turn in range(3 * MAX_WORKERS // 256):
            for slot in range(0, 256, 17):
                ticket = index.admit(slot)
                assert ticket
                assert planes(index, keys, [slot]) == [(0, 0)], turn
                index.insert(keys, ticket)
            for slot in range(0, 256, 17):
                assert planes(index, keys, [slot]) == [(10, 0)]
                index.dismiss(slot)

    def test_admitting_twice_keeps_what_is_known(self, index):
        keys = keys_of([1, 2])
        ticket = index.admit(3)
        index.insert(keys, ticket)
        assert index.admit(3) == ticket
        assert planes(index, keys, [3]) == [(1, 0)]

    def test_columns_run_out_only_beyond_4096_workers(self):
        index = PrefixIndex.create(BYTES, slots=MAX_WORKERS + 2)
        tickets = [index.admit(slot) for slot in range(MAX_WORKERS + 2)]
        assert all(tickets[:MAX_WORKERS])
        assert tickets[MAX_WORKERS:] == [0, 0]
        assert index.insert(keys_of([1, 2]), 0) == 0
        index.insert(keys_of([1, 2]), tickets[MAX_WORKERS - 1])
        assert planes(index, keys_of([1, 2]), [0, MAX_WORKERS - 1, MAX_WORKERS]) == [(0, 0), (1, 0), (0, 0)]
        index.dismiss(17)
        assert index.admit(MAX_WORKERS)
        index.close()

    def test_a_new_control_process_takes_over(self, index):
        keys = keys_of([1, 2])
        index.insert(keys, index.admit(3))
        heir = PrefixIndex.attach(index.fd)
        heir.join(1)
        assert heir.admit(3) == index.ticket(3)
        assert heir.admit(4)
        assert planes(heir, keys, [3, 4]) == [(1, 0), (0, 0)]
        heir.close()

    def test_live_is_for_the_exact_plane_and_ends_with_it(self, index):
        index.admit(3)
        assert index.live(3) == 0
        index.set_live(3, 16)
        assert index.live(3) == 16
        index.renew(3)
        assert index.live(3) == 0
        index.set_live(3, 16)
        index.dismiss(3)
        assert index.live(3) == 0


class TestSegment:
    def test_attach_shares_memory_and_identity(self, index):
        other = PrefixIndex.attach(index.fd)
        assert (other.boot_id, other.counts()) == (index.boot_id, index.counts())
        assert other.fd != index.fd
        other.close()

    @pytest.mark.parametrize(
        ("position", "value", "message"),
        [
            (0, 1, "magic"),
            (1, 99, "layout 99"),
            (3, 4096, "bytes"),
            (4, 0, "damaged"),
            (5, 1 << 60, "damaged"),
            (6, 60, "damaged"),
            (7, 1, "damaged"),
            (5, 255, "bytes|layout"),
        ],
    )
    def test_attach_refuses_a_header_that_does_not_fit(self, index, position, value, message):
        size = os.fstat(index.fd).st_size
        copy = os.memfd_create("damaged")
        os.truncate(copy, size + (4096 if position == 5 and value == 255 else 0))
        os.pwrite(copy, os.pread(index.fd, 4096, 0), 0)
        os.pwrite(copy, struct.pack("<Q", value), 8 * position)
        with pytest.raises(ValueError, match=message):
            PrefixIndex.attach(copy)
        os.close(copy)

    def test_attach_refuses_what_is_no_index(self, tmp_path):
        path = tmp_path / "short"
        path.write_bytes(b"no")
        with path.open("rb") as file, pytest.raises(ValueError, match="too short"):
            PrefixIndex.attach(file.fileno())

    def test_a_closed_index_raises(self, index):
        copy = PrefixIndex.attach(index.fd)
        copy.close()
        copy.close()
        for call in (copy.counts, copy.sweep, copy.flush, lambda: copy.admit(0), lambda: copy.ticket(0)):
            with pytest.raises(ValueError, match="closed"):
                call()

    @pytest.mark.parametrize("arguments", [(0,), (1 << 40,), (BYTES, 0), (BYTES, 1, 0), (BYTES, 1, 70000)])
    def test_sizes_have_limits(self, arguments):
        with pytest.raises(ValueError, match="must be between"):
            PrefixIndex.create(*arguments)

    def test_numbers_out_of_range(self, index):
        for call in (
            index.admit,
            index.dismiss,
            index.ticket,
            index.live,
            lambda slot: index.depth(keys_of([]), [slot]),
        ):
            with pytest.raises(IndexError):
                call(256)
            with pytest.raises(IndexError):
                call(-1)
        for call in (index.join, index.clear_process):
            with pytest.raises(IndexError):
                call(4)
        for call in (index.ticket, index.renew):
            with pytest.raises(ValueError, match="plane"):
                call(0, 2)

    def test_it_is_made_by_create_or_attach(self):
        with pytest.raises(TypeError, match="create or attach"):
            PrefixIndex()
