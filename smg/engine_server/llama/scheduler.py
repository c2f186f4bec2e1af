"""Continuous batching over the model's slots, in a thread of its own.

Every turn: cancelled jobs leave, waiting ones take free slots, then one batch brings each running sequence its next
token and prefills prompts in chunks, so that a long prompt does not hold up its neighbours. A slot keeps its KV memory
after its job; the next job with a common prefix goes on from there, or from a copy.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from smg.core import clock
from smg.engine_server.llama.job import End, Event, Failed, Job
from smg.engine_server.llama.model import BATCH_ROWS, EXACT_ROWS, DecodeError, Logits, Model, Piece

Delivery: TypeAlias = list[tuple[Job, Event]]

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
        self._held: list[list[int]] = [[] for _ in range(model.slots)]
        self._used_at = [0] * model.slots
        self._turns = 0
        self._running: dict[int, Job] = {}
        self._waiting: deque[Job] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._news: Delivery = []
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
                running=len(self._running),
                waiting=len(self._waiting),
                used_tokens=sum(job.fed for job in list(self._running.values())),
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
                for job in self._next_jobs():
                    self._start_job(job)
                self._turn()
            except Exception as error:  # a bug must cost the jobs it met, not the engine
                self._fail_running(f"{type(error).__name__} in the scheduler")
            self._flush()
        with self._wake:
            self._sweep(everyone=True)
        self._flush()

    def _await_work(self) -> bool:
        """Wait for something to do; False when it is time to end."""
        with self._wake:
            while not (self._stopping or self._waiting or self._running):
                self._wake.wait()
            if not self._stopping:
                self._sweep()
            return not self._stopping

    def _flush(self) -> None:
        news, self._news = self._news, []
        if news:
            self._deliver(news)

    def _sweep(self, everyone: bool = False) -> None:
        """Let cancelled jobs go (all with ``everyone``)."""
        for job in [*self._running.values(), *self._waiting]:
            if job.cancelled or everyone:
                self._end(job, End("abort"))
        self._waiting = deque(job for job in self._waiting if not job.over)

    def _end(self, job: Job, event: End | Failed) -> None:
        job.over = True
        if self._running.get(job.slot) is job:
            del self._running[job.slot]
            self._used_at[job.slot] = self._turns
        self._news.append((job, event))

    # -- slots and prefixes

    def _next_jobs(self) -> list[Job]:
        """Take as many waiting jobs as slots are free, first come first served; followers only behind their leader."""
        with self._wake:
            ready = [job for job in self._waiting if job.leader is None or job.leader.prefilled or job.leader.over]
            chosen = ready[: self._model.slots - len(self._running)]
            for job in chosen:
                self._waiting.remove(job)
            return chosen

    def _start_job(self, job: Job) -> None:
        try:
            job.slot, job.fed = self._place(job)
        except Exception as error:
            self._end(job, Failed(f"{type(error).__name__} in the KV memory"))
            return
        self._held[job.slot] = job.prompt[: job.fed]
        job.cached = job.fed if job.leader is None else job.leader.cached
        self._running[job.slot] = job
        self._prompt_tokens += len(job.prompt)
        self._cached_tokens += job.fed

    def _place(self, job: Job) -> tuple[int, int]:
        """Choose a free slot for the job and keep or copy the longest cached prefix; returns slot and its length."""
        # The last prompt token is always decoded: its logits are the first to be sampled.
        shared = [common_prefix(held, job.prompt, len(job.prompt) - 1) for held in self._held]
        free = [slot for slot in range(self._model.slots) if slot not in self._running]
        oldest = min(free, key=lambda slot: self._used_at[slot])
        best = max(range(self._model.slots), key=lambda slot: (shared[slot], slot in free))
        lost = len(self._held[best]) - shared[best]
        if best in free and lost < _COPY_FROM:
            return best, self._model.trim(best, shared[best])
        if shared[best] >= shared[oldest] + _COPY_FROM:
            return oldest, self._model.copy(best, oldest, shared[best])
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
        for job in jobs:
            if not job.prefilled and room > 0:
                piece = self._piece(job, min(room, EXACT_ROWS))
                pieces.append(piece)
                room -= len(piece.tokens)
        # llama.cpp forms its sub-batches of consecutive sequence ids.
        return sorted(pieces, key=lambda piece: piece.slot)

    def _piece(self, job: Job, room: int) -> Piece:
        tokens = job.pending(room)
        return Piece(job.slot, tokens, job.fed, job.fed + len(tokens) >= len(job.prompt))

    def _decode(self, pieces: Sequence[Piece]) -> None:
        """Decode and sample. When a batch fails, each piece gets a try of its own, so that one can't take others."""
        try:
            rows = self._model.step(pieces)
        except DecodeError as error:
            for piece in pieces:
                kept = self._model.trim(piece.slot, piece.position)
                if len(pieces) == 1 or kept < piece.position:
                    self._held[piece.slot] = self._held[piece.slot][:kept]
                    self._end(self._running[piece.slot], Failed(str(error)))
                else:
                    self._decode([piece])
            return
        for piece in pieces:
            self._held[piece.slot] += piece.tokens
            self._running[piece.slot].fed += len(piece.tokens)
        for slot, logits in rows.items():
            self._sample(self._running[slot], logits)
        with self._wake:
            now = clock.monotonic()
            self._recent.append((now, len(rows)))
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
        for job in list(self._running.values()):
            self._held[job.slot] = self._held[job.slot][: self._model.trim(job.slot, 0)]
            self._end(job, Failed(message))


def common_prefix(left: Sequence[int], right: Sequence[int], limit: int) -> int:
    """Length of the common prefix, at most ``limit``."""
    count = 0
    for a, b in zip(left[:limit], right[:limit], strict=False):
        if a != b:
            break
        count += 1
    return count
