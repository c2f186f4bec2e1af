"""Rule SPLIT: the same text, cut in every way that matters.

A test builds ``run(chunks) -> assembled result`` and compares every result with the expected one::

    for chunks in splits(["let me think<", "/think>answer"]):
        assert run(chunks) == ("let me think", "answer")
"""

import random
from collections.abc import Iterator, Sequence

RANDOM_SPLITS = 20
ALL_PAIRS_BELOW = 2000  # characters


def splits(
    given: Sequence[str], seed: int = 0, count: int | None = None, pairs_below: int = ALL_PAIRS_BELOW
) -> Iterator[list[str]]:
    """As given, in one chunk, one character per chunk, ``count`` random splits (None: ``RANDOM_SPLITS``), and every
    split in two of texts that are shorter than ``pairs_below`` characters."""
    text = "".join(given)
    yield list(given)
    yield [text]
    yield list(text)
    generator = random.Random(seed)
    for _ in range(RANDOM_SPLITS if count is None else count):
        yield random_split(text, generator)
    if len(text) < pairs_below:
        for cut in range(1, len(text)):
            yield [text[:cut], text[cut:]]


def random_split(text: str, generator: random.Random) -> list[str]:
    """Cut ``text`` at random places; chunks may be empty."""
    cuts = sorted(generator.choices(range(len(text) + 1), k=generator.randint(0, min(len(text), 12))))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
