"""Continuous batching, with a model of arithmetic: the next token is the sum of all before it."""

import queue
import threading

import numpy as np
import pytest

from smg.engine_server.llama.guidance import ConstraintError
from smg.engine_server.llama.job import End, Failed, Job, Token
from smg.engine_server.llama.kv_feed import Feed
from smg.engine_server.llama.model import BATCH_ROWS, EXACT_ROWS, DecodeError
from smg.engine_server.llama.sampling import Params
from smg.engine_server.llama.scheduler import _PREFILL_BESIDE_DECODE, Scheduler, common_prefix
from tests.engine_server.test_kv_events import Replayed, full_blocks

VOCAB = 97
POISON = 96


class FakeModel:
    """Keeps each slot's tokens and checks that they arrive in order; POISON can't be decoded."""

    def __init__(self, slots=2, context_length=4096):
        self.slots = slots
        self.context_length = context_length
        self.memory = [[] for _ in range(slots)]
        self.steps = []
        self.copies = []
        self.gate = threading.Event()
        self.gate.set()

    def step(self, pieces):
        self.gate.wait(5)
        self.steps.append([(piece.slot, len(piece.tokens)) for piece in pieces])
        for piece in pieces:
            assert piece.position == len(self.memory[piece.slot])
            assert 0 < len(piece.tokens) <= EXACT_ROWS
        assert sum(len(piece.tokens) for piece in pieces) <= BATCH_ROWS
        for piece in pieces:
            self.memory[piece.slot] += piece.tokens
            if POISON in piece.tokens:
                raise DecodeError("poison")
        return {piece.slot: self._rows(piece) for piece in pieces if piece.outputs}

    def _rows(self, piece):
        held = self.memory[piece.slot]
        ends = range(len(held) - piece.outputs + 1, len(held) + 1)
        return [self._logits(held[:end]) for end in ends]

    def _logits(self, held):
        logits = np.zeros(VOCAB, dtype=np.float32)
        logits[sum(held) % 90] = 9
        return logits

    def trim(self, slot, length):
        del self.memory[slot][length:]
        return length

    def copy(self, source, target, length):
        self.copies.append((source, target, length))
        self.memory[target] = self.memory[source][:length]
        return length


def expected(prompt, count):
    out = []
    for _ in range(count):
        out.append((sum(prompt) + sum(out)) % 90)
    return out


class Harness:
    def __init__(self, model):
        self.model = model
        self.events = {}
        self.changes = []
        self.ends = queue.Queue()
        self.scheduler = Scheduler(model, self._deliver)
        self.scheduler.start()

    def _deliver(self, delivery):
        self.changes += delivery.changes
        for job, event in delivery.news:
            self.events.setdefault(job, []).append(event)
            if not isinstance(event, Token):
                self.ends.put(job)

    def job(self, prompt, limit=4, **rest):
        params = rest.pop("params", Params(temperature=0))
        return Job(prompt, params, lambda job, event: None, limit=limit, **rest)

    def run(self, *jobs):
        self.scheduler.submit(jobs)
        self.wait(len(jobs))

    def wait(self, count):
        for _ in range(count):
            self.ends.get(timeout=10)

    def tokens(self, job):
        return [event.id for event in self.events.get(job, []) if isinstance(event, Token)]

    def end(self, job):
        return self.events[job][-1]


@pytest.fixture
def harness():
    made = []

    def make(**options):
        made.append(Harness(FakeModel(**options)))
        return made[-1]

    yield make
    for each in made:
        each.scheduler.stop()


def test_every_job_gets_its_own_tokens_whatever_runs_beside_it(harness):
    h = harness(slots=3)
    jobs = [h.job([number, 2 * number, 3], limit=3 + number % 4) for number in range(1, 20)]
    h.run(*jobs)
    for number, job in enumerate(jobs, 1):
        assert h.tokens(job) == expected([number, 2 * number, 3], 3 + number % 4)
        assert h.end(job) == End("length")
    assert h.scheduler.load()[:3] == (0, 0, 0)
    assert max(len(step) for step in h.model.steps) == 3


