"""Processes that write the prefix index are killed and stopped at random: nobody ever holds what nobody gave it.

What an index may show is known from a naive replay: every process notes what it is about to store, for whom, before it
does so, and control wipes a worker's notes between its removal and the next worker in its slot. A holder without a note
is a phantom. Losing knowledge is allowed, having it wrong is not (spec routing 10.3, 7).
"""

import mmap
import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from smg._native.event_blocks import EventBlocks
from smg._native.prefix_index import PrefixIndex
from smg._native.prefix_keys import PrefixKeys
from tests._native.forks import kill_all, planes, settle, start
from tests._native.prefix_model import Model

BLOCK = 2
WRITERS = 4
CONTROL = 0
SLOTS = 64
ENTRIES = 10_000
# Prompts are the numbers of four digits, a block per digit: 11,110 prefixes, more than fit, so that entries are evicted
# all the time. A worker is given numbers of one first digit only, so that there is much it must not hold.
DIGITS = 4
PROMPTS = 10**DIGITS
FAMILY = PROMPTS // 10
PHANTOM = 3  # exit status


def prompt(number: int) -> PrefixKeys:
    return PrefixKeys.of_tokens([int(digit) for digit in f"{number:04}" for _ in range(BLOCK)], BLOCK)


class Notes:
    """What each worker may hold in the approximate plane: a byte per prompt, in memory all processes share."""

    def __init__(self) -> None:
        self._bytes = mmap.mmap(-1, SLOTS * PROMPTS)

    def add(self, slot: int, number: int) -> None:
        self._bytes[slot * PROMPTS + number] = 1

    def wipe(self, slot: int) -> None:
        self._bytes[slot * PROMPTS : (slot + 1) * PROMPTS] = bytes(PROMPTS)

    def any(self, slot: int, number: int, depth: int) -> bool:
        """Whether a prompt with the first ``depth`` digits of ``number`` is noted."""
        step = 10 ** (DIGITS - depth)
        first = slot * PROMPTS + number // step * step
        return self._bytes.find(b"\1", first, first + step) >= 0


