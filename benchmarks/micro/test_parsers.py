"""What a parser adds to a token, by what the text is and by how many tokens come in one feed.

The choice of a generation as it is, without an engine and without a client: ids go in, events and the bytes of direct
rows come out. ``none`` is the row without a parser that all others stand beside. Of every stream only the long middle
counts: what opens and closes it is fed before and after. The column to read is ``ns_per_token``.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from smg.core.batch import TokenBatch
from smg.core.request import Tool
from smg.core.stream import ByteTemplate, Counter, RowSpec
from smg.parsing.base import Start
from smg.parsing.chain import Chain
from smg.parsing.table import REASONING, TOOLS
from smg.pipeline.choice import Choice
from smg.pipeline.stops import Stops
from smg.text.tables import make_table, vocabulary

TOKENS = 4000
STOPS = Stops(frozenset(), (), frozenset(), {})
TEMPLATE = ByteTemplate(
    (
        b'data: {"id":"chatcmpl-0123456789","object":"chat.completion.chunk","created":1700000000,"model":"m",'
        b'"choices":[{"index":0,"delta":{"content":"',
        b'"},"logprobs":null,"finish_reason":null}]}\n\n',
    ),
    ("text",),
)
WORDS = [" the", " city", " of", " light", "s", ",", " is", " a", " pla", "ce", ".", " One", " may", " see", " it"]
JSON = ['"', " the", " city", '", "', "x", '": [', "1", ", ", "25", '], "', "y", '": {"', "a", '": "', " of", '"}, "']
CODE = ["def", " f", "(x", "):", "\\n", "    ", "return", " x", "[", "0", "]", " <", " 3", "\\n", "#", " é"]
TOOL = Tool(
    "write",
    parameters={
        "type": "object",
        "properties": {"text": {"type": "string"}, "items": {"type": "array"}},
    },
)

# Name: reasoning format, tool format, head, middle (one token each), tail.
CASES: dict[str, tuple[str | None, str | None, str, list[str], str]] = {
    "none": (None, None, "So", WORDS, ""),
    "answer": ("qwen3", "qwen", "So", WORDS, ""),
    "answer, markers begun": ("qwen3", "qwen", "So", [*WORDS[:14], " <"], ""),
    "reasoning": ("qwen3", "qwen", "<think>So", WORDS, "</think>"),
    "harmony answer": ("gpt_oss", None, "<|channel|>final<|message|>So", WORDS, "<|return|>"),
    "json values": ("qwen3", "qwen", '<tool_call>{"name": "write", "arguments": {"a": ', JSON, 'z": 1}}</tool_call>'),
    "json string": ("qwen3", "qwen", '<tool_call>{"name": "write", "arguments": {"text": "', CODE, '"}}</tool_call>'),
    "json, kimi": (
        None,
        "kimik2",
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>{"text": "',
        CODE,
        '"}<|tool_call_end|>',
    ),
    "xml string": ("qwen3", "qwen_xml", "<tool_call>\n<function=write>\n<parameter=text>\n", CODE, "\n</parameter>"),
    "xml array": (
        "qwen3",
        "qwen_xml",
        "<tool_call>\n<function=write>\n<parameter=items>\n[1",
        [", ", "25"],
        "]</parameter>",
    ),
    "arg_value string": (
        "glm45",
        "glm45_moe",
        "<tool_call>write\n<arg_key>text</arg_key>\n<arg_value>",
        CODE,
        "</arg_value>",
    ),
    "dsml string": (
        None,
        "deepseek32",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="write">\n<｜DSML｜parameter name="text" string="true">',
        CODE,
        "</｜DSML｜parameter>",
    ),
    "python string": (
        None,
        "pythonic",
        '[write(text="',
        [word.replace("[", "(").replace("]", ")") for word in CODE],
        '")]',
    ),
    "python values": (None, "pythonic", "[write(items=[1", [", ", "25", ", ", "'x'"], "])]"),
    "gemma string": (None, "gemma4", '<|tool_call>call:write{text:<|"|>', CODE, '<|"|>}<tool_call|>'),
}
results: dict[tuple[str, int], float] = {}


@pytest.fixture(scope="module", autouse=True)
def summary() -> Iterator[None]:
    yield
    print("\n\nns_per_token, feeds of 1, 8, 1,000")
    for name in CASES:
        print(*(f"{results.get((name, batch), 0.0):10.0f}" for batch in (1, 8, 1000)), "", name)


class Pieces:
    """A decoder of a head, a middle and a tail."""

    def __init__(self, pieces: list[str]) -> None:
        self.size = len(pieces)
        self._bytes = [piece.encode() for piece in pieces]

    def token_bytes(self, token: int) -> bytes:
        return self._bytes[token]

    first_bytes = token_bytes

    def is_special(self, token: int) -> bool:
        return False


class Client:
    """Sink and encoder of direct rows."""

    counter = Counter()

    def template(self, choice: int, kind: str = "text", call: int = 0) -> ByteTemplate:
        return TEMPLATE

    def write(self, data: bytes) -> bool:
        return True

    async def drain(self) -> None: ...


def named(formats: Any, name: str | None, start: Start) -> Any:
    factory = next((row.factory for row in formats if name in (row.name, *row.aliases)), None)
    assert name is None or factory is not None
    return factory(start) if factory else None


@pytest.mark.parametrize("batch", [1, 8, 1000])
@pytest.mark.parametrize("case", CASES)
def test_parser(benchmark: Any, case: str, batch: int) -> None:
    reasoning, tools, head, middle, tail = CASES[case]
    decoder = vocabulary(Pieces([head, *middle, tail]))
    ids = [1 + number % len(middle) for number in range(TOKENS)]
    feeds = [TokenBatch(0, ids[start : start + batch]) for start in range(0, TOKENS, batch)]
    start, client = Start(tools=(TOOL,)), Client()

    def begun() -> tuple[tuple[Choice], dict[str, Any]]:
        chain = Chain(0, start, named(REASONING, reasoning, start), named(TOOLS, tools, start))
        choice = Choice(make_table(), RowSpec(), decoder, chain, STOPS)
        if chain.plain:
            choice.direct(client, TEMPLATE, client.counter)
        else:
            choice.follow(client, client)
        choice.go()
        choice.feed(TokenBatch(0, [0]))
        choice.go()
        choice.feed(TokenBatch(0, [1]))
        return (choice,), {}

    def run(choice: Choice) -> None:
        for feed in feeds:
            choice.go()
            choice.feed(feed)

    benchmark.pedantic(run, setup=begun, rounds=40, iterations=1, warmup_rounds=2)
    results[case, batch] = benchmark.stats.stats.min / TOKENS * 1e9
    benchmark.extra_info["per_token"] = TOKENS