def test_the_end_of_sequence_stop_ids_and_min_tokens(harness):
    h = harness()
    first, second, third, *_ = expected([1, 2], 4)
    eos = h.job([1, 2], eos=second)
    stop = h.job([1, 2], stops=frozenset({second}))
    both = h.job([1, 2], eos=second, stops=frozenset({second}))
    late = h.job([1, 2], stops=frozenset({third}), params=Params(temperature=0, min_tokens=4))
    h.run(eos, stop, both, late)
    assert (h.tokens(eos), h.end(eos)) == ([first, second], End("stop"))
    assert h.end(stop) == End("stop", second)
    assert h.end(both) == End("stop")
    assert len(h.tokens(late)) == 4


def test_a_long_prompt_goes_in_chunks_while_others_decode(harness):
    h = harness()
    h.model.gate.clear()
    short = h.job([1], limit=50)
    long = h.job(list(range(90)) * 10, limit=1)
    h.scheduler.submit([short, long])
    h.model.gate.set()
    h.wait(2)
    assert h.tokens(long) == expected(list(range(90)) * 10, 1)
    mixed = [dict(step) for step in h.model.steps if len(step) == 2]
    assert all(step[short.slot] == 1 for step in mixed)
    assert len(mixed) >= 900 // EXACT_ROWS


def test_long_prompts_together_do_not_hold_up_who_decodes(harness):
    h = harness(slots=4)
    h.model.gate.clear()
    short = h.job([1], limit=60)
    longs = [h.job([*range(90), *range(90), number], limit=1) for number in range(3)]
    h.scheduler.submit([short, *longs])
    h.model.gate.set()
    h.wait(4)
    # In the first turn nobody decodes yet.
    first, *rest = [dict(step) for step in h.model.steps]
    assert sum(first.values()) == 1 + 3 * EXACT_ROWS
    beside = [sum(step.values()) - 1 for step in rest if short.slot in step]
    assert max(beside) == _PREFILL_BESIDE_DECODE < 2 * EXACT_ROWS
    assert [h.tokens(job) for job in longs] == [expected(job.prompt, 1) for job in longs]


def test_a_poisoned_job_fails_alone(harness):
    h = harness(slots=3)
    h.model.gate.clear()
    good, bad, other = h.job([1, 2]), h.job([3, POISON]), h.job([4, 5])
    h.scheduler.submit([good, bad, other])
    h.model.gate.set()
    h.wait(3)
    assert h.end(bad) == Failed("poison")
    assert h.tokens(good) == expected([1, 2], 4)
    assert h.tokens(other) == expected([4, 5], 4)
    after = h.job([3, 1])
    h.run(after)
    assert h.tokens(after) == expected([3, 1], 4)


def test_sampling_that_fails_costs_one_job_and_a_bug_only_those_running(harness, monkeypatch):
    h = harness()
    good, bad = h.job([1]), h.job([2], params=Params(temperature=0, logit_bias={VOCAB: 1.0}))
    h.run(good, bad)
    assert isinstance(h.end(bad), Failed)
    assert h.tokens(good) == expected([1], 4)

    monkeypatch.setattr(h.scheduler, "_pieces", lambda: 1 / 0)
    lost = h.job([3])
    h.run(lost)
    assert h.end(lost) == Failed("ZeroDivisionError in the scheduler")
    monkeypatch.undo()
    fine = h.job([3])
    h.run(fine)
    assert h.tokens(fine) == expected([3], 4)

    monkeypatch.setattr(h.model, "trim", lambda slot, length: 1 / 0)
    lost = h.job([4])
    h.run(lost)
    assert isinstance(h.end(lost), Failed)
    monkeypatch.undo()
    h.run(h.job([4]))


def test_cancelled_jobs_end_with_abort_running_or_waiting(harness):
    h = harness(slots=1)
    running, waiting = h.job([1], limit=10**6), h.job([2], limit=10**6)
    h.scheduler.submit([running, waiting])
    h.scheduler.cancel([waiting])
    h.wait(1)
    assert h.end(waiting) == End("abort")
    assert h.scheduler.load().waiting == 0
    h.scheduler.cancel([running])
    h.wait(1)
    assert h.end(running) == End("abort")
    assert h.scheduler.load().running == 0


