"""What the native text path costs, beside its Python twin and the ``tokenizers`` library.

Run with ``python -m pytest benchmarks/micro/test_text_native.py``. The column to read is ``ns_per_unit`` in the printed
summary: nanoseconds per byte scanned or hashed, or per token decoded or encoded.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from smg._native.encode_cache import EncodeCache
from smg._native.stop_scan import StopAutomaton
from smg.core.stream import ByteTemplate, Counter, RowSpec, StreamTable
from smg.text.encode import CachedEncoder, CacheSizes
from smg.text.tables import make_table, vocabulary
from tests.golden.families import Plain, family, literals

TEMPLATE = ByteTemplate(
    (
        b'data: {"id":"chatcmpl-0123456789","object":"chat.completion.chunk","created":1700000000,"model":"m",'
        b'"choices":[{"index":0,"delta":{"content":"',
        b'"},"logprobs":null,"finish_reason":null}]}\n\n',
    ),
    ("text",),
)
STOPS = ("###", "\n\nHuman:", "</answer>", "STOP")
results: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def summary() -> Iterator[None]:
    yield
    print("\n\nns_per_unit")
    for name, value in results.items():
        print(f"{value:12.2f}  {name}")


def measure(benchmark: Any, name: str, units: int, call: Callable[[], object]) -> None:
    benchmark(call)
    results[name] = benchmark.stats.stats.min / units * 1e9
    benchmark.extra_info["per_unit"] = units


class Words:
    """A decoder of 100,000 random words."""

    size = 100_000

    def __init__(self) -> None:
        draw = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = ["".join(draw.choices(letters, k=draw.randint(1, 7))) for _ in range(self.size)]
        self._bytes = [f" {word}".encode() for word in self._words]

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token]

    def first_bytes(self, token: int) -> bytes:
        return self._bytes[token]

    def is_special(self, token: int) -> bool:
        return False


class Nowhere:
    """Tap and sink that take everything."""

    def on_output(self, row: int, output: object) -> None: ...

    def write(self, data: bytes) -> bool:
        return True

    async def drain(self) -> None: ...


WORDS = Words()
TOKENS = random.Random(2).choices(range(WORDS.size), k=1000)
TEXT = b"".join(WORDS.token_bytes(token) for token in TOKENS) * 20


@pytest.mark.parametrize("stops", [("STOP",), STOPS, ("the end", "and then", "in short")], ids=["one", "four", "dense"])
def test_scan_for_stop_strings(benchmark: Any, stops: tuple[str, ...]) -> None:
    automaton = StopAutomaton([stop.encode() for stop in stops])
    assert automaton.scan(TEXT)[1] == -1
    measure(benchmark, f"scan, stops {stops}", len(TEXT), lambda: automaton.scan(TEXT))


def test_scan_text_that_partly_matches_all_the_time(benchmark: Any) -> None:
    automaton, text = StopAutomaton([b"ab" * 20 + b"!"]), b"ab" * 10_000
    measure(benchmark, "scan, partial matches throughout", len(text), lambda: automaton.scan(text))


def stream(table: StreamTable, feeds: list[list[int]], stops: tuple[str, ...], direct: bool, decoder: Any) -> None:
    row = table.open(RowSpec(stop_strings=stops), decoder, Nowhere())
    if direct:
        table.direct(row, Nowhere(), TEMPLATE, Counter())
    for ids in feeds:
        table.feed(row, ids)
    table.finish(row)
    table.close(row)


@pytest.mark.parametrize("size", [1, 8, 1000])
@pytest.mark.parametrize("stops", [(), STOPS], ids=["no stops", "stops"])
@pytest.mark.parametrize("direct", [False, True], ids=["tapped", "direct"])
@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
def test_decode(benchmark: Any, native: bool, direct: bool, stops: tuple[str, ...], size: int) -> None:
    table = make_table(native)
    decoder = vocabulary(WORDS) if native else WORDS
    feeds = [TOKENS[at : at + size] for at in range(0, len(TOKENS), size)]
    kind = f"{'native' if native else 'python'}, {'direct' if direct else 'tapped'}, {len(stops)} stops"
    measure(
        benchmark,
        f"decode {size} a feed, {kind}",
        len(TOKENS),
        lambda: stream(table, feeds, stops, direct, decoder),
    )


def conversation(turns: int) -> str:
    turn = "<|im_start|>user\nWhat did the harbour master write in the long blue book on day {}?<|im_end|>\n"
    return "".join(turn.format(number) for number in range(turns))


def encoder(sizes: CacheSizes | None = None) -> CachedEncoder:
    return CachedEncoder(Plain(family("qwen2")), literals(family("qwen2")), sizes)


def test_hash(benchmark: Any) -> None:
    cache = EncodeCache(0)
    measure(benchmark, "hash, per byte", len(TEXT), lambda: cache.digest(TEXT))


@pytest.mark.parametrize("turns", [10, 1000])
def test_encode_a_known_text(benchmark: Any, turns: int) -> None:
    cached, text = encoder(), conversation(turns)
    tokens = len(cached.encode(text))
    measure(benchmark, f"encode {tokens} tokens, known text, per token", tokens, lambda: cached.encode(text))


@pytest.mark.parametrize("turns", [10, 1000])
def test_encode_with_the_library(benchmark: Any, turns: int) -> None:
    plain, text = Plain(family("qwen2")), conversation(turns)
    tokens = len(plain.encode(text))
    measure(benchmark, f"encode {tokens} tokens, library, per token", tokens, lambda: plain.encode(text))


def test_encode_the_next_turn(benchmark: Any) -> None:
    cached, start = encoder(CacheSizes(exact_bytes=0)), conversation(100)
    tokens = len(cached.encode(start))
    measure(
        benchmark,
        f"encode {tokens} tokens and a new turn, known beginning, per token",
        tokens,
        lambda: cached.encode(start + "and what then?"),
    )