class Crashes:
    """Four writers and control on an index of 10,000 entries."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.index = PrefixIndex.create(32 * ENTRIES + 4096, processes=WRITERS + 1, slots=SLOTS)
        self.notes = Notes()
        for slot in range(SLOTS):
            self.index.admit(slot)
        self.pids: dict[int, int] = {}
        self.stopped: dict[int, float] = {}  # process: when it goes on
        self.kills = self.stops = self.looks = self.held = 0

    def phantoms(self, number: int) -> list[int]:
        """Slots that hold a beginning of the prompt in the approximate plane although nobody stored it for them."""
        before = [self.index.ticket(slot) for slot in range(SLOTS)]
        depths = self.index.depth(prompt(number), range(SLOTS))
        suspects = [slot for slot, depth in enumerate(depths) if depth and not self.notes.any(slot, number, depth)]
        self.looks += 1
        self.held += sum(map(bool, depths))
        # One that was replaced meanwhile may have been seen before and judged by its successor's notes.
        return [slot for slot in suspects if self.index.ticket(slot) == before[slot]]

    # bodies of the processes

    def write(self, process: int, seed: int) -> None:
        """Store for workers that are there and for ones that have left, look for phantoms; for ever."""
        self.index.join(process)
        draw = random.Random(seed)
        kept = [0] * SLOTS
        while True:
            slot = draw.randrange(SLOTS)
            number = draw.randrange(PROMPTS)
            if kept[slot] and kept[slot] != self.index.ticket(slot):
                # A late lesson of a worker that has left: without a note, as it must have no effect.
                self.index.insert(prompt(number), kept[slot])
            kept[slot] = ticket = self.index.ticket(slot)
            if ticket:
                number = (ticket >> 32) % 10 * FAMILY + number % FAMILY
                self.notes.add(slot, number)
                self.index.insert(prompt(number), ticket)
                if draw.random() < 0.1:
                    self.index.withdraw(prompt(number), ticket, draw.randrange(DIGITS))
            if draw.random() < 0.05 and self.phantoms(draw.randrange(PROMPTS)):
                os._exit(PHANTOM)

    def rule(self, seed: int) -> None:
        """Replace workers, tell of blocks and take them back, and compare the exact plane with what was told."""
        self.index.join(CONTROL)
        draw = random.Random(seed)
        blocks: dict[int, EventBlocks] = {}
        told: dict[int, set[int]] = {}  # keys each slot's engine holds
        for slot in range(SLOTS):
            # What a control process has told is gone with it, and one that died may have left a slot without tickets.
            if not self.index.ticket(slot):
                self.notes.wipe(slot)
            self.index.admit(slot)
            self.index.renew(slot)
        while True:
            slot = draw.randrange(SLOTS)
            if draw.random() < 0.2:
                blocks.pop(slot, None)
                self.index.dismiss(slot)
                self.notes.wipe(slot)
                self.index.admit(slot)
            if slot not in blocks:
                blocks[slot] = EventBlocks(self.index, slot, BLOCK)
                told[slot] = set()
            number = draw.randrange(PROMPTS)
            keys, names = prompt(number).tolist(), [(number // 10**power) * 10 + power for power in (3, 2, 1, 0)]
            gone = draw.randrange(DIGITS)
            if draw.random() < 0.6:
                stored = blocks[slot].store(names, [int(digit) for digit in f"{number:04}" for _ in range(BLOCK)])
                told[slot] = told[slot] | set(keys) if stored else set()
            else:
                blocks[slot].remove(names[gone:])
                while blocks[slot].owed:
                    blocks[slot].settle()
                told[slot] -= set(keys[gone:])
            self.compare(number, slot, told[slot])

    def compare(self, number: int, slot: int, told: set[int]) -> None:
        """An emptied part of the table may have lost blocks; one that is shown was told and not taken back."""
        keys = prompt(number)
        depth = self.index.depth(keys, [slot], 1)[0]
        if not told.issuperset(keys.tolist()[:depth]):
            os._exit(PHANTOM)

    # the one who kills

    def launch(self, process: int) -> None:
        seed = self.draw.randrange(1 << 30)
        body: Callable[[], None] = (
            (lambda: self.rule(seed)) if process == CONTROL else (lambda: self.write(process, seed))
        )
        self.pids[process] = start(body)

    def kill(self, process: int) -> None:
        os.kill(self.pids[process], signal.SIGKILL)
        assert os.waitpid(self.pids[process], 0)[1] == signal.SIGKILL, "a process found a phantom"
        self.stopped.pop(process, None)
        self.kills += 1
        # The supervisor helps; without it the others notice that the pid is gone.
        if self.draw.random() < 0.5:
            self.index.clear_process(process)

    def stop(self, process: int) -> None:
        os.kill(self.pids[process], signal.SIGSTOP)
        self.stopped[process] = time.monotonic() + self.draw.random() * 0.5
        self.stops += 1

    def go_on(self) -> None:
        """Let those go on whose time is over."""
        for process, until in list(self.stopped.items()):
            if time.monotonic() >= until:
                del self.stopped[process]
                os.kill(self.pids[process], signal.SIGCONT)

    def run(self, seconds: float) -> None:
        everybody = range(WRITERS + 1)
        for process in everybody:
            self.launch(process)
        until = time.monotonic() + seconds
        # On a busy machine it takes longer until enough has happened for the test to be worth something.
        while time.monotonic() < until or min(self.kills, self.stops) <= seconds:
            time.sleep(self.draw.random() * 0.02)
            self.go_on()
            victim = self.draw.choice(everybody)
            if self.draw.random() < 0.3 and victim not in self.stopped:
                self.stop(victim)
            else:
                self.kill(victim)
                self.launch(victim)
            for number in self.draw.sample(range(PROMPTS), 20):
                assert self.phantoms(number) == []
        for process in everybody:
            self.kill(process)

    def check(self) -> None:
        """No phantom is left, no part of the table is stuck, and all of it works."""
        for number in range(PROMPTS):
            assert self.phantoms(number) == []
        self.index.join(CONTROL)
        for slot in range(SLOTS):
            self.index.dismiss(slot)
            assert planes(self.index, prompt(0), [slot]) == [(0, 0)]
            assert self.index.admit(slot)
        assert self.index.sweep()
        model = Model()
        for number in self.draw.sample(range(PROMPTS), 1500):
            slot = number % SLOTS
            keys = prompt(number)
            assert self.index.insert(keys, self.index.ticket(slot)) == keys.count
            model.insert(keys, str(slot), self.index.tick)
        settle(self.index)
        model.evict(self.index.floor)
        for number in self.draw.sample(range(PROMPTS), 2000):
            keys = prompt(number)
            wanted = [(model.depth(keys, str(slot), 0), 0) for slot in range(SLOTS)]
            assert planes(self.index, keys, range(SLOTS)) == wanted

    def close(self) -> None:
        kill_all(self.pids.values())
        self.index.close()


@pytest.mark.parametrize(
    "seconds",
    [6, pytest.param(600, marks=[pytest.mark.full, pytest.mark.timeout(1200)])],
)
def test_killed_and_stopped_processes_leave_no_phantom_holder(seconds):
    crashes = Crashes(seed=seconds)
    try:
        crashes.run(seconds)
        assert crashes.held > crashes.looks
        crashes.check()
    finally:
        crashes.close()