def test_stopping_ends_everything_and_refuses_more(harness):
    h = harness(slots=1)
    jobs = [h.job([number], limit=10**6) for number in range(3)]
    h.scheduler.submit(jobs)
    h.scheduler.stop()
    assert [h.end(job) for job in jobs] == [End("abort")] * 3
    with pytest.raises(RuntimeError, match="not running"):
        h.scheduler.submit([h.job([1])])


def test_the_same_prompt_again_is_cached_up_to_its_last_token(harness):
    h = harness()
    prompt = list(range(40))
    first, again = h.job(prompt), h.job(prompt)
    h.run(first)
    h.run(again)
    assert (first.cached, again.cached) == (0, 39)
    assert h.tokens(first) == h.tokens(again)
    assert h.model.copies == []


def test_another_slots_prefix_is_copied_when_it_is_long_and_the_slot_is_wanted(harness):
    h = harness()
    head = list(range(60))
    first = h.job([*head, *([7] * 60)])
    h.run(first)
    branch = h.job([*head, 8, 8])
    h.run(branch)
    # Going on in the first slot would have thrown its other 60 tokens away.
    assert h.model.copies == [(first.slot, branch.slot, 60)]
    assert branch.cached == 60
    assert h.tokens(branch) == expected([*head, 8, 8], 4)
    back = h.job([*head, *([7] * 60)])
    h.run(back)
    assert back.cached == 119


def test_nothing_is_taken_for_cached_after_a_copy_that_failed(harness, monkeypatch):
    h = harness()
    h.run(h.job([9] * 80))
    h.run(h.job([*range(60), *([7] * 60)]))

    def failing(source, target, length):
        h.model.memory[target] = []
        raise OSError

    monkeypatch.setattr(h.model, "copy", failing)
    lost = h.job([*range(60), 8, 8])
    h.run(lost)
    assert h.end(lost) == Failed("OSError in the KV memory")
    monkeypatch.undo()
    for prompt in ([9] * 80, [*range(60), *([7] * 60)]):
        after = h.job(prompt)
        h.run(after)
        assert h.tokens(after) == expected(prompt, 4)


def test_a_short_common_prefix_does_not_cost_a_long_memory(harness):
    h = harness()
    long = h.job([1, 2, 3, *([7] * 100)])
    h.run(long)
    other = h.job([1, 2, 3, 4])
    h.run(other)
    assert other.slot != long.slot
    assert other.cached == 0


def test_followers_wait_for_their_leaders_prefill_and_report_its_cache(harness):
    h = harness(slots=4)
    prompt = [3] * 200
    leader = h.job(prompt)
    followers = [h.job(prompt, index=index, leader=leader) for index in (1, 2)]
    h.run(leader, *followers)
    assert h.tokens(leader) == h.tokens(followers[0]) == h.tokens(followers[1])
    decoded = sum(size for step in h.model.steps for _, size in step)
    assert decoded < 2 * len(prompt)
    assert [job.cached for job in followers] == [0, 0]


def test_prompt_scores_are_of_every_id_but_the_first_whatever_is_cached(harness):
    h = harness(slots=2)
    prompt = [*range(40)] * 4
    h.run(h.job(prompt))
    scored = h.job(prompt, scored=2)
    beside = h.job([5], limit=8)
    h.run(scored, beside)
    assert scored.cached == 0
    assert len(scored.scores) == len(prompt)
    assert scored.scores[0] is None
    best = np.log(np.exp(9) / (np.exp(9) + VOCAB - 1))
    for place in range(1, len(prompt)):
        predicted = sum(prompt[:place]) % 90
        row = scored.scores[place]
        assert row.ids[0] == prompt[place]
        assert row.value == pytest.approx(best if predicted == prompt[place] else best - 9, abs=1e-5)
        assert max(row.values) == pytest.approx(best, abs=1e-5)
    assert h.tokens(scored) == expected(prompt, 4)


def test_choices_of_one_prompt_share_its_scores(harness):
    h = harness(slots=2)
    leader = h.job([3] * 50, scored=0)
    follower = h.job([3] * 50, scored=0, index=1, leader=leader)
    h.run(leader, follower)
    assert follower.scores == leader.scores
    assert len(leader.scores) == 50
    assert sum(size for step in h.model.steps for slot, size in step if slot == follower.slot) < 50


