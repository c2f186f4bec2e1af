"""A longer fuzz than ``test_contract.py``'s, of every parser: its own markers in a soup of everybody's, and calls with
something of that in the middle. No exception, the same however it is cut, and arguments that are whole are JSON."""

import json
import random

import pytest

from smg.parsing.base import Start
from tests.parsing.runs import STANDARD, call, chain_of, feed, fold, whole_chain
from tests.parsing.test_contract import REASONING_NAMES, SOUP, TOOL_NAMES
from tests.parsing.writers import WRITERS
from tests.splits import random_split

pytestmark = pytest.mark.full

TEXTS = 100
CALLS = [
    ("run", {"cmd": 'echo "x" ]}'}),
    ("ping", {}),
    ("search", {"query": "é😀", "filters": {"a": [1, None]}, "tags": ["b"]}),
]


def soup(units: list[str], generator: random.Random, most: int) -> str:
    return "".join(generator.choices(units, k=generator.randint(1, most)))


def mutated(text: str, units: list[str], generator: random.Random) -> str:
    for _ in range(generator.randint(1, 4)):
        at = generator.randint(0, len(text))
        text = text[:at] + generator.choice(units) + text[at + generator.choice([0, 0, 1, 3, 8]) :]
    return text


@pytest.mark.parametrize("family", TOOL_NAMES)
def test_calls(family):
    generator = random.Random(family)
    units = SOUP + 3 * sorted(whole_chain(family, Start(tools=STANDARD)).markers)
    for _ in range(TEXTS):
        written = WRITERS[family](CALLS[: generator.randint(1, len(CALLS))])
        text = soup(units, generator, 25) if generator.random() < 0.5 else mutated(written, units, generator)
        failed: list[str] = []
        start = Start(tools=STANDARD, failed=failed.append, parallel=generator.random() < 0.8)
        reason = generator.choice(["stop", "length"])
        whole = call(family, [text], start=start, reason=reason)
        for chunks in (list(text), random_split(text, generator)):
            assert call(family, chunks, start=start, reason=reason) == whole, chunks
        assert failed == [], text
        for number, (_, arguments) in enumerate(whole.calls):
            assert number in whole.cut or isinstance(json.loads(arguments), dict), text


@pytest.mark.parametrize("family", REASONING_NAMES)
def test_reasoning(family):
    generator = random.Random(family)
    units = SOUP + 3 * sorted(chain_of(family, Start(tools=STANDARD)).markers)
    for _ in range(TEXTS):
        text = soup(units, generator, 20)
        failed: list[str] = []
        tail = generator.choice(["", "<think>", "<|start|>assistant", "</think>"])
        start = Start(prompt_tail=tail, tools=STANDARD, failed=failed.append)

        def read(chunks: list[str], start: Start = start) -> tuple:
            chain = chain_of(family, start)
            return fold(feed(chain, chunks) + chain.finish("stop"))

        whole = read([text])
        assert read(list(text)) == read(random_split(text, generator)) == whole, text
        assert failed == [], text
