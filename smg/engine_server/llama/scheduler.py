"""Continuous batching over the model's slots, in a thread of its own.

Every turn: cancelled jobs leave, waiting ones take free slots, then one batch brings each running sequence its next
token and prefills prompts in chunks, so that a long prompt does not hold up its neighbours. A slot keeps its KV memory
after its job; the next job with a common prefix goes on from there, or from a copy.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from smg.core import clock
from smg.engine_server.llama.job import End, Event, Failed, Job
from smg.engine_server.llama.kv_blocks import Change, SlotMemory
from smg.engine_server.llama.model import BATCH_ROWS, EXACT_ROWS, DecodeError, Logits, Model, Piece


class Delivery(NamedTuple):
    """What happened in one turn: ``news`` of jobs and ``changes`` of the KV memory, each in order."""

    news: list[tuple[Job, Event]]
    changes: list[Change]


# Prompt tokens per turn while others decode: about what keeps a turn below a second on a slow core.
_PREFILL_BESIDE_DECODE = 64
# A copy moves a whole slot's memory, which pays from about this many tokens on.
_COPY_FROM = 32
_RATE_WINDOW_SECS = 10.0


class Load(NamedTuple):
    """The scheduler at one moment. ``waiting_tokens`` are prompt tokens of waiting jobs, ``rate`` is in tokens/s over
    the last ten seconds, ``hit_rate`` the share of all prompt tokens so far that were cached."""

    running: int
    waiting: int
    used_tokens: int
    max_tokens: int
    waiting_tokens: int
    rate: float
    hit_rate: float


class Scheduler(threading.Thread):
    """Runs jobs on ``model``, which it owns from ``start`` on.

    ``deliver`` is called on this thread once per turn with everything that happened in it, in order.
    """

    def __init__(self, model: Model, deliver: Callable[[Delivery], None]) -> None:
        super().__init__(name="llama-scheduler", daemon=True)
        self._model = model
        self._deliver = deliver
        self._memory = SlotMemory(model.slots)
        self._used_at = [0] * model.slots
        self._turns = 0
        self._running: dict[int, Job] = {}
        self._waiting: deque[Job] = deque()
        # Between the two above: out of the queue, not yet in a slot. Always with _wake held, as those.
        self._starting: list[Job] = []
        self._flushes: list[tuple[float, Future[bool]]] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._news: list[tuple[Job, Event]] = []
        self._recent: deque[tuple[float, int]] = deque()
        self._prompt_tokens = 0
        self._cached_tokens = 0

    # -- called from other threads

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue ``jobs``. Raises RuntimeError when the scheduler has ended."""
        with self._wake:
            if self._stopping or not self.is_alive():
                raise RuntimeError("the engine is not running")
            self._waiting.extend(jobs)
            self._wake.notify()

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Stop ``jobs`` before their next token; each still reports its end (abort), if it has not ended yet."""
        with self._wake:
            for job in jobs:
                job.cancelled = True
            self._wake.notify()

    def flush(self, timeout: float) -> Future[bool]:
        """Forget all cached prefixes as soon as nothing runs or waits; False when that takes ``timeout`` seconds."""
        done: Future[bool] = Future()
        with self._wake:
            if self._stopping or not self.is_alive():
                done.set_result(False)
            else:
                self._flushes.append((clock.monotonic() + timeout, done))
                self._wake.notify()
        return done

    def stop(self) -> None:
        """End all jobs (abort), then the thread; returns when it is gone."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self.join()

    def load(self) -> Load:
        """What is going on."""
        with self._wake:
            since = clock.monotonic() - _RATE_WINDOW_SECS
            recent = sum(count for when, count in self._recent if when >= since)
            return Load(
                running=len(self._running) + len(self._starting),
                waiting=len(self._waiting),
                used_tokens=sum(job.fed for job in self._running.values()),
                max_tokens=self._model.slots * self._model.context_length,
                waiting_tokens=sum(len(job.prompt) for job in self._waiting),
                rate=recent / _RATE_WINDOW_SECS,
                hit_rate=self._cached_tokens / self._prompt_tokens if self._prompt_tokens else 0.0,
            )

    # -- the thread

    def run(self) -> None:
        """Turn until stopped; idle, wait without using the CPU."""
        while self._await_work():
            try:
                self._answer_flushes()
                for job in self._next_jobs():
                    self._start_job(job)
                self._turn()
            except Exception as error:  # a bug must cost the jobs it met, not the engine
                self._fail_running(f"{type(error).__name__} in the scheduler")
            self._deliver_news()
        with self._wake:
            self._sweep(everyone=True)
            flushes, self._flushes = self._flushes, []
        for _, done in flushes:
            done.set_result(False)
        self._deliver_news()

    def _await_work(self) -> bool:
        """Wait for something to do; False when it is time to end."""
        with self._wake:
            while not (self._stopping or self._waiting or self._running or self._flushes):
                self._wake.wait()
            if not self._stopping:
                self._sweep()
            return not self._stopping

    def _deliver_news(self) -> None:
        news, self._news = self._news, []
        changes = self._memory.changes()
        if news or changes:
            self._deliver(Delivery(news, changes))

    def _answer_flushes(self) -> None:
        with self._wake:
            if not self._flushes:
                return
            idle = not (self._running or self._waiting)
            now = clock.monotonic()
            due = [entry for entry in self._flushes if idle or entry[0] <= now]
            self._flushes = [entry for entry in self._flushes if entry not in due]
        if idle:
            for slot in range(self._model.slots):
                self._model.trim(slot, 0)
            self._memory.clear()
        for _, done in due:
            done.set_result(idle)

    def _sweep(self, everyone: bool = False) -> None:
        """Let cancelled jobs go (all with ``everyone``). Called with _wake held."""
        for job in [*self._running.values(), *self._waiting]:
            if job.cancelled or everyone:
                self._end(job, End("abort"))
        self._waiting = deque(job for job in self._waiting if not job.over)

    def _end(self, job: Job, event: End | Failed) -> None:
        with self._wake:
            job.over = True
            if self._running.get(job.slot) is job:
                del self._running[job.slot]
                self._used_at[job.slot] = self._turns
            if job in self._starting:
                self._starting.remove(job)
        self._news.append((job, event))

    # -- slots and prefixes

    def _next_jobs(self) -> list[Job]:
        """Take as many waiting jobs as slots are free, first come first served; followers only behind their leader."""
        with self._wake:
            ready = [job for job in self._waiting if job.leader is None or job.leader.prefilled or job.leader.over]
            self._starting = ready[: self._model.slots - len(self._running)]
            for job in self._starting:
                self._waiting.remove(job)
            return list(self._starting)

    def _start_job(self, job: Job) -> None:
        try:
            slot, fed = self._place(job)
        except Exception as error:
            # How far it came is not known, so neither is what the free slots hold.
            for free in range(self._model.slots):
                if free not in self._running:
                    self._memory.keep(free, 0)
            self._end(job, Failed(f"{type(error).__name__} in the KV memory"))
            return
        self._memory.keep(slot, fed)
        job.fed = fed
        job.cached = fed if job.leader is None else job.leader.cached
        with self._wake:
            job.slot = slot
            self._running[slot] = job
            self._starting.remove(job)
        self._prompt_tokens += len(job.prompt)
        self._cached_tokens += fed

    def _place(self, job: Job) -> tuple[int, int]:
        """Choose a free slot for the job and keep or copy the longest cached prefix; returns slot and its length."""
        # The last prompt token is always decoded: its logits are the first to be sampled. Scores need all of them.
        limit = len(job.prompt) - 1 if job.scored is None else 0
        slots = range(self._model.slots)
        shared = [common_prefix(self._memory[slot], job.prompt, limit) for slot in slots]
        free = [slot for slot in slots if slot not in self._running]
        oldest = min(free, key=lambda slot: self._used_at[slot])
        best = max(slots, key=lambda slot: (shared[slot], slot in free))
        lost = len(self._memory[best]) - shared[best]
        if best in free and lost < _COPY_FROM:
            return best, self._model.trim(best, shared[best])
        if shared[best] >= shared[oldest] + _COPY_FROM:
            kept = self._model.copy(best, oldest, shared[best])
            self._memory.copy(best, oldest, kept)
            return oldest, kept
        return oldest, self._model.trim(oldest, shared[oldest])

    # -- one turn

    def _turn(self) -> None:
        self._turns += 1
        pieces = self._pieces()
        if pieces:
            self._decode(pieces)

    def _pieces(self) -> list[Piece]:
        """The next tokens of every running job that fit the batch: decodes first, then prefills, oldest first."""
        jobs = self._running.values()
        decoding = [job for job in jobs if job.prefilled]
        pieces = [self._piece(job, 1) for job in decoding]
        room = BATCH_ROWS - len(pieces)
        if decoding:
            room = min(room, _PREFILL_BESIDE_DECODE)
        scored = False
        for job in jobs:
            # One scored prompt at a time: each of its tokens takes a whole row of logits.
            if job.prefilled or room <= 0 or (scored and job.scored is not None):
                continue
            scored = scored or job.scored is not None
            pieces.append(self._piece(job, min(room, EXACT_ROWS)))
            room -= len(pieces[-1].tokens)
        # llama.cpp forms its sub-batches of consecutive sequence ids.
        return sorted(pieces, key=lambda piece: piece.slot)

    def _piece(self, job: Job, room: int) -> Piece:
        tokens = job.pending(room)
        return Piece(job.slot, tokens, job.fed, job.outputs(len(tokens)))

    def _decode(self, pieces: Sequence[Piece]) -> None:
        """Decode and sample. When a batch fails, each piece gets a try of its own, so that one can't take others."""
        try:
            outputs = self._model.step(pieces)
        except DecodeError as error:
            for piece in pieces:
                kept = self._model.trim(piece.slot, piece.position)
                if len(pieces) == 1 or kept < piece.position:
                    self._memory.keep(piece.slot, kept)
                    self._end(self._running[piece.slot], Failed(str(error)))
                else:
                    self._decode([piece])
            return
        sampled = 0
        for piece in pieces:
            job, rows = self._running[piece.slot], outputs.get(piece.slot, [])
            self._memory.extend(piece.slot, piece.tokens)
            job.fed += len(piece.tokens)
            job.score(rows)
            if job.prefilled:
                self._sample(job, rows[-1])
                sampled += 1
        with self._wake:
            now = clock.monotonic()
            self._recent.append((now, sampled))
            while self._recent[0][0] < now - _RATE_WINDOW_SECS:
                self._recent.popleft()

    def _sample(self, job: Job, logits: Logits) -> None:
        try:
            events = job.take(logits)
        except Exception as error:  # whatever a job's parameters provoke is its own
            events = [Failed(f"sampling failed: {error}")]
        for event in events:
            if isinstance(event, End | Failed):
                self._end(job, event)
            else:
                self._news.append((job, event))

    def _fail_running(self, message: str) -> None:
        for job in [*self._running.values(), *self._starting]:
            if job.slot >= 0:
                self._memory.keep(job.slot, self._model.trim(job.slot, 0))
            self._end(job, Failed(message))


def common_prefix(left: Sequence[int], right: Sequence[int], limit: int) -> int:
    """Length of the common prefix, at most ``limit``."""
    count = 0
    for a, b in zip(left[:limit], right[:limit], strict=False):
        if a != b:
            break
        count += 1
    return count