class OneOf:
    """A constraint: a text of the given ids, then the end."""

    def __init__(self, *ids):
        self.ids = list(ids)

    def mask(self):
        if not self.ids:
            raise ConstraintError("nothing is left")
        mask = np.zeros(VOCAB, dtype=bool)
        mask[self.ids[0]] = True
        return mask

    def accept(self, token):
        assert token == self.ids.pop(0)

    @property
    def stopped(self):
        return self.ids == [EOS]


EOS = 90


def test_a_constraint_decides_and_ends_the_sequence(harness):
    h = harness()
    forced = h.job([1], limit=50, matcher=OneOf(4, 5, 6, EOS), params=Params(temperature=0, min_tokens=20))
    h.run(forced)
    assert (h.tokens(forced), h.end(forced)) == ([4, 5, 6], End("stop"))


def test_a_constraint_that_can_not_be_followed_fails_its_job_alone(harness):
    h = harness()
    lost, good = h.job([1], matcher=OneOf(4)), h.job([1])
    h.run(lost, good)
    assert h.tokens(lost) == [4]
    assert h.end(lost).constraint
    assert "nothing is left" in h.end(lost).message
    assert h.tokens(good) == expected([1], 4)


def test_a_flush_forgets_all_prefixes(harness):
    h = harness()
    prompt = list(range(40))
    h.run(h.job(prompt))
    assert h.scheduler.flush(0).result(10)
    again = h.job(prompt)
    h.run(again)
    assert again.cached == 0


def test_a_flush_waits_for_what_runs_but_no_longer_than_it_may(harness):
    h = harness()
    long = h.job([1], limit=10**6)
    h.scheduler.submit([long])
    assert not h.scheduler.flush(0).result(10)
    patient = h.scheduler.flush(60)
    h.scheduler.cancel([long])
    assert patient.result(10)
    h.scheduler.submit([h.job([2], limit=10**6)])
    cut = h.scheduler.flush(60)
    h.scheduler.stop()
    assert not cut.result(10)
    assert not h.scheduler.flush(0).result(10)


def test_a_job_is_always_counted_as_waiting_or_running(harness):
    h = harness(slots=2)
    counts = []
    place = h.scheduler._place

    def watched(job):
        counts.append(sum(h.scheduler.load()[:2]))
        return place(job)

    h.scheduler._place = watched
    h.model.gate.clear()
    h.scheduler.submit([h.job([number]) for number in range(3)])
    h.model.gate.set()
    h.wait(3)
    # At each start: those that have not ended yet. The third starts when at least one is done.
    assert counts[:2] == [3, 3]
    assert counts[2] in (1, 2)
    assert sum(h.scheduler.load()[:2]) == 0


def test_what_is_published_is_what_the_model_holds(harness):
    h = harness(slots=3)
    head = list(range(64))
    h.run(h.job([*head, 1, 2] * 2), h.job([*head, 3] * 2), h.job([9] * 40))
    h.run(h.job([*head, 4] * 2), h.job([3, POISON]), h.job([*head[:40], 5]))
    h.scheduler.flush(0).result(10)
    h.run(h.job([*head, 1, 2]), h.job([*head, 1, 2, 3]))
    h.run(h.job([*head, *([7] * 60)], limit=20))
    h.run(h.job([*head, 8, 8], limit=20))
    h.scheduler.stop()
    assert h.model.copies
    replayed = Replayed()
    feed = Feed()
    feed.publish(h.changes)
    for batch in feed._history:
        replayed.apply(batch)
    assert sum((+replayed.copies).values()) > 0
    assert +replayed.copies == full_blocks(h.model.memory)


def test_an_idle_scheduler_takes_no_turns(harness):
    h = harness()
    h.run(h.job([1]))
    turns = h.scheduler._turns
    assert not h.ends.qsize()
    threading.Event().wait(0.05)
    assert h.scheduler._turns == turns


@pytest.mark.parametrize(
    ("left", "right", "limit", "count"),
    [([], [1], 9, 0), ([1, 2, 3], [1, 2, 4], 9, 2), ([1, 2], [1, 2, 3], 9, 2), ([1, 2, 3], [1, 2, 3], 2, 2)],
)
def test_common_prefix(left, right, limit, count):
    assert common_prefix(left, right, limit) == count
