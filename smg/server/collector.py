"""Keeps Python's cyclic collector short on an event loop (field case PF-01).

A full collection visits every object there is. A worker that has loaded its modules, its application and a tokenizer
has some hundred thousand of them, which stay for good: 100 ms in which no stream gets a token, every few seconds under
load. So what a full collection leaves over is frozen when it is much: the collector visits it no more. Frozen objects
are still freed when nobody refers to them; only cycles among those of requests that ran at that moment stay, which is
why it is done a few times in a process's life and not each time.
"""

import gc
from typing import Literal

# Survivors of a full collection that are worth freezing: some 3 ms to visit.
_MANY = 15_000
_TIMES = 8
# Collections of a generation before the next older one is collected too. Python has 10 for the oldest: too much garbage
# for one step.
_THRESHOLDS = (5000, 10, 3)


class Collector:
    """Freezes what is there to stay. One for a process that runs an event loop."""

    def __init__(self) -> None:
        self._left = _TIMES
        self._thresholds = gc.get_threshold()

    def begin(self) -> None:
        """Freeze everything there is, which takes a full collection, and watch from now on."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._watch)

    def end(self) -> None:
        """Watch no more, and collect as before."""
        gc.set_threshold(*self._thresholds)
        gc.callbacks.remove(self._watch)

    def _watch(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != 2 or not self._left:
            return
        if len(gc.get_objects(generation=2)) >= _MANY:
            self._left -= 1
            gc.freeze()
