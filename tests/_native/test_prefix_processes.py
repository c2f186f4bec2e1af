"""The prefix index under several processes at once (spec routing 10.3, 7). See also ``test_prefix_kills``."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from smg._native.event_blocks import EventBlocks
from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from tests._native.forks import all_of, kill_all, planes, settle, start
from tests._native.prefix_model import Model

BLOCK = 2
WRITERS = 4
CONTROL = 0
SLOTS = 64


def random_prompt(draw: random.Random) -> list[int]:
    return [draw.randrange(3) for _ in range(2 * draw.randrange(1, 12))]


def keys_of(prompt: list[int]) -> PrefixKeys:
    return PrefixKeys.of_tokens(prompt, BLOCK)


@pytest.fixture
def index() -> Iterator[PrefixIndex]:
    made = PrefixIndex.create(4 << 20, processes=WRITERS + 1, slots=SLOTS)
    for slot in range(SLOTS):
        made.admit(slot)
    yield made
    made.close()


def test_scores_equal_a_naive_model_also_with_four_processes(index):
    """All write the same few prefixes for the same workers, so that they meet all the time."""

    def ops(process: int) -> Iterator[tuple[int, list[int]]]:
        draw = random.Random(process)
        for _ in range(4000):
            yield draw.randrange(8), random_prompt(draw)

    def writer(process: int) -> Callable[[], None]:
        def run() -> None:
            index.join(process)
            for slot, prompt in ops(process):
                index.insert(keys_of(prompt), index.ticket(slot))
            settle(index)
            assert index.dropped == 0

        return run

    all_of(*(writer(process) for process in range(1, WRITERS + 1)))
    model, asked = Model(), random.Random(99)
    for process in range(1, WRITERS + 1):
        for slot, prompt in ops(process):
            model.insert(keys_of(prompt), str(slot), 1)
    for _ in range(3000):
        keys = keys_of(random_prompt(asked))
        assert planes(index, keys, range(8)) == [(model.depth(keys, str(slot), 0), 0) for slot in range(8)]


def test_the_exact_plane_stays_exact_while_others_write_the_same_entries(index):
    def writer(process: int) -> Callable[[], None]:
        def run() -> None:
            index.join(process)
            draw = random.Random(process)
            for number in range(6000):
                index.insert(keys_of(random_prompt(draw)), index.ticket(draw.randrange(8)))
                if number % 500 == 0:
                    index.expire(index.tick)

        return run

    pids = [start(writer(process)) for process in range(1, WRITERS)]
    index.join(CONTROL)
    blocks, held, draw = EventBlocks(index, 5, BLOCK), {}, random.Random(0)
    for name in range(6000):
        if draw.random() < 0.5 and held:
            gone = draw.choice(list(held))
            blocks.remove([gone])
            del held[gone]
        else:
            prompt = random_prompt(draw)
            names = [name * 100 + number for number in range(len(prompt) // BLOCK)]
            assert blocks.store(names, prompt)
            held.update(zip(names, keys_of(prompt).tolist(), strict=True))
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)
    exact = set(held.values())
    assert len(blocks) == len(exact)
    # On a busy machine somebody may have been off the processor while it had the lock of a part.
    assert blocks.repair()
    for _ in range(3000):
        keys = keys_of(random_prompt(draw))
        depth = next((at for at, key in enumerate(keys.tolist()) if key not in exact), keys.count)
        assert [exact for _, exact in planes(index, keys, [4, 5])] == [0, depth]


def test_a_stopped_process_makes_no_block_forgotten(index):
    """What cannot be taken out while a process is stopped inside a part of the table is taken out afterwards."""

    def write() -> None:
        index.join(1)
        number = 0
        while True:
            index.insert(keys_of([number, *range(60)]), index.ticket(1))
            number += 1

    names = list(range(2000))
    until, owed = time.monotonic() + 60, 0
    pid = start(write)
    try:
        index.join(CONTROL)
        while not owed and time.monotonic() < until:
            blocks = EventBlocks(index, 5, BLOCK)
            for name in names:
                blocks.store([name], [name, name])
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            for name in names[1::2]:
                blocks.remove([name])
            owed = blocks.owed
            assert len(blocks) == 1000
            shown = sum(exact for name in names for _, exact in planes(index, keys_of([name, name]), [5]))
            # Nothing is shown of a part that is being laid out anew.
            assert shown <= 1000 + owed
            os.kill(pid, signal.SIGCONT)
        assert owed
    finally:
        kill_all([pid])
    assert blocks.settle()
    # The part of a process that died inside it is emptied.
    assert blocks.repair()
    found = [planes(index, keys_of([name, name]), [5])[0][1] for name in names]
    assert found == [1, 0] * 1000
    blocks.store([names[1]], [names[1]] * 2)
    assert (len(blocks), planes(index, keys_of([names[1]] * 2), [5])) == (1001, [(0, 1)])


def test_readers_see_what_is_there_while_others_write_and_the_table_grows(index):
    """A part that is being laid out anew counts as holding nothing: rarely, and nothing wrong is ever seen."""
    hot = [keys_of([9, number, *range(20)]) for number in range(50)]
    for keys in hot:
        index.insert(keys, index.ticket(3))

    def writer(process: int) -> Callable[[], None]:
        def run() -> None:
            index.join(process)
            for number in range(4000):
                index.insert(keys_of([process, number, *range(12)]), index.ticket(7))

        return run

    pids = [start(writer(process)) for process in (1, 2)]
    looks = whole = 0
    while os.waitpid(pids[0], os.WNOHANG)[0] == 0:
        for keys in hot:
            ours, others = planes(index, keys, [3, 7])
            assert ours[0] <= 11
            assert others == (0, 0)
            looks += 1
            whole += ours == (11, 0)
    assert os.waitpid(pids[1], 0)[1] == 0
    assert whole > looks // 2
    for keys in hot:
        assert planes(index, keys, [3, 7]) == [(11, 0), (0, 0)]


def test_a_lock_of_a_dead_process_is_taken_over_by_whoever_meets_it(index):
    """Kill writers until parts of the table were emptied for it: others then go on by themselves."""
    until = time.monotonic() + 60

    def write() -> None:
        index.join(1)
        number = 0
        while True:
            index.insert(keys_of([number, number + 1, *range(30)]), index.ticket(1))
            number += 2

    while index.counts()["resets"] == 0 and time.monotonic() < until:
        pid = start(write)
        time.sleep(0.002 + random.random() * 0.02)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for number in range(100):
            index.insert(keys_of([7, number, *range(30)]), index.ticket(2))
        assert index.flush() == 0
    assert index.counts()["resets"] > 0
    for number in range(100):
        index.insert(keys_of([7, number, *range(30)]), index.ticket(2))
        assert planes(index, keys_of([7, number, *range(30)]), [2]) == [(16, 0)]


def test_nobody_waits_for_a_stopped_process(index):
    """A process that is stopped while it writes delays nobody; what could not be written is written later."""
    keys = [keys_of([number, *range(31)]) for number in range(300)]

    def write() -> None:
        index.join(1)
        while True:
            for each in keys:
                index.insert(each, index.ticket(random.randrange(SLOTS)))

    pid = start(write)
    try:
        late = 0
        for _ in range(40):
            time.sleep(0.003)
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            for each in keys:
                index.insert(each, index.ticket(1))
            late += index.flush()
            os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        settle(index)
        for each in keys:
            index.insert(each, index.ticket(1))
            assert planes(index, each, [1]) == [(16, 0)]
    finally:
        kill_all([pid])


def test_a_column_is_not_given_out_again_while_somebody_may_write_it(index):
    """A stopped process may hold the ticket of a former worker; its late write must not fall to a successor."""
    keys = keys_of(list(range(600)))

    ready, told = os.pipe()

    def write() -> None:
        index.join(1)
        ticket = index.ticket(0)
        os.write(told, b"x")
        while True:
            index.insert(keys, ticket)

    pid = start(write)
    try:
        os.read(ready, 1)
        for _ in range(30):
            time.sleep(0.002)
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            index.dismiss(0)
            swept = index.sweep()
            index.admit(0)
            assert planes(index, keys, [0]) == [(0, 0)], swept
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.001)
            assert planes(index, keys, [0]) == [(0, 0)]
    finally:
        kill_all([pid])
