"""The six traces of ``smg-bench routing``: when requests come, what they ask, how long the answer is.

A trace is drawn from its name and a seed, so every policy sees the same requests at the same times, and parameters can
be judged on other seeds than they were chosen by. Rates are such that the replicas are busy but keep up when they reuse
what they have: there routing decides.
"""

import random
from collections.abc import Callable, Iterator

import msgspec

_IDS = range(50_000)
# Requests of a trace at full size.
REQUESTS = 1600


class Arrival(msgspec.Struct, frozen=True):
    """One request. ``at`` is in seconds; ``key`` is the session's, for policies that stick to one."""

    at: float
    ids: list[int]
    output: int
    key: str = ""


class Loss(msgspec.Struct, frozen=True):
    """Replica ``replica`` is away from ``since`` to ``until`` (seconds), and comes back with an empty cache."""

    replica: int
    since: float
    until: float


class Trace(msgspec.Struct, frozen=True):
    arrivals: list[Arrival]
    losses: tuple[Loss, ...] = ()


def drawing(name: str, seed: int) -> random.Random:
    """What the trace ``name`` is drawn with."""
    return random.Random(f"{name} {seed}")


def tokens(draw: random.Random, count: int) -> list[int]:
    return draw.choices(_IDS, k=count)


def times(draw: random.Random, rate: float, count: int) -> Iterator[float]:
    """Poisson arrivals, ``rate`` per second."""
    now = 0.0
    for _ in range(count):
        now += draw.expovariate(rate)
        yield now


def shared_prompt(count: int, seed: int) -> Trace:
    """Twelve system prompts of 1,500 to 3,000 tokens, some in much more use than others; every question is new."""
    draw = drawing("shared_prompt", seed)
    systems = [tokens(draw, draw.randrange(1500, 3000)) for _ in range(12)]
    weights = [1 / (number + 1) for number in range(len(systems))]
    return Trace(
        [
            Arrival(
                at, draw.choices(systems, weights)[0] + tokens(draw, draw.randrange(40, 400)), draw.randrange(60, 250)
            )
            for at in times(draw, 48.0, count)
        ]
    )


def conversations(draw: random.Random, count: int, rate: float) -> list[Arrival]:
    """Sessions of several turns, each the whole history again and something new."""
    systems = [tokens(draw, 400) for _ in range(3)]
    open_sessions: list[tuple[str, list[int], int]] = []
    out = []
    for number, at in enumerate(times(draw, rate, count)):
        if len(open_sessions) < 160 or draw.random() < 0.12:
            open_sessions.append((f"s{number}", list(draw.choice(systems)), draw.randrange(3, 14)))
        place = draw.randrange(len(open_sessions))
        key, history, left = open_sessions[place]
        output = draw.randrange(50, 300)
        asked = history + tokens(draw, draw.randrange(30, 500))
        out.append(Arrival(at, asked, output, key))
        if left > 1:
            open_sessions[place] = key, asked + tokens(draw, output), left - 1
        else:
            del open_sessions[place]
    return out


def multi_turn(count: int, seed: int) -> Trace:
    return Trace(conversations(drawing("multi_turn", seed), count, 44.0))


def mixed_lengths(count: int, seed: int) -> Trace:
    """Prompts from 100 to 16,000 tokens; a third of them repeats the beginning of an earlier one."""
    draw = drawing("mixed_lengths", seed)
    out: list[Arrival] = []
    for at in times(draw, 26.0, count):
        length = min(16_000, max(100, round(draw.lognormvariate(7.2, 1.0))))
        head: list[int] = []
        if out and draw.random() < 0.35:
            earlier = draw.choice(out[-400:]).ids
            head = earlier[: round(len(earlier) * draw.uniform(0.4, 0.95))]
        out.append(Arrival(at, head + tokens(draw, max(30, length - len(head))), draw.randrange(30, 300)))
    return Trace(out)


def hot_key(count: int, seed: int) -> Trace:
    """Half of all requests are about one document of 4,000 tokens, the others about 200 smaller ones."""
    draw = drawing("hot_key", seed)
    hot, others = tokens(draw, 4000), [tokens(draw, 1200) for _ in range(200)]
    out = []
    for at in times(draw, 46.0, count):
        number = draw.randrange(len(others))
        head, key = (hot, "hot") if draw.random() < 0.5 else (others[number], f"d{number}")
        out.append(Arrival(at, head + tokens(draw, draw.randrange(40, 300)), draw.randrange(50, 200), key))
    return Trace(out)


def replica_loss(count: int, seed: int) -> Trace:
    """Conversations; one replica is away in the middle third."""
    arrivals = conversations(drawing("replica_loss", seed), count, 38.0)
    end = arrivals[-1].at
    return Trace(arrivals, (Loss(2, end / 3, 2 * end / 3),))


def long_context(count: int, seed: int) -> Trace:
    """Questions about 40 documents of 8,000 to 60,000 tokens, a few of them in fashion at a time."""
    draw = drawing("long_context", seed)
    documents = [tokens(draw, draw.randrange(8_000, 60_000)) for _ in range(40)]
    out = []
    for number, at in enumerate(times(draw, 6.0, count // 2)):
        fashion = (number // 60 + draw.randrange(6)) % len(documents)
        chosen = fashion if draw.random() < 0.8 else draw.randrange(len(documents))
        out.append(Arrival(at, documents[chosen] + tokens(draw, draw.randrange(30, 200)), 200, f"d{chosen}"))
    return Trace(out)


TRACES: dict[str, Callable[[int, int], Trace]] = {
    "shared_prompt": shared_prompt,
    "multi_turn": multi_turn,
    "mixed_lengths": mixed_lengths,
    "hot_key": hot_key,
    "replica_loss": replica_loss,
    "long_context": long_context,
}
